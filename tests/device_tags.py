"""A simulated GPU: tensors are tagged with a device, but stored on the CPU, and mixing devices fails as with CUDA.

These operations fail as on a GPU: an operation on tensors of two devices, a CPU generator for a device tensor, and
conversion of a device tensor to numpy. CPU tensors with one element and CPU indices are allowed, as with CUDA. Inside
`DeviceTags.without_waiting` operations that block the host fail too: reading values, and copies between the device and
memory that is not pinned.
"""

import copy
import functools
import inspect
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from jakiro.backends.cuda_graphs.buffers import GraphBuffers
from jakiro.loading import loader, placement, weights
from tests.backends.fake_graphs import FakeCuda
from tests.support import save_pair

PRETENDED = torch.device("cuda", 0)
LRU_CACHED = type(functools.lru_cache(len))
_MOVES = {Tensor.to, Tensor.cpu, Tensor.cuda, Tensor.copy_}
# Functions that receive tensors of both devices when a module is moved
_ASSIGNMENTS = {Tensor.copy_, Tensor.data.__set__, torch._has_compatible_shallow_copy_type}
# Functions that read the values of a tensor on the host
_READS = {
    Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.nonzero,
    Tensor.numpy, Tensor.equal, Tensor.unique, Tensor.masked_select, torch.nonzero, torch.equal, torch.unique,
    torch.masked_select,
}  # fmt: skip
_INDEXING = {Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_, Tensor.index_put}


class DeviceTags(TorchFunctionMode):
    """A mode in which `cuda` is the simulated device; its tensors are identified by their storage.

    Attributes:
        reads: number of host reads of device tensors, by function name.
    """

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._pinned: dict[int, torch.UntypedStorage] = {}
        self._waiting = True
        self.reads: Counter[str] = Counter()
        self.pair = ("", "")

    def without_waiting(self):
        """Make operations that block the host fail inside the context."""
        return mock.patch.object(self, "_waiting", False)

    def allow_waiting(self):
        """Allow the host to block inside the context, for the one read of a step."""
        return mock.patch.object(self, "_waiting", True)

    def is_pinned(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._pinned

    def tag(self, tensor: Tensor) -> Tensor:
        if tensor.is_mkldnn:
            return tensor
        # Keep the storages alive, so that their addresses are not reused
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage
        return tensor

    def is_tagged(self, tensor: Tensor) -> bool:
        # Tensors packed by oneDNN have no storage and are on the CPU
        return not tensor.is_mkldnn and tensor.untyped_storage()._cdata in self._storages

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func in (torch._C._nn._parse_to, torch.device):
            return func(*args, **kwargs)
        if func == Tensor.device.__get__:
            return PRETENDED if self.is_tagged(args[0]) else torch.device("cpu")
        if func == Tensor.is_cuda.__get__:
            return self.is_tagged(args[0])
        pinned = kwargs.pop("pin_memory", False)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        tagged = any(map(self.is_tagged, tensors))
        named = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.device)]
        named += [torch.device(kwargs["device"])] if isinstance(kwargs.get("device"), str) else []
        named += [torch.device(leaf) for leaf in args if func in _MOVES and isinstance(leaf, str)]
        if func in _MOVES:
            destination = self._destination(func, tensors, named)
        else:
            destination = named[0].type == PRETENDED.type if named else tagged
            if tagged and func not in _ASSIGNMENTS:
                self._refuse_mixtures(func, args, kwargs, tensors)
        if destination and isinstance(kwargs.get("generator"), torch.Generator):
            raise RuntimeError(f"{func.__name__}: expected a 'cuda' device type for generator but found 'cpu'")
        if func is Tensor.numpy and tagged:
            raise TypeError("can't convert a tensor of cuda:0 to numpy; copy it to the CPU first")
        if tagged and self._is_read(func, args):
            self.reads[func.__name__] += 1
        if not self._waiting:
            self._refuse_waits(func, args, tensors, tagged, destination)
        args, kwargs = self._on_cpu(args), self._on_cpu(kwargs)
        moved = func in _MOVES and destination != tagged
        result = func(*args, **kwargs)
        if moved and func is not Tensor.copy_:
            result = result.clone()
        if pinned:
            self._pinned[result.untyped_storage()._cdata] = result.untyped_storage()
        if destination and func not in _ASSIGNMENTS:
            tree_map_only(Tensor, self.tag, result)
        return result

    def _destination(self, func, tensors: list[Tensor], named: list[torch.device]) -> bool:
        if func is Tensor.cpu:
            return False
        if func is Tensor.cuda:
            return True
        if func is Tensor.to and len(tensors) == 2:
            return self.is_tagged(tensors[1])
        return named[0].type == PRETENDED.type if named else self.is_tagged(tensors[0])

    def _refuse_mixtures(self, func, args, kwargs, tensors: list[Tensor]) -> None:
        if func in _INDEXING and self.is_tagged(args[0]):
            tensors = [leaf for leaf in tree_leaves((args[2:], kwargs)) if isinstance(leaf, Tensor)]
        cpu_tensors = [tensor for tensor in tensors if tensor.ndim and not self.is_tagged(tensor)]
        if cpu_tensors:
            shapes = [tuple(tensor.shape) for tensor in cpu_tensors]
            raise RuntimeError(f"{func.__name__}: expected all tensors on one device; on the CPU are {shapes}")

    @staticmethod
    def _is_read(func, args) -> bool:
        masks = args[1] if func in _INDEXING and isinstance(args[1], tuple) else args[1:2]
        by_mask = func in _INDEXING and any(isinstance(mask, Tensor) and mask.dtype == torch.bool for mask in masks)
        by_count = func is Tensor.repeat_interleave and any(isinstance(value, Tensor) for value in args[1:])
        return func in _READS or by_mask or by_count

    def _refuse_waits(self, func, args, tensors: list[Tensor], tagged: bool, destination: bool) -> None:
        """Raise an error if the host would wait for the device."""
        if tagged and self._is_read(func, args):
            raise RuntimeError(f"{func.__name__}: the host reads a tensor of the device")
        made = func is torch.tensor and destination
        if tagged and func is Tensor.__setitem__ and not isinstance(args[2], Tensor):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            # Several elements are filled by a kernel, a single one is copied from the host
            made |= len(index) == args[0].ndim and all(type(position) is int for position in index)
        crossing = func in _MOVES and any(self.is_tagged(tensor) != destination for tensor in tensors)
        cpu_tensors = [tensor for tensor in tensors if not self.is_tagged(tensor)]
        if made or (crossing and not (cpu_tensors and all(map(self.is_pinned, cpu_tensors)))):
            raise RuntimeError(f"{func.__name__}: a copy between the device and memory that is not pinned")

    @staticmethod
    def _on_cpu(arguments):
        arguments = tree_map_only(torch.device, lambda _: torch.device("cpu"), arguments)
        return tree_map_only(str, lambda text: "cpu" if text.startswith("cuda") else text, arguments)


