"""Makes handouts: shipped recordings as pages of one file each that work from disk.

    python -m app.tools.replay --out runs/handouts

The page is the same that *Save…* and the tab Recordings make in the browser (`asReplay` in `assets/web/page/save.js`).
"""

import argparse
import html
import json
from pathlib import Path

from app.page import web
from app.words import page as words

FOLDER = Path("runs/handouts")
# A handout may load nothing from elsewhere
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"


def replay_page(recording: str, title: str) -> str:
    """Return a page with one recording and the page's own style and scripts.

    Args:
        recording: the text of a recording, from `web.recording`.
        title: first part of the window's title.
    """
    data = recording.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        f"<title>{html.escape(title, quote=False)} · {words.TITLE}</title>"
        f'<style id="jakiro-style">\n{web.style()}</style></head>'
        '<body><div id="replay"><div class="jk-top"></div>'
        '<div class="jk-view"></div></div>'
        f'<script type="application/json" id="jakiro-recording">{data}</script>{web.plotly_element()}'
        f'<script id="jakiro-code">\n{web.script()}</script><script>Jakiro.openReplay();</script></body></html>'
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Makes a handout from each shipped recording.")
    parser.add_argument("--out", type=Path, default=FOLDER, help=f"folder for the pages ({FOLDER})")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    for name in web.recording_names():
        text = web.recording(name)
        (folder / f"{name}.html").write_text(replay_page(text, json.loads(text)["title"]), encoding="utf-8")


if __name__ == "__main__":
    main()
