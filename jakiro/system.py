"""Memory, folders, complete files, the processor, versions and comma lists. Imports no torch."""

import ctypes
import errno
import functools
import gc
import glob
import hashlib
import math
import os
import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeVar

from jakiro.config import cut_short

Value = TypeVar("Value")
# Characters of another library's message within a message
_MAX_REASON = 200


def bound_waiting() -> None:
    """Let idle threads of GNU OpenMP spin for microseconds before they sleep, unless the user has set a value.

    By default they spin for several milliseconds and keep cores from other programs. OpenMP reads the variable when
    torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether memory ran out: Python's error, or torch's, some of which are recognised by their text only."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def reason_of(error: BaseException) -> str:
    """Return the first sentence of an error in one line, preceded by the type of unusual errors."""
    text = " ".join(str(error).split()).split(". ")[0].rstrip(".,:; ") or "no reason given"
    if not isinstance(error, (OSError, ValueError, ImportError)):
        text = f"{type(error).__name__}: {text}"
    return cut_short(text, _MAX_REASON)


# Up to version 2.12, torch treats a failed capture as active, and every later release of memory fails
_CAPTURES_END_FROM = (2, 13)
_keeps_memory = threading.Event()


def capture_was_refused() -> None:
    """Disable `empty_cache` if this version of torch would treat it as a part of the failed capture."""
    if tuple(map(int, version("torch").split(".")[:2])) < _CAPTURES_END_FROM:
        _keeps_memory.set()


def empty_cache() -> None:
    """Release torch's cached memory of GPUs, if torch is imported."""
    torch = sys.modules.get("torch")
    if torch is not None and not _keeps_memory.is_set():
        torch.cuda.empty_cache()


def release_memory() -> None:
    """Collect garbage and release torch's cached memory of GPUs."""
    gc.collect()
    empty_cache()


def trim_heap() -> None:
    """Return freed memory to the operating system, which glibc would otherwise keep."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection inside the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def within_memory(work: Callable[[], Value], message: str) -> Value:
    """Return the result of `work`.

    Raises:
        ValueError: with this message if memory runs out; all objects of `work` are freed before.
    """
    try:
        return work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # After the handler no traceback refers to the work's tensors
    release_memory()
    raise ValueError(message)


def assets_folder() -> Path:
    """Return the folder of heads, traces, prompts and web files: in the installed package, else next to it."""
    package = Path(__file__).resolve().parent
    installed = package / "assets"
    return installed if installed.is_dir() else package.parent / "assets"


def cache_folder() -> Path:
    """Return the folder of converted models and wheels: JAKIRO_CACHE, or a folder in the user's cache.

    Raises:
        OSError: this user has no home folder.
    """
    folder = os.environ.get("JAKIRO_CACHE")
    if folder:
        return Path(folder).expanduser()
    try:
        from platformdirs import user_cache_path

        return user_cache_path(__package__, appauthor=False)
    except ModuleNotFoundError:
        # Without dependencies: the folder that platformdirs returns on Linux
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / __package__
    except RuntimeError as error:
        raise OSError("This user has no home for a cache; name a folder for it in JAKIRO_CACHE.") from error


# Reasons for which the system rejects a place for writing; other errors have other causes
_REJECTIONS = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT,
}  # fmt: skip
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free space there"),
    **dict.fromkeys((errno.ENOTDIR, errno.EEXIST), "a file has the place of a folder, move it away"),
}
# A temporary file that was not written for so long belongs to a process that was killed
_ABANDONED_SECONDS = 3600


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report errors of writing a file or folder inside the block in one sentence.

    Raises:
        OSError: the disk is full, or the path is not writable: the path, the reason and the remedy.
    """
    try:
        yield
    except Exception as error:
        number = _rejection(error, path)
        if number is None:
            raise
        remedy = _REMEDIES.get(number, "allow this user to write there")
        if path.is_relative_to(cache_folder()):
            remedy += ", or name another folder for the cache in JAKIRO_CACHE"
        raise OSError(f"{path} cannot be written: {os.strerror(number)}; {remedy}.") from error


