"""A pretended CUDA device on which nothing is computed: torch's fake tensors know shapes, dtypes and devices alone.

So every pass of a slot runs at any shape within seconds, with torch's own rules for devices and its own refusals of
what needs values. A watch notes every operation between host and device: within a capture CUDA refuses it. It can't see
the allocator, cuBLAS' workspaces, streams, and foreach operations.
"""

import ctypes
import os
import subprocess
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.device_tags import Event
from tests.graphs.fake_graphs import library_place, storage_of

CUDA = torch.device("cuda", 0)
GPU_BYTES = 80 << 30
# Kernels take a number of the host as an argument
_TAKE_A_NUMBER = {"aten::fill_", "aten::masked_fill", "aten::masked_fill_"}
_MAKERS = {torch.tensor, torch.as_tensor, Tensor.new_tensor}
# torch is told of the guard once a process
_GUARDED: list[ctypes.CDLL] = []


def guard(folder: Path) -> str | None:
    """Lets this process have tensors on `cuda`; returns why it can't, None where it can."""
    if _GUARDED:
        return None
    root, library = Path(torch.__file__).parent, folder / "guard.so"
    source = Path(__file__).with_name("guard.cpp")
    flags = ["-shared", "-fPIC", "-O1", "-std=c++20", f"-I{root}/include", f"-L{root}/lib", "-lc10"]
    for name in dict.fromkeys([os.environ.get("CXX") or "c++", "c++", "g++", "clang++"]):
        try:
            subprocess.run([name, str(source), "-o", str(library), *flags], check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        _GUARDED.append(ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL))
        _GUARDED[0].guard_nothing()
        return None
    return "no C++ compiler here builds guard.cpp"


class Crossings(TorchDispatchMode):
    """Notes operations between host and device.

    Args:
        pinned: memory that may be copied from without waiting, by address; within a capture none may.

    Attributes:
        found: how often by place in the library and operation.
        operations: how many ran.
    """

    def __init__(self, pinned: Collection[int] = ()) -> None:
        super().__init__()
        self.pinned, self.found, self.operations = pinned, Counter(), 0

    def note(self, what: str) -> None:
        self.found[f"{library_place()}: {what}"] += 1

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.operations += 1
        given = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        found = [*given, *(each for each in tree_leaves(result) if isinstance(each, Tensor))]
        if len({each.device.type for each in found}) > 1 and not self._is_allowed(function, args, given, found):
            self.note(str(function))
        return result

    def _is_allowed(self, function, args, given: list[Tensor], found: list[Tensor]) -> bool:
        name, here = function._schema.name, [each for each in found if each.device.type == "cpu"]
        if name == "aten::copy_":
            return args[2:3] == (True,) and all(storage_of(each) in self.pinned for each in here)
        numbers = all(each.ndim == 0 and any(each is one for one in given) for each in here)
        return numbers and (torch.Tag.pointwise in function.tags or name in _TAKE_A_NUMBER)


class _Making(TorchFunctionMode):
    """Notes tensors that are made on the device from the host's values, and what memory is pinned."""

    def __init__(self) -> None:
        super().__init__()
        self.watch: Crossings | None = None
        self.pinned: dict[int, torch.UntypedStorage] = {}

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if function in _MAKERS and not isinstance(args[-1], Tensor):
            like = args[0] if function is Tensor.new_tensor else None
            device = torch.device(kwargs.pop("device", None) or ("cpu" if like is None else like.device))
            dtype = kwargs.pop("dtype", None) or (None if like is None else like.dtype)
            result = torch.tensor(args[-1], dtype=dtype, device="cpu")
            if device.type == "cpu":
                return result
            if self.watch is not None:
                self.watch.note(f"{function.__name__} of values of the host")
            return torch.empty(result.shape, dtype=result.dtype, device=device)
        result = function(*args, **kwargs)
        if kwargs.get("pin_memory"):
            self.pinned[storage_of(result)] = result.untyped_storage()
        return result


class Pretended:
    """The device while it is pretended, see `pretended`."""

    def __init__(self, making: _Making) -> None:
        self._making = making

    @contextmanager
    def watched(self, capturing: bool = True) -> Iterator[Crossings]:
        """A watch over what runs meanwhile; not capturing, copies from pinned memory that nobody waits for may be."""
        watch = Crossings(() if capturing else self._making.pinned)
        self._making.watch = watch
        try:
            with watch:
                yield watch
        finally:
            self._making.watch = None


@contextmanager
def pretended(monkeypatch) -> Iterator[Pretended]:
    """Inside it tensors on `cuda` can be made, and nothing is computed."""
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "Event", Event)
        patch.setattr(torch.cuda, "current_stream", lambda device=None: None)
        patch.setattr(torch.cuda, "mem_get_info", lambda device=None: (GPU_BYTES, GPU_BYTES))
        making = _Making()
        with torch.inference_mode(), FakeTensorMode(allow_non_fake_inputs=True), making:
            yield Pretended(making)
