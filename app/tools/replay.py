"""Makes handouts: shipped recordings as pages of one file each that work from disk.

    python -m app.tools.replay --out runs/handouts

The page is the same that *Save…* and the tab Recordings make in the browser (`asReplay` in `assets/web/page/save.js`).
"""

import argparse
import html
import json
import re
import sys
from pathlib import Path

from app.page import web
from app.words import page as words

FOLDER = Path("runs/handouts")


def replay_page(recording: str, title: str) -> str:
    """Return a page with one recording and the page's own style and scripts.

    Args:
        recording: the text of a recording, from `web.recording`.
        title: first part of the window's title.
    """
    values = {
        "title": f"<title>{html.escape(title, quote=False)} · {words.TITLE}</title>",
        "style": f"\n{web.style()}",
        "look": "",
        "recording": recording.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"),
        "plotly": web.plotly_element(),
        "code": f"\n{web.script()}",
    }
    return re.sub(r"\{(\w+)\}", lambda name: values[name[1]], web.REPLAY_TEMPLATE)


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a handout of each shipped recording.")
    parser.add_argument("--out", type=Path, default=FOLDER, help=f"folder for the pages ({FOLDER})")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name in web.recording_names():
        text, path = web.recording(name), folder / f"{name}.html"
        path.write_text(replay_page(text, json.loads(text)["title"]), encoding="utf-8")
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
