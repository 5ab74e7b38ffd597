"""Take the pictures in `docs/screenshots/` of the page playing its recordings: `python -m app.tools.screenshots`.

No model is loaded, so the pictures show the recordings. Needs Playwright and Chromium, as the tests do; `--film`, which
adds a few seconds of the Watch tab as `watch.gif`, needs ImageMagick as well.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from app.page import build as page
from app.page import web
from app.page.web import ASSETS

FOLDER = ASSETS.parent / "docs" / "screenshots"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")
SIZES = {"desktop": (1440, 900), "phone": (390, 844), "projector": (1920, 1080)}
LARGEST_BYTES = 300_000
FILM_SIZE, FILM_FRAMES, FILM_SECONDS = (1200, 866), 24, 0.2
_TO_THE_END = "Jakiro.moves.seek(Infinity); document.activeElement.blur()"
_AT_STEP = """index => { Jakiro.moves.seek(index);
  Jakiro.moves.state.time = Jakiro.lane().seconds[index]; }"""
# For the film: an empty page first, and then the recording like a live answer
_ASIDE = """() => { window.filmed = Jakiro.moves.state.run; Jakiro.show(null);
  return [filmed.question, filmed.main.steps.length]; }"""
_ASKED = """() => { Jakiro.fillQuestion(""); document.activeElement.blur(); Jakiro.show(filmed, 0);
  Jakiro.moves.state.time = filmed.main.seconds[0]; }"""
_SMALL_GIF = ("+dither", "-colors", "128", "-layers", "optimize")
_TO_THE_HIGHLIGHT = "Jakiro.moves.seek(Jakiro.highlight(Jakiro.lane()))"


@dataclass(frozen=True, slots=True)
class Picture:
    """One file: a tab at a size and in a colour scheme, after a script has brought the view where it should be."""

    tab: str
    size: str
    scheme: str
    script: str = ""
    name: str = ""

    @property
    def file_name(self) -> str:
        return f"{self.name or self.tab}-{self.size}-{self.scheme}.png"


PICTURES = (
    Picture("watch", "desktop", "light", _TO_THE_HIGHLIGHT),
    Picture("watch", "desktop", "dark", _TO_THE_HIGHLIGHT),
    Picture("watch", "phone", "dark", _TO_THE_HIGHLIGHT),
    Picture("watch", "phone", "light", _TO_THE_HIGHLIGHT),
    Picture("watch", "projector", "light", _TO_THE_HIGHLIGHT),
    Picture("race", "desktop", "light", _TO_THE_END),
    Picture("race", "phone", "dark", _TO_THE_END),
    Picture("race", "projector", "light", _TO_THE_END),
    Picture("lesson", "desktop", "light"),
    Picture("lesson", "phone", "dark"),
    Picture("recordings", "desktop", "light"),
    Picture("recordings", "phone", "dark"),
    Picture("benchmark", "desktop", "light"),
    Picture("benchmark", "phone", "dark"),
    Picture("watch", "desktop", "light", "document.querySelector('#jk-settings').click()", "settings"),
)


class NoModel:
    """A device that never loads a model."""

    places, metered, costs, status = 1, False, None, {}

    def load(self, report) -> None:
        threading.Event().wait()

    def answer(self, asking, halt, prefixes=None):
        yield from ()

    def close(self) -> None:
        return None


def take(tab, picture: Picture, address: str, recording: str, folder: Path) -> Path | None:
    """Save one picture of a recorded answer and return its path; None if the page has no tab `picture.tab`.

    Args:
        tab: Playwright's page, with the size and the colour scheme of the picture.
        address: address of the running page.
        recording: name of the recorded answer.
        folder: folder of the picture.
    """
    tab.goto(f"{address}?recording={recording}")
    tab.wait_for_selector("svg.tree:visible, .ladder:visible")
    tab.wait_for_function("window.Plotly")
    if picture.size == "projector":
        tab.evaluate("document.documentElement.classList.add('projector'); Jakiro.redraw()")
    if not tab.locator(f'[role="tab"][data-tab="{picture.tab}"]').count():
        return None
    tab.add_style_tag(content="#jk-chip { display: none; }")  # the chip shows that the model is loading
    tab.click(f'[role="tab"][data-tab="{picture.tab}"]')
    tab.evaluate(picture.script or "0")
    tab.wait_for_timeout(1500)
    path = folder / picture.file_name
    tab.screenshot(path=path)
    return path


def film(browser, address: str, recording: str, folder: Path) -> Path:
    """Save an animated picture: the question, the three phases of the first step, the growing answer, and its speed."""
    width, height = FILM_SIZE
    tab = browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")
    tab.goto(f"{address}?recording={recording}&step=1")
    tab.wait_for_selector("svg.tree")
    tab.wait_for_function("window.Plotly")
    tab.add_style_tag(content="#jk-chip { display: none; }")
    question, num_steps = tab.evaluate(_ASIDE)
    path = folder / "watch.gif"
    with tempfile.TemporaryDirectory() as frames:

        def take(count: int = 1) -> None:
            tab.wait_for_timeout(200)
            for _ in range(count):
                tab.screenshot(path=f"{frames}/{len(list(Path(frames).iterdir())):03}.png")

        for typed in range(0, len(question) + 1, 4):
            tab.evaluate("text => Jakiro.fillQuestion(text)", question[:typed])
            take()
        tab.evaluate(_ASKED)
        for phase in (1, 2, 3):
            tab.evaluate("phase => Jakiro.moves.setPhase(phase)", phase)
            take(4)
        for number in range(FILM_FRAMES):
            tab.evaluate(_AT_STEP, number * (num_steps - 1) // FILM_FRAMES)
            take()
        tab.evaluate(_TO_THE_END)
        take(12)
        delay = str(round(100 * FILM_SECONDS))
        pictures = sorted(str(frame) for frame in Path(frames).glob("*.png"))
        subprocess.run(["convert", "-delay", delay, "-loop", "0", *pictures, *_SMALL_GIF, str(path)], check=True)
    tab.close()
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes the pictures in docs/screenshots from the shipped recordings.")
    parser.add_argument("--recording", default=web.recording_names()[0], choices=web.recording_names())
    parser.add_argument("--only", help="only pictures with file names that start with this text")
    parser.add_argument("--film", action="store_true", help="the moving picture as well")
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    from playwright.sync_api import sync_playwright

    path = next((executable for name in BROWSERS if (executable := shutil.which(name))), None)
    if path is None:
        sys.exit("Pictures need Chromium, and none was found; install it, then run this again.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    blocks = page.build(NoModel())
    address = page.launch(blocks, host="127.0.0.1", wait=False, quiet=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        if arguments.film:
            film(browser, address, arguments.recording, arguments.out)
        for picture in PICTURES:
            if not picture.file_name.startswith(arguments.only or ""):
                continue
            width, height = SIZES[picture.size]
            tab = browser.new_page(
                viewport={"width": width, "height": height}, color_scheme=picture.scheme, reduced_motion="reduce"
            )
            written = take(tab, picture, address, arguments.recording, arguments.out)
            tab.close()
            if written is not None and written.stat().st_size > LARGEST_BYTES:
                sys.exit(f"{written} has {written.stat().st_size:,} bytes; at most {LARGEST_BYTES:,} are wanted.")
        browser.close()
    blocks.close()


if __name__ == "__main__":
    main()
