"""What the browser gets: the modules, the style sheet and the words of the page as one head block, and the recordings.

The files in `assets/web/` are plain scripts that share the object `Jakiro`; they are joined in the order below, without
a build. The same block makes a saved replay page work from disk.
"""

import json
from pathlib import Path

from app import words

ASSETS = Path(__file__).resolve().parent.parent / "assets"
TRACES = ASSETS / "traces"
SCRIPTS = (
    "dom.js",
    "pieces.js",
    "history.js",
    "metrics.js",
    "tree_layout.js",
    "tree.js",
    "card.js",
    "tree_list.js",
    "answer.js",
    "markdown.js",
    "plot.js",
    "tables.js",
    "strip.js",
    "scrubber.js",
    "panels.js",
    "race.js",
    "result_card.js",
    "trace_file.js",
    "recordings.js",
    "tree_picture.js",
    "save.js",
    "keys.js",
    "settings.js",
    "parts.js",
    "connection.js",
    "view.js",
    "top.js",
)
STYLES = ("base.css", "page.css", "answer.css", "tree.css", "race.css", "phone.css")


def script() -> str:
    """All modules in order, words first."""
    words_json = json.dumps(words.BROWSER, ensure_ascii=False).replace("<", "\\u003c")
    modules = [(ASSETS / "web" / name).read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join([f"window.Jakiro = {{words: {words_json}}};", *modules])


def style() -> str:
    return "\n".join((ASSETS / "web" / name).read_text(encoding="utf-8") for name in STYLES)


def head() -> str:
    """The block for the page's <head>."""
    return f'<style id="jakiro-style">\n{style()}</style>\n<script id="jakiro-code">\n{script()}</script>'


def recording_names() -> list[str]:
    """Names of the shipped recordings, in the order they are shown."""
    return sorted(path.stem for path in TRACES.glob("*.json"))


def recording(name: str) -> dict | None:
    """One shipped recording: title, why it is worth seeing, and its traces by method; None for an unknown name."""
    if name not in recording_names():
        return None
    return json.loads((TRACES / f"{name}.json").read_text(encoding="utf-8"))
