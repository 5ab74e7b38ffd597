"""Compiled libraries are cached in a private folder and rebuilt if a file there was changed."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jakiro.backends.native import building
from jakiro.backends.native import library as compiled

# Writes to the path after `-o`, and counts its calls
COMPILER = """#!/bin/sh
[ "$1" = --version ] && { echo 1.0; exit; }
echo built >> "$0.calls"
while [ "$1" != -o ]; do shift; done
echo library > "$2"
"""


@pytest.fixture
def compiler(own_cache, tmp_path):
    path = tmp_path / "cc"
    path.write_text(COMPILER)
    path.chmod(0o755)
    return [str(path)]


def calls(compiler) -> int:
    return len(open(f"{compiler[0]}.calls").readlines())


@pytest.mark.anywhere
def test_library_is_cached_and_rebuilt_with_other_flags(compiler, monkeypatch, caplog):
    library = building.built(compiler)
    assert building.built(compiler) == library and calls(compiler) == 1
    monkeypatch.setattr(building, "_FLAGS", ("-O1", *building._FLAGS[1:]))
    assert building.built(compiler) != library and calls(compiler) == 2
    assert not caplog.messages


def test_only_the_user_can_access_the_library_folder(compiler, tmp_path):
    folder = tmp_path / "cache" / "native"
    folder.mkdir(parents=True, mode=0o777)
    folder.chmod(0o777)
    building.built(compiler)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["planted", "a link", "another checksum"])
def test_planted_or_damaged_library_is_rebuilt_with_a_warning(compiler, damage, tmp_path, caplog):
    library = building.built(compiler)
    checksum = library.with_suffix(".sha256")
    if damage == "planted":
        library.write_bytes(b"something else")
    elif damage == "a link":
        elsewhere = tmp_path / "elsewhere"
        library.rename(elsewhere)
        library.symlink_to(elsewhere)
    else:
        checksum.write_text("0" * 64)
    with caplog.at_level(logging.WARNING):
        assert building.built(compiler) == library
    assert caplog.messages == [f"Compiled code in {library} does not match its checksum; rebuilding it."]
    assert library.read_bytes() == b"library\n" and not library.is_symlink() and calls(compiler) == 2
    assert building.built(compiler) == library and calls(compiler) == 2


def test_folder_that_is_a_link_or_belongs_to_another_user_is_refused(compiler, tmp_path, monkeypatch):
    folder = tmp_path / "cache" / "native"
    folder.parent.mkdir()
    (tmp_path / "elsewhere").mkdir()
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="native is a link or belongs to another user; remove it"):
        building.built(compiler)
    folder.unlink()
    folder.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.raises(OSError, match="belongs to another user"):
        building.built(compiler)
    assert not list(folder.iterdir())


def test_files_of_a_killed_compiler_are_removed(compiler, tmp_path):
    folder = tmp_path / "cache" / "native"
    folder.mkdir(parents=True)
    leftover = folder / ".0123456789abcdef.so.77.77"
    leftover.mkdir()
    (leftover / "0123456789abcdef.so").write_bytes(b"half a lib")
    library = building.built(compiler)
    assert sorted(path.name for path in folder.iterdir()) == sorted((library.name, f"{library.stem}.sha256"))


def test_compiler_that_fails_is_reported(compiler, tmp_path, monkeypatch, caplog):
    """Passes are slower without compiled code, which a user would not notice otherwise."""
    (tmp_path / "cache").write_text("")
    monkeypatch.delenv("JAKIRO_NATIVE", raising=False)
    monkeypatch.setattr(compiled, "compilers", lambda: iter([compiler]))
    library, why = compiled._load_once.__wrapped__()
    assert library is None and "a file has the place of a folder" in why
    assert caplog.messages == [f"Decoding without compiled code, about 40 % slower: {why}."]


@pytest.mark.parametrize("half_written", [False, True])
def test_concurrent_starts_build_once(compiler, half_written):
    """Uses threads; tests/test_progress.py tests processes that wait for each other."""
    if half_written:
        building.built(compiler).write_bytes(b"lib")
    Path(compiler[0]).write_text(COMPILER.replace("echo built", "sleep 0.3; echo built"))
    with ThreadPoolExecutor(2) as threads:
        libraries = [future.result() for future in [threads.submit(building.built, compiler) for _ in range(2)]]
    assert [path.read_text() for path in libraries] == ["library\n"] * 2 and calls(compiler) == 1 + half_written
