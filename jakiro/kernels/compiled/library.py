"""Loads the C functions of `csrc/`, which `building.py` builds, and says how they are called.

The system's C compiler makes them once, in a second or two. Where there is none, or anything about it does not work,
passes run on torch's own kernels, in full precision and slower; `why_not` says why, and a compiler that is there and
failed is a warning. JAKIRO_NATIVE=0 asks for that.
"""

import ctypes
import enum
import functools
import logging
import os
import platform
import subprocess
import threading
from pathlib import Path

import torch

from jakiro import starting
from jakiro.kernels.compiled.building import built, compilers
from jakiro.system import usable_threads

_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")

_Pointer, _Long = ctypes.c_void_p, ctypes.c_int64
_BUILDING = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A process forked while another thread builds would never get the lock; the fork waits the second or two instead
    os.register_at_fork(before=_BUILDING.acquire, after_in_parent=_BUILDING.release, after_in_child=_BUILDING.release)
log = logging.getLogger(__name__)


class Kind(enum.IntEnum):
    """Of a matrix' weights, as in products.h."""

    BLOCKS, PAIRS, FLOAT32 = range(3)


class Matrix(ctypes.Structure):
    """As `Matrix` in products.h."""

    _fields_ = [
        ("weights", _Pointer),
        ("bias", _Pointer),
        ("outputs", _Long),
        ("inputs", _Long),
        ("kind", _Long),
        *((name, _Long) for name in ("block", "blocks", "minima", "scale_bytes")),
        ("factors", _Pointer),
    ]


class Layer(ctypes.Structure):
    """As `Layer` in decoder.c."""

    _fields_ = [
        ("query_key_value", Matrix),
        ("output", Matrix),
        ("gate_up", Matrix),
        ("down", Matrix),
        ("input_norm", _Pointer),
        ("middle_norm", _Pointer),
        ("input_eps", ctypes.c_float),
        ("middle_eps", ctypes.c_float),
    ]


class Decoder(ctypes.Structure):
    """As `Decoder` in decoder.c."""

    _fields_ = [
        ("layers", ctypes.POINTER(Layer)),
        *((name, _Long) for name in ("num_layers", "hidden", "inner", "heads", "kv_heads", "head_dim")),
        ("scaling", ctypes.c_float),
    ]


class Pass(ctypes.Structure):
    """As `Pass` in decoder.c."""

    _fields_ = [
        ("decoder", ctypes.POINTER(Decoder)),
        *((name, _Long) for name in ("rows", "length", "capacity")),
        *((name, _Pointer) for name in ("hidden", "cos", "sin", "visible", "cache")),
        *((name, _Pointer) for name in ("joint", "attended", "gated", "memory")),
        ("kept", ctypes.POINTER(_Pointer)),
    ]


class Head(ctypes.Structure):
    """As `Head` in head.c."""

    _fields_ = [
        *((name, Matrix) for name in ("projection", "query_key_value", "output", "router")),
        *((name, ctypes.POINTER(Matrix)) for name in ("read", "write")),
        ("norm", _Pointer),
        ("eps", ctypes.c_float),
        ("scaling", ctypes.c_float),
        *((name, _Long) for name in ("hidden", "inner", "experts", "heads", "kv_heads", "head_dim")),
        *((name, _Long) for name in ("summed", "contrastive")),
    ]


class HeadPass(ctypes.Structure):
    """As `HeadPass` in head.c."""

    _fields_ = [
        ("head", ctypes.POINTER(Head)),
        *((name, _Long) for name in ("rows", "length", "capacity")),
        *((name, _Pointer) for name in ("input", "cos", "sin", "visible", "keys", "values")),
        *((name, _Pointer) for name in ("stream", "joint", "attended", "activity", "outputs", "router")),
        *((name, _Pointer) for name in ("features", "contrast", "memory")),
        ("apart", _Long),
    ]


class Draft(ctypes.Structure):
    """As `Draft` in draft.c."""

    _fields_ = [
        ("head", ctypes.POINTER(Head)),
        ("output", ctypes.POINTER(Matrix)),
        ("embedding", _Pointer),
        ("table", ctypes.POINTER(Matrix)),
        *((name, _Pointer) for name in ("token_ids", "directions", "mean", "angles")),
        ("positions", _Long),
        ("rows", _Pointer),
        *((name, _Long) for name in ("start", "capacity")),
        *((name, _Pointer) for name in ("ids", "features")),
        *((name, _Long) for name in ("committed", "width", "passes", "explored", "contrastive", "kept")),
        ("temperature", ctypes.c_float),
        *((name, _Pointer) for name in ("weights", "noise", "whole", "real")),
    ]


class Filters(ctypes.Structure):
    """As `Filters` in sampling.c."""

    _fields_ = [
        ("top_k", _Long),
        ("top_p", ctypes.c_double),
        ("log_min_p", ctypes.c_float),
        ("seed", ctypes.c_uint64),
        ("first", _Long),
    ]


def num_threads() -> int:
    """Threads of a call: torch's number, or fewer where a container allows less processor time."""
    return usable_threads(torch.get_num_threads())


def address(tensor: torch.Tensor | None) -> int | None:
    """Where a tensor's numbers lie; None for none."""
    return None if tensor is None else tensor.data_ptr()


