"""Builds the C files of `csrc/` for this processor and loads it.

The system's C compiler makes it once, in a second or two, into the user's cache. Where there is none, or anything about
it does not work, passes run on torch's own kernels, half as fast; `why_not` says why. JAKIRO_NATIVE=0 asks for that.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import torch

from jakiro.system import atomic_file, cache_folder, processor_features, processor_name, usable_threads

_FOLDER = Path(__file__).parent / "csrc"
_COMPILERS = ("cc", "gcc", "clang")
# Where products and sums are fused is written in the source, see `fused` in vectors.h
_FLAGS = ("-O3", "-std=gnu11", "-fno-math-errno", "-ffp-contract=off", "-shared", "-fPIC")
_OPENMP = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_TIMEOUT_SECONDS = 120

_Pointer, _Long = ctypes.c_void_p, ctypes.c_int64


class Matrix(ctypes.Structure):
    """As `Matrix` in products.h."""

    _fields_ = [
        ("weights", _Pointer),
        ("bias", _Pointer),
        ("outputs", _Long),
        ("inputs", _Long),
        ("half", _Long),
        ("unscale", ctypes.c_float),
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
        *((name, _Pointer) for name in ("joint", "attended", "gated", "own")),
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
        *((name, _Pointer) for name in ("features", "contrast", "own")),
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


@functools.cache
def _found() -> tuple[ctypes.CDLL | None, str | None]:
    if os.environ.get("JAKIRO_NATIVE") == "0":
        return None, "JAKIRO_NATIVE is 0"
    if platform.system() != "Linux":
        return None, f"only Linux is supported, this is {platform.system()}"
    compilers = list(_compilers())
    if not compilers:
        return None, "no C compiler was found; install gcc, or name one in CC"
    failure = ""
    for compiler in compilers:
        try:
            return _loaded(_built(compiler)), None
        except (OSError, AttributeError, subprocess.SubprocessError) as error:
            detail = getattr(error, "stderr", None) or str(error)
            failure = f"{' '.join(compiler)} did not build it ({' '.join(detail.split())[:200]})"
    return None, failure


def _compilers() -> Iterator[list[str]]:
    """Each compiler's path, followed by further words of CC: "gcc -march=x86-64-v3" builds for lesser processors."""
    for words in (os.environ.get("CC", "").split(), *([name] for name in _COMPILERS)):
        path = shutil.which(words[0]) if words else None
        if path is not None:
            yield [path, *words[1:]]


def _built(compiler: list[str]) -> Path:
    """The shared library for this source, compiler and processor, built unless the cache holds it."""
    native = "-march=native" if platform.machine() in {"x86_64", "AMD64"} else "-mcpu=native"
    command = [compiler[0], *_FLAGS, native, *compiler[1:]]
    version = subprocess.run(
        [compiler[0], "--version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS
    ).stdout
    files = sorted([*_FOLDER.glob("*.c"), *_FOLDER.glob("*.h")])
    processor = (processor_name(), processor_features())
    described = "\0".join([*(file.read_text(encoding="utf-8") for file in files), *command, version, *processor])
    path = cache_folder() / "native" / f"{hashlib.sha256(described.encode()).hexdigest()[:16]}.so"
    if not path.is_file():
        with atomic_file(path) as unfinished:
            subprocess.run(
                [*command, "-o", str(unfinished), *(str(file) for file in files if file.suffix == ".c")],
                check=True,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_SECONDS,
            )
    return path


def _loaded(path: Path) -> ctypes.CDLL:
    """The library, with torch's OpenMP as its threads.

    Raises:
        AttributeError: torch computes with another kind of threads.
    """
    library = ctypes.CDLL(str(path))
    openmp = _openmp()
    library.jakiro_threads(*(ctypes.cast(getattr(openmp, name), _Pointer) for name in _OPENMP))
    for name in ("panel", "own_floats", "most_candidates"):
        getattr(library, f"jakiro_{name}").restype = _Long
    library.jakiro_own_floats.argtypes = [_Long] * 4
    library.jakiro_linear.argtypes = [ctypes.POINTER(Matrix), _Pointer, _Pointer, _Long, _Long]
    library.jakiro_noise.argtypes = [ctypes.c_uint64, _Long, _Long, _Pointer, _Long, _Pointer, _Long]
    library.jakiro_choose.argtypes = [_Pointer, _Long, _Long, ctypes.c_float, *[_Pointer] * 5, _Long]
    library.jakiro_best.argtypes = [
        *[_Pointer, _Long, _Long, ctypes.c_float, _Pointer, ctypes.c_float, _Long],
        *[_Pointer, _Pointer, _Pointer, _Long],
    ]
    library.jakiro_columns.argtypes = [_Pointer, _Long, _Long, _Pointer, _Long, _Pointer]
    library.jakiro_decode.argtypes = [ctypes.POINTER(Pass), _Long]
    library.jakiro_draft.argtypes = [ctypes.POINTER(HeadPass), _Long]
    return library


def _openmp() -> ctypes.CDLL:
    """The OpenMP that torch brings, whatever its wheel calls the file; it is loaded already."""
    package = Path(torch.__file__).parent
    folders = (package / "lib", package.parent / "torch.libs")
    path = next((str(path) for folder in folders for path in sorted(folder.glob("libgomp*"))), None)
    return ctypes.CDLL(path)
