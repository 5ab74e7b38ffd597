"""What the browser gets: the modules, the style sheet and the words of the page as one head block, and the recordings.

The files in `assets/web/` are plain scripts that share the object `Jakiro`; they are joined in the order below, without
a build. The same block makes a saved replay page work from disk.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

from app.words import page as words
from jakiro.methods import METHODS, Methods
from jakiro.plots import LIBRARY, packed_library
from jakiro.trace import Trace
from jakiro.zoo import table as zoo

ASSETS = Path(__file__).resolve().parents[2] / "assets"
TRACES = ASSETS / "traces"
# What the browser is told of a method
SHOWN_OF_METHODS = ("name", "title", "aliases", "proposers")
PLOT_TEMPLATE = ASSETS / "plots" / "template.json"
SCRIPTS = (
    "base/dom.js",
    "base/frame.js",
    "base/pieces.js",
    "data/methods.js",
    "data/packed.js",
    "data/history.js",
    "data/metrics.js",
    "data/baseline.js",
    "tree/layout.js",
    "tree/marker.js",
    "tree/evidence.js",
    "tree/tree.js",
    "tree/card.js",
    "tree/list.js",
    "tree/ladder.js",
    "tree/dialog.js",
    "watch/answer.js",
    "base/markdown.js",
    "plots/library.js",
    "plots/template.js",
    "plots/sample.js",
    "plots/figure.js",
    "watch/plot.js",
    "watch/tables.js",
    "watch/facts.js",
    "watch/scrubber.js",
    "watch/panels.js",
    "race/lanes_table.js",
    "race/race.js",
    "race/result_card.js",
    "data/trace_file.js",
    "data/recordings.js",
    "share/drawing.js",
    "share/tree_picture.js",
    "share/text_picture.js",
    "share/result_picture.js",
    "page/save.js",
    "share/link.js",
    "share/address.js",
    "page/menu.js",
    "base/keys.js",
    "page/settings.js",
    "chat/asking.js",
    "chat/chat.js",
    "chat/visit.js",
    "page/parts.js",
    "base/connection.js",
    "page/state.js",
    "page/schedule.js",
    "page/moves.js",
    "watch/opening.js",
    "page/view.js",
    "page/top.js",
    "page/pairs.js",
)
STYLES = (
    "base/base.css",
    "page/page.css",
    "watch/answer.css",
    "plots/plots.css",
    "tree/tree.css",
    "race/race.css",
    "chat/chat.css",
    "share/share.css",
    "page/narrow.css",
    "base/hall.css",
    "base/access.css",
)


def script(known: Methods = METHODS) -> str:
    """All modules in order; words, drafting methods and how plots look first."""
    given = {
        "words": words.BROWSER,
        "methods": [{name: method.to_dict()[name] for name in SHOWN_OF_METHODS} for method in known.values()],
        "headMinutes": zoo.minutes_of_heads(),
        "plotTemplate": json.loads(PLOT_TEMPLATE.read_text(encoding="utf-8")),
        "plotlyFile": LIBRARY.name,
    }
    return f"window.Jakiro = {for_script(given)};\n{joined(SCRIPTS)}"


def plotly_element() -> str:
    """Plotly as a saved page carries it, see `assets/web/plots/library.js`."""
    return f'<script type="text/plain" id="jakiro-plotly">{packed_library()}</script>'


def style() -> str:
    return tight(joined(STYLES))


def tight(style: str) -> str:
    """A style sheet without the comments and spaces that no browser needs."""
    return re.sub(r"/\*.*?\*/|(?<=[;:,>])\s+|\s*(?=[{}>])|(?<=[{}])\s+|;\s*(?=})", "", style)


def joined(names: Iterable[str]) -> str:
    """Files of `assets/web/`, one after the other, without indentation and comments, which nobody loads."""
    texts = [(ASSETS / "web" / name).read_text(encoding="utf-8") for name in names]
    lines = (line.lstrip() for text in texts for line in text.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("//"))


def for_script(value) -> str:
    """A value as JSON that can stand inside a script element."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def head(known: Methods = METHODS) -> str:
    """The block for the page's <head>, which tells the browser of the drafting methods that there are."""
    return f'<style id="jakiro-style">\n{style()}</style>\n<script id="jakiro-code">\n{script(known)}</script>'


def recording_text(traces: dict[str, Trace]) -> str:
    """Traces by method as one recording, each as the library's own JSON writes it; called by the last question."""
    header = next(iter(traces.values())).header
    asked = [message["content"] for message in header.messages if message["role"] == "user"]
    title = json.dumps(asked[-1] if asked else header.raw_prompt or "")
    written = ",".join(f"{json.dumps(method)}:{trace.to_json()}" for method, trace in traces.items())
    return f'{{"title":{title},"why":"","traces":{{{written}}}}}'


def recording_names() -> list[str]:
    """Names of the shipped recordings, in the order they are shown."""
    return sorted(path.stem for path in TRACES.glob("*.json"))


def recording(name: str) -> str | None:
    """One shipped recording as its file's text: title, why it is worth seeing, and traces; None for an unknown name."""
    return (TRACES / f"{name}.json").read_text(encoding="utf-8") if name in recording_names() else None
