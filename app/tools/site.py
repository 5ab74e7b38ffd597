"""Write a static site: lesson, recordings, recorded races and the benchmark, in the page's design and without a server.

    python -m app.tools.site --out runs/site --add ANSWER.json

The folder works from disk, from any web server, under any path and on a free static Space. It contains no model.
"""

import argparse
import base64
import gzip
import html
import json
import re
import shutil
import sys
from pathlib import Path

from app.page import benchmark, lesson, web
from app.words import page as words
from jakiro.trace import Trace, TraceError

FOLDER = Path("runs/site")
SCRIPT = web.ASSETS / "site" / "site.js"
NOTE = (
    "This copy of the page has no model: all answers are recorded. With Jakiro installed, you ask your own questions."
)
# A Space needs its settings in a README
SPACE = """\
---
title: Jakiro
emoji: 🌳
colorFrom: blue
colorTo: yellow
sdk: static
app_file: index.html
license: apache-2.0
short_description: Speculative decoding, recorded step by step
---

The static site of Jakiro, written by `make site`.
"""


def site_page(names: list[str]) -> str:
    """Return index.html: the page's style and scripts, Plotly, and the names of the recordings."""
    style = f"{lesson.style()}{benchmark.style()}body {{ margin: 0 }} .bench-form {{ display: none }}"
    style += ".site-note { margin: 2rem 1.5rem; font-size: 0.9rem }"
    start = f"{SCRIPT.read_text(encoding='utf-8')}\nopenSite({web.for_script(names)});"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(words.TITLE)}</title>{web.head()}<style>{style}</style></head>"
        '<body class="replay"><div id="replay"><div class="jk-top"></div>'
        '<div id="view"><div class="jk-view"></div></div>'
        '<div id="lesson"><div class="jk-view jk-lesson" data-tab="lesson"></div></div>'
        '<div id="benchmark"><div class="jk-view jk-benchmark" data-tab="benchmark"></div></div>'
        f'<p class="muted site-note">{html.escape(NOTE)}</p></div>{web.plotly_element()}'
        f"<script>\n{lesson.script()}</script><script>\n{benchmark.script()}</script><script>\n{start}</script></body></html>"
    )


def site_file(name: str, text: str) -> str:
    """Return a file of the site: a script with one text, compressed."""
    packed = base64.b64encode(gzip.compress(text.encode("utf-8"), mtime=0)).decode()
    return f"jakiroFile({json.dumps(name)}, {json.dumps(packed)});\n"


def added_recording(path: Path) -> tuple[str, str]:
    """Return name and text of an answer that was saved from the page as .json, or with `generate --trace`.

    Raises:
        ValueError: the file is not a recording.
    """
    text = path.read_text(encoding="utf-8")
    try:
        values = json.loads(text)
        if "header" in values:
            trace = Trace.from_dict(values)
            text = web.recording_text({trace.header.method: trace})
            values = json.loads(text)
        for trace in values["traces"].values():
            Trace.from_dict(trace)
    except (TraceError, json.JSONDecodeError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"{path} is not an answer saved as .json ({error}); save it again with “Save…”.") from error
    return re.sub(r"[^\w-]+", "-", path.stem), text


def write_site(folder: Path, added: list[Path]) -> list[Path]:
    """Write the site into a folder, which it replaces, and return the paths of its files."""
    recordings = {name: web.recording(name) for name in web.recording_names()}
    for path in added:
        name, text = added_recording(path)
        if name in recordings:
            raise ValueError(f"Two recordings are called {name!r}; rename {path}.")
        recordings[name] = text
    texts = {
        **recordings,
        "lesson": lesson.RECORDINGS.read_text(encoding="utf-8"),
        "benchmark": benchmark.RECORDED.read_text(encoding="utf-8"),
        "leaderboard": benchmark.leaderboard(),
    }
    if folder.exists() and not (folder / "files").is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder} has other files in it; give --out a new folder.")
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "files").mkdir(parents=True)
    written = {"index.html": site_page(list(recordings)), "README.md": SPACE, ".nojekyll": ""}
    written |= {f"files/{name}.js": site_file(name, text) for name, text in texts.items()}
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in written]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the static site.")
    parser.add_argument("--out", type=Path, default=FOLDER, help=f"folder for the site ({FOLDER})")
    parser.add_argument("--add", type=Path, nargs="*", default=[], help="answers saved from the page as .json")
    arguments = parser.parse_args()
    try:
        paths = write_site(arguments.out, arguments.add)
    except OSError as error:
        sys.exit(f"The site was not written: {error.filename}: {error.strerror}.")
    except ValueError as error:
        sys.exit(f"The site was not written: {error}")
    size = sum(path.stat().st_size for path in paths)
    sys.stdout.write(f"{arguments.out}/index.html: {len(paths)} files, {size / 1e6:.1f} MB\n")


if __name__ == "__main__":
    main()
