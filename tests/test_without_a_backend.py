"""A backend is one folder: a copy of the package without it and without its registry line works."""

import shutil
from pathlib import Path

import pytest

from tests.support import pytest_apart

ROOT = Path(__file__).resolve().parents[1]
BACKEND = "cuda_graphs"
SUBSET = (
    "tests/test_generator.py",
    "tests/backends/test_step_clock.py",
    "tests/decode/test_stop.py",
    "tests/decode/test_tree_budget.py",
    "tests/loading/test_draft_model.py",
)


def test_no_other_package_imports_the_backend():
    for path in (ROOT / "jakiro").rglob("*.py"):
        if BACKEND not in path.parts:
            assert f"from jakiro.backends.{BACKEND}" not in path.read_text(encoding="utf-8"), path


@pytest.mark.rare
def test_the_package_works_without_the_backend(tmp_path):
    for name in ("jakiro", "tests", "assets"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "app"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.rmtree(tmp_path / "jakiro" / "backends" / BACKEND)
    registry = tmp_path / "jakiro" / "backends" / "select.py"
    line = f'BACKENDS = ("jakiro.backends.{BACKEND}.backend",)'
    text = registry.read_text(encoding="utf-8")
    assert text.count(line) == 1
    registry.write_text(text.replace(line, "BACKENDS = ()"), encoding="utf-8")
    variables = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    pytest_apart(tmp_path, "-m", "not rare", *SUBSET, **variables)
