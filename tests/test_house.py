"""The house stays easy to look through: short files, small folders, no script that the page forgets.

Which folder may import which is checked by import-linter, see pyproject.toml.
"""

import ast
from pathlib import Path

import pytest

from app.page import benchmark, lesson, web

ROOT = Path(__file__).resolve().parent.parent
PLACES = ("jakiro", "app", "assets/web")
MOST_LINES, MOST_FILES = 400, 11
# One file for each method and for each kind of head
OPEN_FOLDERS = {"jakiro/methods", "jakiro/heads"}


def sources(*places):
    found = [path for place in places for path in (ROOT / place).rglob("*")]
    return [path for path in found if path.suffix in {".py", ".js", ".css", ".c"}]


def holds_code(path):
    """Whether a file is more than a docstring."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return bool(text.strip())
    return any(not isinstance(each, ast.Expr) for each in ast.parse(text).body)


@pytest.mark.parametrize("place", [*PLACES, "tests"])
def test_no_file_is_too_long_to_read_at_once(place):
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in sources(place)}
    assert lines
    assert not {str(path.relative_to(ROOT)): count for path, count in lines.items() if count > MOST_LINES}


def test_no_folder_holds_too_many_files():
    folders = [path.parent.relative_to(ROOT).as_posix() for path in sources(*PLACES) if holds_code(path)]
    counts = {folder: folders.count(folder) for folder in set(folders) - OPEN_FOLDERS}
    assert not {folder: count for folder, count in counts.items() if count > MOST_FILES}


def test_every_package_says_what_it_holds():
    packages = sorted(path for place in ("jakiro", "app") for path in (ROOT / place).rglob("__init__.py"))
    silent = [path for path in packages if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert packages and not silent


def test_the_page_joins_every_script_and_style_once():
    joined = web.early_script() + web.head() + lesson.head() + benchmark.head() + benchmark.script()
    folder = ROOT / "assets" / "web"
    counts = {path: joined.count(web.joined([path.relative_to(folder)])) for path in sources("assets/web")}
    assert not {str(path.relative_to(ROOT)): count for path, count in counts.items() if count != 1}
