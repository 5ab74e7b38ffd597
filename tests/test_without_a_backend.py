"""A backend is one folder and one line in a registry: a copy of the package without both passes the same tests."""

import re
import shutil
from pathlib import Path

import pytest

from tests.support import run_pytest

ROOT = Path(__file__).resolve().parents[1]
# By folder of `jakiro/backends`: the file with its registry line, and text that only this line contains
BACKENDS = {
    "native": ("jakiro/ops/kernels.py", "jakiro.backends.native.kernels"),
    "cuda_graphs": ("jakiro/backends/select.py", "jakiro.backends.cuda_graphs.backend"),
}
# Tests of results that do not depend on the backend: with it, without it, and with it switched off
SUBSET = (
    "tests/core/test_sampling.py",
    "tests/core/test_verify.py",
    "tests/drafters/test_tree_growth.py",
    "tests/heads/test_foreign.py",
    "tests/models/test_target.py",
    "tests/ops/test_linear.py",
    "tests/test_generator.py",
)
VARIABLES = {"PYTHONDONTWRITEBYTECODE": "1", "JAKIRO_NATIVE": "0"}


def copy_of_the_tree(folder: Path) -> Path:
    for name in ("jakiro", "tests", "assets"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "app"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def run_subset(folder: Path) -> set[str]:
    """Return the ids of the tests that passed in a folder."""
    output = run_pytest(folder, "-m", "not rare", "-rA", *SUBSET, PYTHONPATH=str(folder), **VARIABLES)
    return set(re.findall(r"^PASSED (\S+)", output, re.MULTILINE))


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_line_of_the_package_names_the_backend(backend):
    file, line = BACKENDS[backend]
    folder = ROOT / "jakiro" / "backends" / backend
    imports = [
        (path.relative_to(ROOT).as_posix(), text)
        for path in (ROOT / "jakiro").rglob("*.py")
        if folder not in path.parents
        for text in path.read_text(encoding="utf-8").splitlines()
        if re.search(rf'(import|"jakiro).*backends\.{backend}', text)
    ]
    assert imports == [(file, f'    "{line}",')]


@pytest.mark.rare
@pytest.mark.parametrize("backend", BACKENDS)
def test_without_the_backend_the_same_tests_pass(backend, tmp_path):
    file, line = BACKENDS[backend]
    expected = run_subset(copy_of_the_tree(tmp_path / "whole"))
    copy = copy_of_the_tree(tmp_path / "without")
    shutil.rmtree(copy / "jakiro" / "backends" / backend)
    lines = (copy / file).read_text(encoding="utf-8").splitlines()
    remaining = [text for text in lines if line not in text]
    assert len(remaining) == len(lines) - 1
    (copy / file).write_text("\n".join(remaining) + "\n", encoding="utf-8")
    assert len(expected) > 100
    assert run_subset(copy) == expected
