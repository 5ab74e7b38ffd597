"""The committed bundle of the page contains every script and style sheet, as it is now.

Which folder may import which, and that packages state what they contain, linters check, see pyproject.toml.
"""

import graphlib
import hashlib
import json
import posixpath
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
WEB = ROOT / "assets" / "web"
MANIFEST = json.loads((ROOT / "assets" / "bundle" / "manifest.json").read_text(encoding="utf-8"))


@pytest.mark.anywhere
def test_the_bundle_contains_every_script_and_style_once():
    counts = Counter(name for names in MANIFEST["contents"].values() for name in names)
    expected = {path.relative_to(WEB).as_posix() for path in WEB.rglob("*") if path.suffix in (".js", ".css")}
    assert len(expected) > 60 and counts == dict.fromkeys(expected, 1)


@pytest.mark.anywhere
def test_the_bundle_was_built_from_these_files():
    names = sorted(path.relative_to(WEB).as_posix() for path in WEB.rglob("*") if path.is_file())
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name}\0".encode() + (WEB / name).read_bytes())
    assert digest.hexdigest() == MANIFEST["sources"], "assets/web has changed: run npm run build"


@pytest.mark.anywhere
def test_no_two_modules_import_each_other():
    imports = {
        name: [posixpath.normpath(posixpath.join(posixpath.dirname(name), path)) for path in targets]
        for path in WEB.rglob("*.js")
        for name in [path.relative_to(WEB).as_posix()]
        for targets in [re.findall(r'^(?:import|\}) .*from "(\.[^"]+)";$', path.read_text("utf-8"), re.MULTILINE)]
    }
    assert sum(map(len, imports.values())) > 100
    assert len(list(graphlib.TopologicalSorter(imports).static_order())) == len(imports)
