"""The page includes every script and style sheet once."""

from pathlib import Path

import pytest

from app.page import benchmark, lesson, web

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.anywhere
def test_page_includes_every_script_and_style_once():
    joined = web.head() + lesson.head() + benchmark.head() + benchmark.script()
    folder = ROOT / "assets" / "web"
    styles = {path: web.tight([path.relative_to(folder)]) for path in folder.rglob("*.css")}
    scripts = {path: f"const {web._variable(path.relative_to(folder).as_posix())} = " for path in folder.rglob("*.js")}
    counts = {path: joined.count(text) for path, text in (scripts | styles).items()}
    assert len(scripts) > 50 and len(styles) > 10
    assert not {str(path.relative_to(ROOT)): count for path, count in counts.items() if count != 1}
