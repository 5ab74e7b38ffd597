"""Loading of the C functions in `csrc/`, which `building.py` compiles, and their signatures.

The system's C compiler builds them once, in a second or two. Without a compiler, after an error, or with
JAKIRO_NATIVE=0, passes run on torch's own kernels, in full precision and slower. `unavailable_reason` returns the
reason; a compiler that fails is logged as a warning.
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

from jakiro import progress
from jakiro.backends.native.building import built, compilers
from jakiro.system import usable_threads

_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")

_Pointer, _Long, _Float = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float


class _Numbers(_Pointer):
    """Type of an argument: a tensor, the address of numbers, or None."""

    @classmethod
    def from_param(cls, numbers: torch.Tensor | int | None) -> _Pointer:
        return _Pointer(address(numbers) if isinstance(numbers, torch.Tensor) else numbers)


def _fields(*groups: tuple[type, str]) -> list[tuple[str, type]]:
    """Return the fields of a structure, in order, from groups of a type and names."""
    return [(name, kind) for kind, names in groups for name in names.split()]


_BUILDING = threading.RLock()
if hasattr(os, "register_at_fork"):
    # A process forked while another thread builds could never acquire the lock, so a fork blocks until it is free
    os.register_at_fork(before=_BUILDING.acquire, after_in_parent=_BUILDING.release, after_in_child=_BUILDING.release)
log = logging.getLogger(__name__)


class Kind(enum.IntEnum):
    """Kind of a matrix's weights, as in products.h."""

    BLOCKS, PAIRS, FLOAT32 = range(3)


class Matrix(ctypes.Structure):
    """The structure `Matrix` in products.h."""

    _fields_ = _fields(
        (_Pointer, "weights bias"),
        (_Long, "outputs inputs kind block blocks minima scale_bytes"),
        (_Pointer, "factors"),
    )


class Layer(ctypes.Structure):
    """The structure `Layer` in decoder.c."""

    _fields_ = _fields(
        (Matrix, "query_key_value output gate_up down"),
        (_Pointer, "input_norm middle_norm"),
        (_Float, "input_eps middle_eps"),
    )


class Decoder(ctypes.Structure):
    """The structure `Decoder` in decoder.c."""

    _fields_ = _fields(
        (ctypes.POINTER(Layer), "layers"),
        (_Long, "num_layers hidden inner heads kv_heads head_dim"),
        (_Float, "scaling"),
    )


class Pass(ctypes.Structure):
    """The structure `Pass` in decoder.c."""

    _fields_ = _fields(
        (ctypes.POINTER(Decoder), "decoder"),
        (_Long, "rows length capacity"),
        (_Pointer, "hidden cos sin visible cache joint attended gated memory"),
        (ctypes.POINTER(_Pointer), "kept"),
    )


class Head(ctypes.Structure):
    """The structure `Head` in head.c."""

    _fields_ = _fields(
        (Matrix, "projection query_key_value output router"),
        (ctypes.POINTER(Matrix), "read write"),
        (_Pointer, "norm"),
        (_Float, "eps scaling"),
        (_Long, "hidden inner experts heads kv_heads head_dim summed contrastive"),
    )


class HeadPass(ctypes.Structure):
    """The structure `HeadPass` in head.c."""

    _fields_ = _fields(
        (ctypes.POINTER(Head), "head"),
        (_Long, "rows length capacity"),
        (_Pointer, "input cos sin visible keys values"),
        (_Pointer, "stream joint attended activity outputs router features contrast memory"),
        (_Long, "apart"),
    )


class Draft(ctypes.Structure):
    """The structure `Draft` in draft.c."""

    _fields_ = _fields(
        (ctypes.POINTER(Head), "head"),
        (ctypes.POINTER(Matrix), "output"),
        (_Pointer, "embedding"),
        (ctypes.POINTER(Matrix), "table"),
        (_Pointer, "token_ids directions mean angles"),
        (_Long, "positions"),
        (_Pointer, "rows"),
        (_Long, "start capacity"),
        (_Pointer, "ids features"),
        (_Long, "committed width passes explored contrastive kept"),
        (_Float, "temperature"),
        (_Pointer, "weights noise int_columns float_columns"),
    )


class Filters(ctypes.Structure):
    """The structure `Filters` in sampling.c."""

    _fields_ = _fields(
        (_Long, "top_k"), (ctypes.c_double, "top_p"), (_Float, "log_min_p"), (ctypes.c_uint64, "seed"), (_Long, "first")
    )


