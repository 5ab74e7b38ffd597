"""What is compiled is kept where nobody else can put a library in its place; what was changed there is built anew."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from jakiro.backends.native import building
from jakiro.backends.native import library as compiled

# Writes its own arguments where `-o` says, and counts its calls
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
def test_what_was_built_once_is_taken_from_the_cache_and_other_flags_build_anew(compiler, monkeypatch, caplog):
    made = building.built(compiler)
    assert building.built(compiler) == made and calls(compiler) == 1
    monkeypatch.setattr(building, "_FLAGS", ("-O1", *building._FLAGS[1:]))
    assert building.built(compiler) != made and calls(compiler) == 2
    assert not caplog.messages


def test_only_the_user_may_enter_the_folder_of_libraries(compiler, tmp_path):
    folder = tmp_path / "cache" / "native"
    folder.mkdir(parents=True, mode=0o777)
    folder.chmod(0o777)
    building.built(compiler)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["planted", "a link", "another checksum"])
def test_a_planted_or_damaged_library_is_built_anew_with_a_sentence(compiler, damage, tmp_path, caplog):
    made = building.built(compiler)
    kept = made.with_suffix(".sha256")
    if damage == "planted":
        made.write_bytes(b"something else")
    elif damage == "a link":
        elsewhere = tmp_path / "elsewhere"
        made.rename(elsewhere)
        made.symlink_to(elsewhere)
    else:
        kept.write_text("0" * 64)
    with caplog.at_level(logging.WARNING):
        assert building.built(compiler) == made
    assert caplog.messages == [f"Compiled code in {made} does not match its checksum; rebuilding it."]
    assert made.read_bytes() == b"library\n" and not made.is_symlink() and calls(compiler) == 2
    assert building.built(compiler) == made and calls(compiler) == 2


def test_a_folder_that_is_a_link_or_another_user_s_is_refused(compiler, tmp_path, monkeypatch):
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


def test_what_a_killed_compiler_left_is_removed(compiler, tmp_path):
    folder = tmp_path / "cache" / "native"
    folder.mkdir(parents=True)
    left = folder / ".0123456789abcdef.so.77.77"
    left.mkdir()
    (left / "0123456789abcdef.so").write_bytes(b"half a lib")
    made = building.built(compiler)
    assert sorted(path.name for path in folder.iterdir()) == sorted((made.name, f"{made.stem}.sha256"))


def test_a_compiler_that_is_there_and_does_not_work_is_said(compiler, tmp_path, monkeypatch, caplog):
    """Passes run slower then, which nobody would see."""
    (tmp_path / "cache").write_text("")
    monkeypatch.delenv("JAKIRO_NATIVE", raising=False)
    monkeypatch.setattr(compiled, "compilers", lambda: iter([compiler]))
    found, why = compiled._load_once.__wrapped__()
    assert found is None and "a file stands where a folder is needed" in why
    assert caplog.messages == [f"Decoding without compiled code, about 40 % slower: {why}."]


@pytest.mark.parametrize("half_written", [False, True])
def test_of_two_that_start_together_one_builds(compiler, half_written):
    """Threads here; that processes wait for one another too, says tests/test_progress.py."""
    if half_written:
        building.built(compiler).write_bytes(b"lib")
    Path(compiler[0]).write_text(COMPILER.replace("echo built", "sleep 0.3; echo built"))
    with ThreadPoolExecutor(2) as threads:
        made = [each.result() for each in [threads.submit(building.built, compiler) for _ in range(2)]]
    assert [path.read_text() for path in made] == ["library\n"] * 2 and calls(compiler) == 1 + half_written
