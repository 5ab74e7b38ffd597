"""Makes the handouts in `docs/replays/`: shipped recordings as pages of one file each that work from disk.

    python -m app.tools.replay

The page is the same that `Save…` makes in the browser (`asReplay` in `assets/web/page/save.js`).
"""

import argparse
import html
import json
import sys
from pathlib import Path

from app.page import web
from app.words import page as words

FOLDER = web.ASSETS.parent / "docs" / "replays"
HANDOUTS = ("1-counting", "3-haiku", "4-letters", "5-beach")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def replay_page(recording: str, title: str) -> str:
    """One recording with the page's own style and scripts.

    Args:
        recording: the text of a recording, as `web.recording` gives it.
        title: what the window's title says before the page's name.
    """
    data = recording.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{html.escape(title, quote=False)} · {words.TITLE}</title>"
        f'<style id="jakiro-style">\n{web.style()}</style></head><body><div id="replay"><div class="jk-top"></div>'
        '<div class="jk-view"></div></div>'
        f'<script type="application/json" id="jakiro-recording">{data}</script>'
        f'<script id="jakiro-code">\n{web.script()}</script><script>Jakiro.openReplay();</script></body></html>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes the handouts in docs/replays from the shipped recordings.")
    parser.add_argument("--out", type=Path, default=FOLDER)
    folder = parser.parse_args().out
    missing = [name for name in HANDOUTS if name not in web.recording_names()]
    if missing:
        sys.exit(f"No recording is called “{missing[0]}”; the shipped ones are {', '.join(web.recording_names())}.")
    folder.mkdir(parents=True, exist_ok=True)
    for name in HANDOUTS:
        text = web.recording(name)
        page = replay_page(text.strip(), json.loads(text)["title"])
        (folder / f"{name.partition('-')[2]}.html").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
