"""The house stays easy to look through: packages that say what they hold, no script that the page forgets.

Which folder may import which is checked by import-linter, see pyproject.toml.
"""

import ast
from pathlib import Path

import pytest

from app.page import benchmark, lesson, web

ROOT = Path(__file__).resolve().parent.parent


def test_every_package_says_what_it_holds():
    packages = sorted(path for place in ("jakiro", "app", "lab") for path in (ROOT / place).rglob("__init__.py"))
    silent = [path for path in packages if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert packages and not silent


@pytest.mark.anywhere
def test_the_page_joins_every_script_and_style_once():
    joined = web.head() + lesson.head() + benchmark.head() + benchmark.script()
    folder = ROOT / "assets" / "web"
    styles = {path: web.tight([path.relative_to(folder)]) for path in folder.rglob("*.css")}
    scripts = {path: f"const {web._variable(path.relative_to(folder).as_posix())} = " for path in folder.rglob("*.js")}
    counts = {path: joined.count(text) for path, text in (scripts | styles).items()}
    assert len(counts) > 80
    assert not {str(path.relative_to(ROOT)): count for path, count in counts.items() if count != 1}
