"""What is around a program: memory, folders, whole files, the processor, versions, comma lists. Imports no torch."""

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
# Letters of what other people's code says, as a part of a sentence
_LONGEST_REASON = 200


def bound_waiting() -> None:
    """Lets GNU OpenMP's idle threads spin for some microseconds before they sleep, unless the user has set it.

    Otherwise they spin for several milliseconds, and a neighbour, a server or a browser waits for the core. OpenMP
    reads this once, when torch is imported.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def is_out_of_memory(error: BaseException) -> bool:
    """Python's own error, and torch's for GPUs and CPUs, of which some name it in their text only."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "out of memory" in text or "can't allocate memory" in text


def reason_of(error: BaseException) -> str:
    """The first sentence of an error, on one line; what only a program says is preceded by its kind."""
    text = " ".join(str(error).split()).split(". ")[0].rstrip(".,:; ") or "no reason given"
    if not isinstance(error, (OSError, ValueError, ImportError)):
        text = f"{type(error).__name__}: {text}"
    return cut_short(text, _LONGEST_REASON)


# Up to 2.12, torch takes a capture that failed for one that goes on, and giving back memory fails ever after
_CAPTURES_END_FROM = (2, 13)
_keeps_memory = threading.Event()


def capture_was_refused() -> None:
    """Lets `empty_cache` do nothing from now on, where torch would take that for part of the capture."""
    if tuple(map(int, version("torch").split(".")[:2])) < _CAPTURES_END_FROM:
        _keeps_memory.set()


def empty_cache() -> None:
    """Gives what torch only keeps for later back to a GPU, where it uses one."""
    torch = sys.modules.get("torch")
    if torch is not None and not _keeps_memory.is_set():
        torch.cuda.empty_cache()


def free_memory() -> None:
    """Gives unused memory back to the device."""
    gc.collect()
    empty_cache()


@contextmanager
def no_collection() -> Iterator[None]:
    """Inside this block, no garbage is looked for."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def within_memory(work: Callable[[], Value], sentence: str) -> Value:
    """What the work returns.

    Raises:
        ValueError: with this sentence, where memory runs out; all that the work had made is freed before.
    """
    try:
        return work()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
    # After the handler, where no traceback holds the work's tensors any more
    free_memory()
    raise ValueError(sentence)


def assets_folder() -> Path:
    """The folder of heads, traces, prompts and web files: inside an installed package, beside it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "assets"
    return installed if installed.is_dir() else package.parent / "assets"


def cache_folder() -> Path:
    """Where converted models and wheels live: JAKIRO_CACHE, else the user's cache.

    Raises:
        OSError: this user has no home.
    """
    own = os.environ.get("JAKIRO_CACHE")
    if own:
        return Path(own).expanduser()
    try:
        from platformdirs import user_cache_path

        return user_cache_path(__package__, appauthor=False)
    except ModuleNotFoundError:
        # A bare machine: where platformdirs says it is on Linux
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / __package__
    except RuntimeError as error:
        raise OSError("This user has no home for a cache; name a folder for it in JAKIRO_CACHE.") from error