def simulate_gpu(monkeypatch) -> DeviceTags:
    """Replace functions of torch.cuda, so that the machine seems to have an H100; return the mode, not entered yet.

    The results that functions of the library have cached for a device are dropped.
    """
    # The collector does not list objects that a start has frozen
    modules = [module for name, module in sys.modules.items() if name.startswith(("jakiro.", "lab."))]
    for function in {value for module in modules for value in vars(module).values() if type(value) is LRU_CACHED}:
        if "device" in inspect.signature(function).parameters:
            function.cache_clear()
    FakeCuda(monkeypatch)
    monkeypatch.setattr(torch.cuda, "Event", mock.Mock(**{"return_value.elapsed_time.return_value": 1.0}))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **more: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "NVIDIA H100 (pretended)")
    return DeviceTags()


def with_a_pair(folder: Path, monkeypatch) -> DeviceTags:
    """Return the mode, with a tiny pair in folders (`pair`) to load onto the simulated GPU."""
    monkeypatch.setenv("JAKIRO_CACHE", str(folder / "cache"))
    mode = simulate_gpu(monkeypatch)
    monkeypatch.setattr(placement, "free_memory", lambda device: 10**11)
    monkeypatch.setattr(loader, "choose_device", lambda device: PRETENDED if device is None else torch.device(device))
    save_pair(folder)
    # Loaded outside the mode, which would otherwise create the buffers that are not stored in the files
    model, sha256 = weights.load_model(str(folder / "target"), "cpu", torch.float32)

    def read_onto_device(name, device, dtype, **options):
        return copy.deepcopy(model).to(device), sha256

    monkeypatch.setattr(weights, "load_model", read_onto_device)
    monkeypatch.setattr(GraphBuffers, "_to_host", mode.allow_waiting()(GraphBuffers._to_host))
    mode.pair = (str(folder / "target"), str(folder / "head"))
    return mode
