"""Compilation of the C files in `csrc/` into a cache folder that only the user can write."""

import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from jakiro import progress
from jakiro.system import (
    atomic_file,
    cache_folder,
    file_sha256,
    one_process_at_a_time,
    processor_features,
    processor_name,
    write_atomically,
    writing,
)

_FOLDER = Path(__file__).parent / "csrc"
_COMPILERS = ("cc", "gcc", "clang")
# No automatic contraction: the source fuses products and sums explicitly, see `fused` in vectors.h
_FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-ffp-contract=off", "-shared", "-fPIC")
_TIMEOUT_SECONDS = 120
log = logging.getLogger(__name__)


def compilers() -> Iterator[list[str]]:
    """Yield the path of each compiler with the options in CC: "gcc -march=x86-64-v3" builds for older processors."""
    for words in (os.environ.get("CC", "").split(), *([name] for name in _COMPILERS)):
        path = shutil.which(words[0]) if words else None
        if path is not None:
            yield [path, *words[1:]]


def built(compiler: list[str]) -> Path:
    """Return the shared library for this source, compiler and processor; build it unless the cache has it unchanged.

    Raises:
        OSError: the cache folder is a link, belongs to another user, or cannot be written.
        subprocess.SubprocessError: the compiler failed.
    """
    native = "-march=native" if platform.machine() in {"x86_64", "AMD64"} else "-mcpu=native"
    command = [compiler[0], *_FLAGS, native, *compiler[1:]]
    version = subprocess.run(
        [compiler[0], "--version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
    ).stdout
    files = sorted([*_FOLDER.glob("*.c"), *_FOLDER.glob("*.h")])
    processor = (processor_name(), processor_features())
    described = "\0".join([*(file.read_text(encoding="utf-8") for file in files), *command, version, *processor])
    path = _private_folder() / f"{hashlib.sha256(described.encode()).hexdigest()[:16]}.so"
    if _is_unchanged(path):
        return path
    with progress.step(progress.COMPILE), one_process_at_a_time("compile"):
        # Another process may have built it while this one waited for the lock
        if not _is_unchanged(path):
            _build([*command, *(str(file) for file in files if file.suffix == ".c")], path)
    return path


def _build(command: list[str], path: Path) -> None:
    if path.exists() or path.is_symlink():
        log.warning("Compiled code in %s does not match its checksum; rebuilding it.", path)
    # No other process compiles now, so these files belong to processes that were killed
    for leftover in path.parent.glob(".*.so.*"):
        shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()
    with atomic_file(path) as unfinished:
        subprocess.run(
            [*command, "-o", str(unfinished)], check=True, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
        )
        write_atomically(_checksum_of(path), file_sha256(unfinished))


def _private_folder() -> Path:
    """Return the cache folder for libraries, which only this user can access.

    Raises:
        OSError: it is a link or belongs to another user.
    """
    folder = cache_folder() / "native"
    with writing(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise OSError(f"{folder} is a link or belongs to another user; remove it")
    if about.st_mode & 0o077:
        folder.chmod(0o700)
    return folder


def _is_unchanged(path: Path) -> bool:
    """Return whether a library is a regular file of this user and matches the checksum from its build."""
    try:
        about = path.lstat()
        checksum = _checksum_of(path).read_text(encoding="ascii")
        return stat.S_ISREG(about.st_mode) and about.st_uid == os.getuid() and checksum == file_sha256(path)
    except (OSError, UnicodeDecodeError):
        return False


def _checksum_of(path: Path) -> Path:
    return path.with_suffix(".sha256")