# Why the system refuses to write; what else fails is no matter of the place
_REFUSALS = {
    errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.ENOENT,
}  # fmt: skip
_FULL, _IN_THE_WAY = {errno.ENOSPC, errno.EDQUOT}, {errno.ENOTDIR, errno.EEXIST}
# A file left unwritten for so long belongs to a process that was killed
_ABANDONED_SECONDS = 3600


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Around whatever writes a file or folder: a place that takes nothing is said in one sentence.

    Raises:
        OSError: the disk is full, or the place may not be written: which, why, what to do.
    """
    try:
        yield
    except Exception as error:
        number = _refusal(error, path)
        if number is None:
            raise
        cure = "free space there" if number in _FULL else "allow this user to write there"
        if number in _IN_THE_WAY:
            cure = "a file stands where a folder is needed, move it away"
        if path.is_relative_to(cache_folder()):
            cure += ", or name another folder for the cache in JAKIRO_CACHE"
        raise OSError(f"{path} cannot be written: {os.strerror(number)}; {cure}.") from error


def _refusal(error: Exception, path: Path) -> int | None:
    """The system's number for a place that takes nothing; None for every other error."""
    if not isinstance(error, OSError):
        # Writers in other languages, as safetensors', raise errors of their own
        return errno.ENOSPC if os.strerror(errno.ENOSPC) in str(error) else None
    named = Path(error.filename) if isinstance(error.filename, str) else path
    # What is missing below the place is something else that was to be read
    here = named in path.parents or (path.parent in named.parents and error.errno != errno.ENOENT)
    return error.errno if error.errno in _REFUSALS and here else None


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A path to write to that becomes `path` when the block ends, so that nobody ever reads half a file.

    It lies in a hidden folder of its own beside `path`, whose folder is made if missing, so that what a writer puts
    next to its file, as safetensors does, goes with it. Several processes and threads may write the same file; the last
    writer wins. A block that fails leaves `path` as it was; what a killed process left goes after an hour.

    Raises:
        OSError: as `writing`.
    """
    own = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.*"):
            # Another writer may tidy up at the same moment
            with suppress(OSError):
                if time.time() - max(each.stat().st_mtime for each in (left, *left.glob("*"))) > _ABANDONED_SECONDS:
                    shutil.rmtree(left) if left.is_dir() else left.unlink()
        try:
            own.mkdir(exist_ok=True)
            yield own / path.name
            (own / path.name).replace(path)
        finally:
            shutil.rmtree(own, ignore_errors=True)


def file_sha256(path: str | Path) -> str:
    """SHA-256 of a file, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_atomically(path: Path, data: bytes | str) -> None:
    """Writes a whole file, text as UTF-8; see `atomic_file`."""
    with atomic_file(path) as unfinished:
        unfinished.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)


@contextmanager
def errors_as_one_sentence() -> Iterator[None]:
    """Ends the program with the library's sentence, in place of a traceback, where an option or a file is wrong."""
    try:
        yield
    except (ValueError, OSError) as error:
        sys.exit(str(error))


@contextmanager
def one_process_at_a_time(work: str) -> Iterator[None]:
    """Of all processes and threads that use this cache, one at a time runs such a block for the same work.

    A process that dies lets the others go on.

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


def give_back_memory() -> None:
    """Gives what was freed back to the system where the C library would keep it (glibc), before more is needed."""
    if sys.platform == "linux" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        trim(0)


def processor_name() -> str:
    """The CPU's model, else its architecture."""
    return _first_in_cpuinfo("model name") or platform.processor() or platform.machine()


def processor_features() -> str:
    """CPU flags; empty if unknown."""
    return _first_in_cpuinfo("flags", "Features") or ""


def _first_in_cpuinfo(*names: str) -> str | None:
    """The first value in /proc/cpuinfo under one of these names; None if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(names)), None)


def num_cores() -> int | None:
    """CPU cores that this process may use; a container may allow fewer than the machine has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores if cores is None else usable_threads(cores)


def usable_threads(wanted: int) -> int:
    """So many threads, or as many as the container's share of processor time keeps busy, rounded up."""
    quota = _cpu_quota()
    return wanted if quota is None else max(1, min(wanted, math.ceil(quota)))


@functools.cache
def _cpu_quota() -> float | None:
    return cpu_quota(Path("/sys/fs/cgroup"))


def cpu_quota(folder: Path) -> float | None:
    """How many cores' time Linux control groups allow, by the files of version 2 or 1; None for no limit."""
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
    """The versions of Python and of these packages; None for a package that is not installed."""
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


def _whole_numbers(first: int, last: int) -> range:
    if first > last:
        raise ValueError(f"{first} is above {last}")
    return range(first, last + 1)


def comma_list(option: str, text: str, kind: Callable[[str], Value], words: tuple[str, ...] = ()) -> list[Value | str]:
    """The values of a comma list on the command line.

    Args:
        option: the option's name, for the error message.
        kind: makes a value from a part; whole numbers (`int`) may also be given as a range "0-9".
        words: parts that are returned as they are.

    Raises:
        ValueError: a part is none of these, or the list is empty.
    """
    values: list[Value | str] = []
    for part in (part.strip() for part in text.split(",")):
        first, dash, last = part.partition("-")
        try:
            if part in words:
                values.append(part)
            elif kind is int and dash and first:
                values.extend(_whole_numbers(int(first), int(last)))
            elif part:
                values.append(kind(part))
        except ValueError as error:
            wanted = {int: "whole numbers", float: "numbers"}.get(kind, kind.__name__)
            raise ValueError(f"{option} takes a comma list of {wanted}; “{part}” is none.") from error
    if not values:
        raise ValueError(f"{option} takes a comma list; you gave {text!r}.")
    return values
