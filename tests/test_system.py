"""Folders, files that are never read half written, and what packages are installed."""

import platform
import threading
from pathlib import Path

import pytest

import jakiro
from jakiro.system import atomic_file, cache_folder, package_versions, write_atomically


def test_a_file_is_written_whole_and_its_folder_made(tmp_path):
    path = tmp_path / "made" / "notes.txt"
    write_atomically(path, "Größe\n")
    assert path.read_bytes() == "Größe\n".encode()
    write_atomically(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [each.name for each in path.parent.iterdir()] == ["notes.txt"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "numbers.bin"
    write_atomically(path, b"old")
    with pytest.raises(RuntimeError, match="disk"), atomic_file(path) as unfinished:
        unfinished.write_bytes(b"ne")
        raise RuntimeError("disk full")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["numbers.bin"]


def test_of_threads_that_write_the_same_file_the_last_one_wins(tmp_path):
    path, both_write = tmp_path / "same.txt", threading.Barrier(2, timeout=10)

    def write(text):
        with atomic_file(path) as unfinished:
            unfinished.write_text(text)
            both_write.wait()

    threads = [threading.Thread(target=write, args=(text * 1000,)) for text in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() in ("a" * 1000, "b" * 1000)
    assert [each.name for each in tmp_path.iterdir()] == ["same.txt"]


def test_the_cache_follows_the_environment(monkeypatch):
    monkeypatch.setenv("JAKIRO_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("JAKIRO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/jakiro")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "jakiro"


def test_versions_are_named_also_of_what_is_not_installed():
    versions = package_versions("jakiro", "torch", "no-such-package")
    assert list(versions) == ["python", "jakiro", "torch", "no-such-package"]
    assert versions["python"] == platform.python_version()
    assert versions["jakiro"] == jakiro.__version__
    assert versions["torch"] and versions["no-such-package"] is None
