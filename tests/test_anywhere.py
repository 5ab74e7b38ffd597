"""Tests that read and write files, repeated with a space and an umlaut in every path."""

import shutil
import subprocess

import pytest

from tests.faults import ROOT
from tests.support import run_pytest


def copy_to(folder):
    """Copy the checkout in its current state, without files that git ignores."""
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
    """Use such paths for the checkout, its cache and temporary folders."""
    folder = tmp_path / "für alle"
    copy_to(folder / "jakiro")
    options = ("-m", "anywhere", "--basetemp", folder / "tests")
    run_pytest(folder / "jakiro", *options, JAKIRO_CACHE=str(folder / "cache"))