def library() -> ctypes.CDLL | None:
    """The compiled functions, None where there are none; built by the first call."""
    return _found()[0]


def why_not() -> str | None:
    """Why nothing was compiled, as the end of a sentence; None where it was."""
    return _found()[1]


def begin_building() -> None:
    """Builds the functions in a thread of its own, where that is still to be done, while the caller does other work."""
    threading.Thread(target=library, name="compile", daemon=True).start()


@functools.cache
def _found() -> tuple[ctypes.CDLL | None, str | None]:
    if not _BUILDING.acquire(blocking=False):
        # Another thread builds already; how long this one waits for it is a step of the start
        with starting.step(starting.COMPILE):
            _BUILDING.acquire()
    try:
        return _found_once()
    finally:
        _BUILDING.release()


@functools.cache
def _found_once() -> tuple[ctypes.CDLL | None, str | None]:
    if os.environ.get("JAKIRO_NATIVE") == "0":
        return None, "JAKIRO_NATIVE is 0"
    if platform.system() != "Linux":
        return None, f"only Linux is supported, this is {platform.system()}"
    found = list(compilers())
    if not found:
        return None, "no C compiler was found; install gcc, or name one in CC"
    failure = ""
    for compiler in found:
        try:
            return _loaded(built(compiler)), None
        except (OSError, AttributeError, subprocess.SubprocessError) as error:
            detail = getattr(error, "stderr", None) or str(error)
            # Of a compiler that took too long, what it wrote comes as bytes
            detail = detail.decode(errors="replace") if isinstance(detail, bytes) else detail
            failure = f"{' '.join(compiler)} did not build it ({' '.join(detail.split())[:300]})"
    log.warning("Decoding without compiled code, about 40 %% slower: %s.", failure)
    return None, failure


def _loaded(path: Path) -> ctypes.CDLL:
    """The library, with torch's OpenMP as its threads.

    Raises:
        AttributeError: torch computes with another kind of threads.
    """
    library = ctypes.CDLL(str(path))
    give_threads(library)
    sizes = (
        "panel",
        "most_candidates",
        "linear_floats",
        "decoder_floats",
        "head_floats",
        "grow_bytes",
        "verify_bytes",
    )
    for name in (*sizes, "unpack", "grow", "verify"):
        getattr(library, f"jakiro_{name}").restype = _Long
    library.jakiro_decoder_floats.argtypes = [ctypes.POINTER(Decoder), _Long, _Long]
    library.jakiro_head_floats.argtypes = [ctypes.POINTER(Head), _Long, _Long]
    library.jakiro_linear_floats.argtypes = [ctypes.POINTER(Matrix), _Long]
    library.jakiro_linear.argtypes = [ctypes.POINTER(Matrix), *[_Pointer] * 3, _Long, _Long]
    library.jakiro_rows.argtypes = [ctypes.POINTER(Matrix), _Pointer, _Long, _Pointer]
    library.jakiro_unpack.argtypes = [ctypes.POINTER(Matrix), _Long, _Long, _Pointer, _Pointer, _Long, _Long]
    library.jakiro_weigh.argtypes, library.jakiro_weigh.restype = [_Pointer, _Long], ctypes.c_double
    library.jakiro_noise.argtypes = [ctypes.c_uint64, _Long, _Long, _Pointer, _Long, _Pointer, _Long]
    library.jakiro_verify_bytes.argtypes = [_Long] * 3
    library.jakiro_verify.argtypes = [
        *[_Pointer, _Long, _Long, ctypes.c_float, _Pointer, ctypes.POINTER(Filters)],
        *[_Pointer] * 8,
        _Long,
    ]
    library.jakiro_best.argtypes = [
        *[_Pointer, _Long, _Long, ctypes.c_float, _Pointer, ctypes.c_float, _Long],
        *[_Pointer, _Pointer, _Pointer, _Long],
    ]
    library.jakiro_best_of_mixture.argtypes = [
        *[_Pointer, _Pointer, _Long, _Long, _Long, ctypes.c_float, _Pointer, ctypes.c_float, _Long],
        *[_Pointer] * 6,
        _Long,
    ]
    library.jakiro_decode.argtypes = [ctypes.POINTER(Pass), _Long]
    library.jakiro_draft.argtypes = [ctypes.POINTER(HeadPass), _Long]
    library.jakiro_grow_bytes.argtypes = [ctypes.POINTER(Draft), _Long]
    library.jakiro_grow.argtypes = [ctypes.POINTER(Draft), _Pointer, _Long]
    return library


def give_threads(library: ctypes.CDLL) -> None:
    """Has functions of `threads.c` run in torch's OpenMP threads.

    Raises:
        AttributeError: torch computes with another kind of threads.
    """
    library.jakiro_threads(*(ctypes.cast(getattr(_openmp(), name), _Pointer) for name in _OPENMP))


@functools.cache
def _openmp() -> ctypes.CDLL:
    """The OpenMP that torch brings, whatever its wheel calls the file; it is loaded already."""
    package = Path(torch.__file__).parent
    folders = (package / "lib", package.parent / "torch.libs")
    path = next((str(path) for folder in folders for path in sorted(folder.glob("libgomp*"))), None)
    return ctypes.CDLL(path)
