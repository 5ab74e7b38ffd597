"""System functions: folders, atomic writes, CPU limits and memory."""

import errno
import os
import platform
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from jakiro.system import (
    atomic_file,
    bound_waiting,
    cache_folder,
    cpu_quota,
    is_out_of_memory,
    num_cores,
    usable_threads,
    write_atomically,
)


def test_out_of_memory_errors_of_python_and_torch_are_recognized():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 50)
    for error in (caught.value, MemoryError(), torch.OutOfMemoryError("CUDA out of memory.")):
        assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("expected all tensors on one device"))


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "numbers.bin"
    write_atomically(path, b"old")
    with pytest.raises(RuntimeError, match="disk"), atomic_file(path) as unfinished:
        unfinished.write_bytes(b"ne")
        raise RuntimeError("disk full")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["numbers.bin"]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "full"), "No space left on device; free space there"),
        (OSError(errno.EROFS, "read-only"), "Read-only file system; allow this user to write there"),
        (OSError(errno.ENOTDIR, "a file"), "Not a directory; a file has the place of a folder, move it away"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "No space left on device; free space there"),
    ],
)
@pytest.mark.parametrize("cached", [False, True])
def test_write_error_names_the_path_and_the_remedy(error, words, cached, tmp_path, monkeypatch):
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path if cached else "/elsewhere"))
    path = tmp_path / "kept" / "numbers.bin"
    with pytest.raises(OSError) as caught, atomic_file(path) as unfinished:
        unfinished.write_bytes(b"ha")
        raise error
    cache = ", or name another folder for the cache in JAKIRO_CACHE" if cached else ""
    assert str(caught.value) == f"{path} cannot be written: {words}{cache}."
    assert not list(path.parent.iterdir())


def test_read_error_is_not_reported_as_a_write_error(tmp_path):
    unreadable = PermissionError(errno.EACCES, "denied", "/elsewhere/secret")
    with pytest.raises(PermissionError) as caught, atomic_file(tmp_path / "copy"):
        raise unreadable
    assert caught.value is unreadable


def test_missing_home_directory_is_reported_with_the_cache_variable(monkeypatch):
    monkeypatch.delenv("JAKIRO_CACHE", raising=False)
    monkeypatch.setattr("platformdirs.user_cache_path", Mock(side_effect=RuntimeError("could not determine the home")))
    with pytest.raises(OSError, match=r"no home for a cache; name a folder for it in JAKIRO_CACHE\.$"):
        cache_folder()


def test_files_of_a_killed_writer_are_removed_later(tmp_path):
    """safetensors writes to a temporary file of its own in the same folder."""
    begin = (
        "import os, sys, pathlib, safetensors.torch, torch, threading, time\n"
        "from jakiro.system import atomic_file\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "def kill():\n"
        "    while not list(path.parent.rglob('.tmp*')): pass\n"
        "    os._exit(9)\n"
        "threading.Thread(target=kill, daemon=True).start()\n"
        "with atomic_file(path) as unfinished:\n"
        "    safetensors.torch.save_file({'a': torch.zeros(50_000_000)}, unfinished)\n"
    )
    assert subprocess.run([sys.executable, "-c", begin, str(tmp_path / "a")], timeout=600).returncode == 9
    leftovers = list(tmp_path.rglob("*"))
    assert [path for path in leftovers if path.name.startswith(".tmp")] and not (tmp_path / "a").exists()
    for path in leftovers:
        os.utime(path, (time.time() - 7200,) * 2)
    write_atomically(tmp_path / "a", b"whole")
    assert [path.name for path in tmp_path.rglob("*")] == ["a"]


def test_last_of_two_concurrent_writers_wins(tmp_path):
    path, both_write = tmp_path / "same.txt", threading.Barrier(2, timeout=600)

    def write(letter):
        with atomic_file(path) as unfinished:
            unfinished.write_text(letter * 1000)
            both_write.wait()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, "ab"))
    assert path.read_text() in ("a" * 1000, "b" * 1000)
    assert [entry.name for entry in tmp_path.iterdir()] == ["same.txt"]


def test_the_cache_follows_the_environment(monkeypatch):
    monkeypatch.setenv("JAKIRO_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("JAKIRO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/jakiro")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "jakiro"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({}, None),
    ],
)
def test_cpu_quota_of_a_container_is_read(files, quota, tmp_path):
    for name, text in files.items():
        write_atomically(tmp_path / name, text)
    assert cpu_quota(tmp_path) == quota


@pytest.mark.parametrize(("quota", "threads"), [(None, 4), (0.5, 1), (1.5, 2), (8.0, 4)])
def test_threads_follow_the_cores_and_the_quota(quota, threads, monkeypatch):
    monkeypatch.setattr("jakiro.system._cpu_quota", lambda: quota)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 5, 7}, raising=False)
    assert usable_threads(4) == num_cores() == threads


def test_spin_count_is_bounded_unless_the_user_sets_it_or_the_wait_policy(monkeypatch):
    for names, count in (({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "ACTIVE"}, None)):
        monkeypatch.setattr(os, "environ", dict(names))
        bound_waiting()
        assert os.environ.get("GOMP_SPINCOUNT") == count


def test_freed_memory_is_returned_to_the_system():
    """Free half a gigabyte in pieces except the last one, so that the C library cannot shrink the heap."""
    if platform.libc_ver()[0] != "glibc":
        pytest.skip("only glibc keeps freed memory")
    program = """
from pathlib import Path
from jakiro.system import trim_heap

def pages():
    return int(Path("/proc/self/statm").read_text().split()[1])

pieces = [bytearray(100_000) for _ in range(5_000)]
held = pages()
last = pieces.pop()
del pieces
kept = pages()
trim_heap()
print(held, kept, pages())
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=600)
    held, retained, remaining = map(int, result.stdout.split())
    assert retained > 0.8 * held and remaining < 0.3 * held
