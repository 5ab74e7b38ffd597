"""A kind of head is one folder and its registration: a copy of the package without one of them works."""

import shutil
from pathlib import Path

import pytest

from tests.support import run_pytest

ROOT = Path(__file__).resolve().parents[1]
KIND = "medusa"
# Other files of the package that name it: the registries of kinds and methods, and the file names of its weights, which
# are read before torch is imported
NAMED_IN = {
    "jakiro/heads/kinds.py",
    "jakiro/drafters/registry.py",
    "jakiro/heads/config.py",
}
# Tests that kinds share, tests of other kinds, and tests of all registered methods
SUBSET = (
    "tests/heads/test_checkpoint.py",
    "tests/heads/test_config.py",
    "tests/heads/test_eagle3.py",
    "tests/heads/test_export.py",
    "tests/heads/test_foreign.py",
    "tests/drafters/test_conformance.py",
    "tests/training/test_parallel.py",
    "tests/training/test_trainer.py",
)


def test_only_registries_name_the_kind():
    files = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "jakiro").rglob("*.py")
        if KIND in path.read_text(encoding="utf-8").lower()
    }
    own_files = {name for name in files if name.startswith((f"jakiro/heads/{KIND}/", f"jakiro/drafters/{KIND}.py"))}
    assert own_files and files - own_files == NAMED_IN


@pytest.mark.rare
def test_the_package_works_without_the_kind(tmp_path):
    for name in ("jakiro", "tests", "assets"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "app"):
        (tmp_path / name).symlink_to(ROOT / name)
    shutil.rmtree(tmp_path / "jakiro" / "heads" / KIND)
    (tmp_path / "jakiro" / "drafters" / f"{KIND}.py").unlink()
    for name in ("jakiro/heads/kinds.py", "jakiro/drafters/registry.py"):
        path = tmp_path / name
        remaining = [line for line in path.read_text(encoding="utf-8").splitlines() if KIND not in line.lower()]
        path.write_text("\n".join(remaining) + "\n", encoding="utf-8")
    variables = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    assert KIND not in run_pytest(tmp_path, "-m", "not rare", *SUBSET, **variables)
