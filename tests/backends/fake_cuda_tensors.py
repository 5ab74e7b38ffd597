"""Fake CUDA tensors: every operation of a pass at true shapes, without memory, arithmetic or a GPU.

torch's FakeTensorMode follows shapes, dtypes and devices. `Crossings` lists the operations that move data between host
and device: CUDA rejects a capture that contains one. The mode does not see streams, the allocator, cuBLAS workspaces,
or foreach operations on tensors of several devices.
"""

import ctypes
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import jakiro

CUDA = torch.device("cuda", 0)
TOTAL_BYTES = 80 << 30
LIBRARY = f"{Path(jakiro.__file__).parent}/"
# Indices of c10::DeviceType
_CUDA_INDEX, _META_INDEX = 1, 14
_REGISTRY = "_ZN3c104impl26device_guard_impl_registryE"


class Crossings(TorchDispatchMode):
    """Counter of operations that move data between host and device.

    Attributes:
        counts: by line of the library and name of the operation.
        num_operations: operations that ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.num_operations = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.num_operations += 1
        if _crosses(function, _tensors((args, kwargs)), _tensors(result)):
            self.add(function._schema.name)
        return result

    def add(self, operation: str) -> None:
        """Count one crossing at the library's current line."""
        self.counts[_library_line(), operation] += 1


class FakeCudaTensors:
    """A patch of torch to run the library on fake CUDA tensors; `captures` counts the operations of each capture.

    Values that the host reads are zeros. A capture runs its function under `Crossings`.

    Attributes:
        captures: the operations of each capture.
        crossings: all crossings inside captures.
        reads: reads of device values by the host outside of captures, by line of the library.
        uploads: host values that became device tensors outside of captures, by line of the library.
    """

    def __init__(self, monkeypatch) -> None:
        self.captures: list[int] = []
        self.crossings: Counter[tuple[str, str]] = Counter()
        self.reads: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()
        self._capture: Crossings | None = None
        self._patch_tensors(monkeypatch)
        self._patch_cuda(monkeypatch)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Run the block with fake tensors, CUDA being the device of no real memory."""
        with _device_guard(), FakeTensorMode(allow_non_fake_inputs=True):
            yield

    def _patch_tensors(self, monkeypatch) -> None:
        make_tensor, make_zeros, to_list = torch.tensor, torch.zeros, FakeTensor.tolist

        def tensor(values, *, device=None, dtype=None, **options):
            """Make a tensor; `torch.tensor` cannot make fake tensors of another device from a list."""
            if device is None or torch.device(device).type != "cuda":
                return make_tensor(values, device=device, dtype=dtype, **options)
            self._note(self.uploads, "torch.tensor")
            if isinstance(values, Tensor):
                return values.to(device, dtype)
            like = make_tensor(values, device="cpu", dtype=dtype)
            return make_zeros(tuple(like.shape), dtype=like.dtype, device=device)

        def tolist(tensor: Tensor):
            if tensor.device.type != "cuda":
                return to_list(tensor)
            self._note(self.reads, "tolist")
            return np.zeros(tensor.shape, float if tensor.is_floating_point() else int).tolist()

        monkeypatch.setattr(torch, "tensor", tensor)
        monkeypatch.setattr(FakeTensor, "tolist", tolist)
        # Pinned memory needs a driver
        monkeypatch.setattr(torch, "zeros", lambda *size, pin_memory=False, **options: make_zeros(*size, **options))

    def _patch_cuda(self, monkeypatch) -> None:
        class Stream:
            def wait_stream(self, stream) -> None:
                """Do nothing: there is one order of operations."""

        class Event:
            def __init__(self, **options) -> None:
                """Ignore the options of `torch.cuda.Event`."""

            def record(self, *stream) -> None:
                """Do nothing."""

            def synchronize(self) -> None:
                """Do nothing."""

            def elapsed_time(self, later) -> float:
                return 1.0

        replaced = {
            "Stream": lambda *options: Stream(),
            "Event": Event,
            "current_stream": lambda device=None: Stream(),
            "set_stream": lambda stream: None,
            "synchronize": lambda device=None: None,
            "empty_cache": lambda: None,
            "mem_get_info": lambda device=None: (TOTAL_BYTES, TOTAL_BYTES),
            "graph_pool_handle": object,
            "device": nullcontext,
            "stream": nullcontext,
            "CUDAGraph": _Graph,
            "graph": self._captured,
            "is_bf16_supported": lambda **options: True,
            "get_device_capability": lambda device=None: (9, 0),
            "get_device_name": lambda device=None: "NVIDIA H100 (fake)",
        }
        for name, value in replaced.items():
            monkeypatch.setattr(torch.cuda, name, value)

    @contextmanager
    def _captured(self, graph, **options) -> Iterator[None]:
        with Crossings() as self._capture:
            yield
        self.captures.append(self._capture.num_operations)
        self.crossings += self._capture.counts
        self._capture = None

    def _note(self, outside: Counter[str], operation: str) -> None:
        if self._capture is None:
            outside[_library_line()] += 1
        else:
            self._capture.add(operation)


class _Graph:
    """Replacement for `torch.cuda.CUDAGraph`."""

    def replay(self) -> None:
        """Do nothing: the operations have no values."""

    def reset(self) -> None:
        """Do nothing: a graph holds no memory."""


@contextmanager
def _device_guard() -> Iterator[None]:
    """Let torch's CPU build switch to CUDA devices: meta tensors' guard, which does nothing, serves CUDA, too."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * (_META_INDEX + 1)).in_dll(library, _REGISTRY)
    before = guards[_CUDA_INDEX]
    guards[_CUDA_INDEX] = guards[_META_INDEX]
    try:
        yield
    finally:
        guards[_CUDA_INDEX] = before


def _tensors(values) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _crosses(function, inputs: list[Tensor], outputs: list[Tensor]) -> bool:
    """Return whether an operation moves data between host and device.

    A CUDA kernel may receive a CPU tensor of one number as an argument, which moves nothing.
    """
    on_host = [tensor for tensor in inputs if tensor.device.type == "cpu"]
    if len(on_host) == len(inputs):
        return bool(inputs) and any(tensor.device.type == "cuda" for tensor in outputs)
    if any(tensor.device.type == "cpu" for tensor in outputs):
        return True
    return any(tensor.dim() or function._schema.name == "aten::copy_" for tensor in on_host)


def _library_line() -> str:
    """Return file and line of the library's innermost frame; empty if there is none."""
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(LIBRARY):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename.removeprefix(LIBRARY)}:{frame.f_lineno}"