# Logits, number of rows, vocabulary size, a temperature or weight, and noise
_LOGITS = (_Numbers, _Long, _Long, _Float, _Numbers)
# Result and argument types of each function, as in its C file
_FUNCTIONS = {
    "panel": (_Long,),
    "linear_floats": (_Long, ctypes.POINTER(Matrix), _Long),
    "linear": (None, ctypes.POINTER(Matrix), *[_Numbers] * 3, _Long, _Long),
    "rows": (None, ctypes.POINTER(Matrix), _Numbers, _Long, _Numbers),
    "unpack": (_Long, ctypes.POINTER(Matrix), _Long, _Long, _Numbers, _Numbers, _Long, _Long),
    "weigh": (ctypes.c_double, _Numbers, _Long),
    "noise": (None, ctypes.c_uint64, _Long, _Long, _Numbers, _Long, _Numbers, _Long),
    "verify_bytes": (_Long, *[_Long] * 3),
    "verify": (_Long, *_LOGITS, ctypes.POINTER(Filters), *[_Numbers] * 8, _Long),
    "most_candidates": (_Long,),
    "best": (None, *_LOGITS, _Float, _Long, *[_Numbers] * 3, _Long),
    "best_of_mixture": (None, _Numbers, _Numbers, _Long, *_LOGITS[1:], _Float, _Long, *[_Numbers] * 6, _Long),
    "decoder_floats": (_Long, ctypes.POINTER(Decoder), _Long, _Long),
    "decode": (None, ctypes.POINTER(Pass), _Long),
    "head_floats": (_Long, ctypes.POINTER(Head), _Long, _Long),
    "draft": (None, ctypes.POINTER(HeadPass), _Long),
    "grow_bytes": (_Long, ctypes.POINTER(Draft), _Long),
    "grow": (_Long, ctypes.POINTER(Draft), _Numbers, _Long),
}


def num_threads() -> int:
    """Return the number of threads of a call: torch's, or fewer if a container limits the processor time."""
    return usable_threads(torch.get_num_threads())


def address(tensor: torch.Tensor | None) -> int | None:
    """Return the address of a tensor's numbers; None for None."""
    return None if tensor is None else tensor.data_ptr()


def library() -> ctypes.CDLL | None:
    """Return the compiled functions, or None if they are unavailable; the first call builds them."""
    return _load_locked()[0]


def unavailable_reason() -> str | None:
    """Return why the functions are unavailable, as the end of a sentence; None if they are available."""
    return _load_locked()[1]


def start_build() -> None:
    """Build the functions in a background thread, if necessary, while the caller does other work."""
    threading.Thread(target=library, name="compile", daemon=True).start()


@functools.cache
def _load_locked() -> tuple[ctypes.CDLL | None, str | None]:
    if not _BUILDING.acquire(blocking=False):
        # Another thread builds already; the time of waiting is reported as a step of the start
        with progress.step(progress.COMPILE):
            _BUILDING.acquire()
    try:
        return _load_once()
    finally:
        _BUILDING.release()


@functools.cache
def _load_once() -> tuple[ctypes.CDLL | None, str | None]:
    if os.environ.get("JAKIRO_NATIVE") == "0":
        return None, "JAKIRO_NATIVE is 0"
    if platform.system() != "Linux":
        return None, f"only Linux is supported, this is {platform.system()}"
    available = list(compilers())
    if not available:
        return None, "no C compiler was found; install gcc, or name one in CC"
    failure = ""
    for compiler in available:
        try:
            return _loaded(built(compiler)), None
        except (OSError, AttributeError, subprocess.SubprocessError) as error:
            detail = getattr(error, "stderr", None) or str(error)
            # After a timeout the output of the compiler is bytes
            detail = detail.decode(errors="replace") if isinstance(detail, bytes) else detail
            failure = f"{' '.join(compiler)} did not build it ({' '.join(detail.split())[:300]})"
    log.warning("Decoding without compiled code, about 40 %% slower: %s.", failure)
    return None, failure


def _loaded(path: Path) -> ctypes.CDLL:
    """Load the library and set its signatures; its functions use torch's OpenMP threads.

    Raises:
        AttributeError: torch uses another kind of threads.
    """
    library = ctypes.CDLL(str(path))
    give_threads(library)
    for name, (result_type, *argument_types) in _FUNCTIONS.items():
        function = getattr(library, f"jakiro_{name}")
        function.restype, function.argtypes = result_type, argument_types
    return library


def give_threads(library: ctypes.CDLL) -> None:
    """Pass the functions of torch's OpenMP to `threads.c`.

    Raises:
        AttributeError: torch uses another kind of threads.
    """
    library.jakiro_threads(*(ctypes.cast(getattr(_openmp(), name), _Pointer) for name in _OPENMP))


@functools.cache
def _openmp() -> ctypes.CDLL:
    """Return torch's OpenMP library, which is loaded already; its file name depends on the wheel."""
    package = Path(torch.__file__).parent
    folders = (package / "lib", package.parent / "torch.libs")
    path = next((str(path) for folder in folders for path in sorted(folder.glob("libgomp*"))), None)
    return ctypes.CDLL(path)
