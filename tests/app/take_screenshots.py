"""Takes the pictures in `docs/screenshots/` from a running page: `python -m tests.app.take_screenshots http://127.0.0.1:7860`.

The page must be able to answer; every picture shows the answer it has just given.
"""

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.app.conftest import BROWSERS, FLAGS, ask, wait_until_finished

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "screenshots"
SIZES = {"desktop": (1440, 900), "phone": (390, 844)}


def answer(tab, question: str, nodes: int, length: int) -> None:
    """Asks with a fixed tree and rests on the step with the longest accepted path."""
    tab.wait_for_selector("#jk-chip.ready", timeout=120_000)
    tab.click("#jk-settings")
    tab.get_by_label("Fixed").check()
    tab.fill("#candidates input", str(nodes - 1))
    tab.fill("#length input", str(length))
    tab.keyboard.press("Tab")
    tab.click("#settings .toggle-button")
    ask(tab, question)
    wait_until_finished(tab, 300)
    tab.evaluate(
        "() => { const lengths = Jakiro.moves.state.run.main.steps.map(step => step.accepted_path.length);"
        " Jakiro.moves.seek(lengths.indexOf(Math.max(...lengths))); }"
    )
    tab.wait_for_timeout(600)


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes the pictures in docs/screenshots.")
    parser.add_argument("address")
    parser.add_argument("--question", default="Why is the sky blue?")
    parser.add_argument("--nodes", type=int, default=24)
    parser.add_argument("--length", type=int, default=96)
    parser.add_argument("--out", type=Path, default=FOLDER)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                tab = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
                tab.goto(arguments.address)
                answer(tab, arguments.question, arguments.nodes, arguments.length)
                take_tabs(tab, arguments.out, size, scheme)
                if (size, scheme) == ("desktop", "light"):
                    take_settings(tab, arguments.out)
                    take_projector(tab, arguments.out)
                tab.close()
        browser.close()


def take_tabs(tab, folder: Path, size: str, scheme: str) -> None:
    for name in tab.evaluate("[...document.querySelectorAll('[role=\"tab\"]')].map(button => button.dataset.tab)"):
        tab.click(f'[data-tab="{name}"]')
        tab.wait_for_timeout(900)
        tab.screenshot(path=folder / f"{name}-{size}-{scheme}.png")
    tab.click('[data-tab="watch"]')


def take_settings(tab, folder: Path) -> None:
    """The settings with one of them changed since the answer."""
    tab.click("#jk-settings")
    tab.fill("#seed input", "5")
    tab.keyboard.press("Tab")
    tab.wait_for_timeout(600)
    tab.screenshot(path=folder / "settings-desktop-light.png")
    tab.click("#settings .toggle-button")


def take_projector(tab, folder: Path) -> None:
    tab.set_viewport_size({"width": 1920, "height": 1080})
    tab.click('[data-tab="race"]')
    tab.get_by_role("button", name="Projector").click()
    tab.wait_for_timeout(600)
    tab.screenshot(path=folder / "race-projector-light.png")


if __name__ == "__main__":
    main()
