"""A pretended GPU: tensors are tagged with a device, lie on the CPU, and mixing devices fails as CUDA would.

What a GPU refuses is refused here: an operation on tensors of two devices, a CPU generator for a tensor of the device,
numpy on it. As there, one-number tensors of the CPU and CPU indices are welcome. Within `DeviceTags.without_waiting`
what makes the host wait is refused too: reading values, and copies between the device and memory that is not pinned.
"""

import copy
import functools
import gc
import inspect
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
_MOVES = {Tensor.to, Tensor.cpu, Tensor.cuda, Tensor.copy_}
# What moving a module calls with tensors of both devices.
_ASSIGNMENTS = {Tensor.copy_, Tensor.data.__set__, torch._has_compatible_shallow_copy_type}
# What reads a tensor's values on the host
_READS = {
    Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__int__, Tensor.__float__, Tensor.__index__, Tensor.nonzero,
    Tensor.numpy, Tensor.equal, Tensor.unique, Tensor.masked_select, torch.nonzero, torch.equal, torch.unique,
    torch.masked_select,
}  # fmt: skip
_INDEXING = {Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_, Tensor.index_put}


class DeviceTags(TorchFunctionMode):
    """Inside it `cuda` names the pretended device; what lives there is known by its storage.

    Attributes:
        reads: what read it on the host, by the names of functions.
    """

    def __init__(self) -> None:
        super().__init__()
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._pinned: dict[int, torch.UntypedStorage] = {}
        self._waiting = True
        self.reads: Counter[str] = Counter()
        self.pair = ("", "")

    def without_waiting(self):
        """What makes the host wait for the device is refused while it lasts."""
        return mock.patch.object(self, "_waiting", False)

    def the_read(self):
        """The one place where waiting is meant."""
        return mock.patch.object(self, "_waiting", True)

    def is_pinned(self, tensor: Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._pinned

    def tag(self, tensor: Tensor) -> Tensor:
        if tensor.is_mkldnn:
            return tensor
        # Holding the storages keeps their addresses from being used again.
        storage = tensor.untyped_storage()
        self._storages[storage._cdata] = storage
        return tensor

    def is_tagged(self, tensor: Tensor) -> bool:
        # What oneDNN packed has no storage, and lies on the CPU
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
        strangers = [tensor for tensor in tensors if tensor.ndim and not self.is_tagged(tensor)]
        if strangers:
            shapes = [tuple(tensor.shape) for tensor in strangers]
            raise RuntimeError(f"{func.__name__}: expected all tensors on one device, these lie on the CPU: {shapes}")

    @staticmethod
    def _is_read(func, args) -> bool:
        masks = args[1] if func in _INDEXING and isinstance(args[1], tuple) else args[1:2]
        by_mask = func in _INDEXING and any(isinstance(each, Tensor) and each.dtype == torch.bool for each in masks)
        by_count = func is Tensor.repeat_interleave and any(isinstance(each, Tensor) for each in args[1:])
        return func in _READS or by_mask or by_count

    def _refuse_waits(self, func, args, tensors: list[Tensor], tagged: bool, destination: bool) -> None:
        """Fails where the host would wait for the device."""
        if tagged and self._is_read(func, args):
            raise RuntimeError(f"{func.__name__}: the host reads what lies on the device")
        made = func is torch.tensor and destination
        if tagged and func is Tensor.__setitem__ and not isinstance(args[2], Tensor):
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            # More than one element is filled, one alone is copied to
            made |= len(index) == args[0].ndim and all(type(each) is int for each in index)
        crossing = func in _MOVES and any(self.is_tagged(each) != destination for each in tensors)
        here = [each for each in tensors if not self.is_tagged(each)]
        if made or (crossing and not (here and all(map(self.is_pinned, here)))):
            raise RuntimeError(f"{func.__name__}: a copy between the device and memory that is not pinned")

    @staticmethod
    def _on_cpu(arguments):
        arguments = tree_map_only(torch.device, lambda _: torch.device("cpu"), arguments)
        return tree_map_only(str, lambda text: "cpu" if text.startswith("cuda") else text, arguments)


def pretended(monkeypatch) -> DeviceTags:
    """The mode, with torch.cuda's functions in its place; tables of an earlier mode's device are made anew."""
    for each in gc.get_objects():
        ours = type(each) is functools._lru_cache_wrapper and each.__module__.startswith(("jakiro.", "lab."))
        if ours and "device" in inspect.signature(each).parameters:
            each.cache_clear()
    FakeCuda(monkeypatch)
    monkeypatch.setattr(torch.cuda, "Event", mock.Mock(**{"return_value.elapsed_time.return_value": 1.0}))
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **more: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device=None: "NVIDIA H100 (pretended)")
    return DeviceTags()


def with_a_pair(folder: Path, monkeypatch) -> DeviceTags:
    """The mode, with a tiny pair in folders (`pair`) that is loaded onto the pretended GPU."""
    monkeypatch.setenv("JAKIRO_CACHE", str(folder / "cache"))
    mode = pretended(monkeypatch)
    monkeypatch.setattr(placement, "free_memory", lambda device: 10**11)
    monkeypatch.setattr(loader, "choose_device", lambda device: PRETENDED if device is None else torch.device(device))
    save_pair(folder)
    # Read before: what transformers leaves out of files is not made anew inside of the mode
    model, sha256 = weights.load_model(str(folder / "target"), "cpu", torch.float32)

    def read_onto_device(name, device, dtype, **options):
        return copy.deepcopy(model).to(device), sha256

    monkeypatch.setattr(weights, "load_model", read_onto_device)
    monkeypatch.setattr(GraphBuffers, "_to_host", mode.the_read()(GraphBuffers._to_host))
    mode.pair = (str(folder / "target"), str(folder / "head"))
    return mode