def _rejection(error: Exception, path: Path) -> int | None:
    """Return the error number if the system rejected this path for writing; None for every other error."""
    if not isinstance(error, OSError):
        # Writers in other languages, such as safetensors', have errors of their own
        return errno.ENOSPC if os.strerror(errno.ENOSPC) in str(error) else None
    named = Path(error.filename) if isinstance(error.filename, str) else path
    # A missing file below the path is an input that could not be read
    is_here = named in path.parents or (path.parent in named.parents and error.errno != errno.ENOENT)
    return error.errno if error.errno in _REJECTIONS and is_here else None


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes `path` when the block ends, so that no reader gets an incomplete file.

    It is in a hidden folder next to `path`, together with all files that a writer adds there, as safetensors does.
    Several processes and threads may write the same file; the last one replaces it. If the block fails, `path` is
    unchanged; files of killed processes are removed after an hour.

    Raises:
        OSError: see `writing`.
    """
    folder = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for old in path.parent.glob(f".{glob.escape(path.name)}.*.*"):
            # Another writer may remove it at the same moment
            with suppress(OSError):
                if time.time() - max(file.stat().st_mtime for file in (old, *old.glob("*"))) > _ABANDONED_SECONDS:
                    shutil.rmtree(old) if old.is_dir() else old.unlink()
        try:
            folder.mkdir(exist_ok=True)
            yield folder / path.name
            (folder / path.name).replace(path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def file_sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a complete file, with text as UTF-8; see `atomic_file`."""
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)


@contextmanager
def errors_as_one_sentence() -> Iterator[None]:
    """End the program with the message of an invalid option or file instead of a traceback."""
    try:
        yield
    except (ValueError, OSError) as error:
        sys.exit(str(error))


@contextmanager
def one_process_at_a_time(work: str) -> Iterator[None]:
    """Run the block while no other process or thread with this cache runs a block of the same name.

    A process that dies releases the lock.

    Raises:
        OSError: the cache cannot be written.
    """
    from filelock import FileLock

    path = cache_folder() / "locks" / work
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def processor_name() -> str:
    """Return the CPU's model, or its architecture."""
    return _first_in_cpuinfo("model name") or platform.processor() or platform.machine()


def processor_features() -> str:
    """Return the CPU's flags; an empty text if they are unknown."""
    return _first_in_cpuinfo("flags", "Features") or ""


def _first_in_cpuinfo(*names: str) -> str | None:
    """Return the first value in /proc/cpuinfo under one of these names; None if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(names)), None)


def num_cores() -> int | None:
    """Return the number of CPU cores that this process may use; a container may allow fewer than the machine has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores if cores is None else usable_threads(cores)


def usable_threads(requested: int) -> int:
    """Return the number of threads, at most as many as the container's share of CPU time keeps busy, rounded up."""
    quota = _cpu_quota()
    return requested if quota is None else max(1, min(requested, math.ceil(quota)))


@functools.cache
def _cpu_quota() -> float | None:
    return cpu_quota(Path("/sys/fs/cgroup"))


def cpu_quota(folder: Path) -> float | None:
    """Return the number of cores that Linux control groups of version 1 or 2 allow; None if there is no limit."""
    try:
        if (folder / "cpu.max").is_file():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            names = ("cpu.cfs_quota_us", "cpu.cfs_period_us")
            quota, period = ((folder / "cpu" / name).read_text(encoding="utf-8") for name in names)
        return int(quota) / int(period) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def package_versions(*packages: str) -> dict[str, str | None]:
    """Return the versions of Python and of these packages; None for a package that is not installed."""
    return {"python": platform.python_version()} | {package: _version_of(package) for package in packages}


def _version_of(package: str) -> str | None:
    if package == "jakiro":
        # A checkout need not be installed
        from jakiro import __version__

        return __version__
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def comma_list(option: str, text: str, kind: Callable[[str], Value], words: tuple[str, ...] = ()) -> list[Value | str]:
    """Parse a comma list of the command line.

    Args:
        option: the option's name, for the error message.
        kind: converts a part; whole numbers (`int`) may also be given as a range "0-9".
        words: parts that are returned as they are.

    Raises:
        ValueError: a part is invalid, or the list is empty.
    """
    values: list[Value | str] = []
    for part in (part.strip() for part in text.split(",")):
        first, dash, last = part.partition("-")
        try:
            if part in words:
                values.append(part)
            elif kind is int and dash and first:
                numbers = range(int(first), int(last) + 1)
                if not numbers:
                    raise ValueError(f"{first} is above {last}")
                values.extend(numbers)
            elif part:
                values.append(kind(part))
        except ValueError as error:
            expected = {int: "whole numbers", float: "numbers"}.get(kind, kind.__name__)
            raise ValueError(f"{option} takes a comma list of {expected}; got {part!r} in it.") from error
    if not values:
        raise ValueError(f"{option} takes a comma list; got {text!r}.")
    return values
