"""Wherever a checkout lies: what reads and writes files is tested once more where paths have a space and an umlaut."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.faults import ROOT


def copy_to(folder):
    """Copies the checkout as it is now, without what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


@pytest.mark.rare
def test_a_checkout_works_where_paths_have_a_space_and_an_umlaut(tmp_path):
    """The checkout, its cache, and the folders that tests are given."""
    folder = tmp_path / "für alle"
    copy_to(folder / "jakiro")
    values = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    options = ("-q", "-m", "anywhere", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", folder / "tests")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=folder / "jakiro",
        env=values | {"JAKIRO_CACHE": str(folder / "cache")},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
