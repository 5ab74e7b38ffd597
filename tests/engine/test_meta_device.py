"""Nothing assumes a device, and a step reads from the device once.

A whole step runs with "meta" as the default device: a tensor made without an explicit device would land there and is
caught. A second watch counts everything that makes the host wait for the device.
"""

from collections import Counter
from contextlib import contextmanager

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jakiro.config import SamplingParams
from jakiro.drafting.heads import HeadSession
from tests.support import scripted_generator

SAMPLINGS = {
    "greedy": SamplingParams(max_new_tokens=24),
    "sampled": SamplingParams(temperature=1.0, seed=1, max_new_tokens=24),
    "nucleus": SamplingParams(temperature=0.7, top_p=0.9, top_k=50, seed=1, max_new_tokens=24),
}


REPETITIVE = "one two three one two three one two three one two"


class NoMetaTensors(TorchDispatchMode):
    """Fails on any meta tensor among an operation's inputs or outputs."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for leaf in tree_leaves((args, kwargs, result)):
            if isinstance(leaf, torch.Tensor) and leaf.device.type == "meta":
                raise AssertionError(f"a meta tensor in {function}: it was made without an explicit device")
        return result


@contextmanager
def meta_by_default():
    with torch.device("meta"), NoMetaTensors():
        yield


READING_METHODS = (
    "tolist", "item", "numpy", "cpu", "__array__", "__bool__", "__int__", "__float__", "__index__", "nonzero",
    "unique", "equal",
)  # fmt: skip
READING_OPERATIONS = {
    "_local_scalar_dense", "item", "nonzero", "nonzero_numpy", "argwhere", "masked_select", "_unique", "_unique2",
    "unique_dim", "unique_consecutive", "repeat_interleave", "equal", "is_nonzero",
}  # fmt: skip


class ReadCounter(TorchDispatchMode):
    """Counts what reads a tensor's values on the host, by name; a method that calls an operation counts once."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: Counter[str] = Counter()
        self._inside = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = function._schema.name.removeprefix("aten::")
        if self._inside:
            return result
        if name in READING_OPERATIONS and function._overloadname != "self_int":
            self.reads[name] += 1
        elif name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        ):
            self.reads["index by a mask"] += 1
        elif name in ("_to_copy", "to", "copy_") and result.device.type == "cpu":
            self.reads["copy to the host"] += any(
                isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu" for leaf in tree_leaves(args)
            )
        return result

    @contextmanager
    def watching(self, monkeypatch):
        """Counts while it lasts."""
        with monkeypatch.context() as patch:
            for name in READING_METHODS:
                patch.setattr(torch.Tensor, name, self._counted(name, getattr(torch.Tensor, name)))
            with self:
                yield

    def _counted(self, name, original):
        def method(tensor, *args, **kwargs):
            outermost, self._inside = not self._inside, True
            try:
                self.reads[name] += outermost
                return original(tensor, *args, **kwargs)
            finally:
                self._inside = not outermost

        return method


def reads_of_steps(stream, count, monkeypatch):
    """One counter a step, as on a GPU: every node of a level is expanded, the host reads no scores, verification runs
    in torch's operations and its outcome is copied.
    """
    monkeypatch.setattr(HeadSession, "_explored", lambda self, limits: None)
    monkeypatch.setattr("jakiro.kernels.compiled.sampling.works_on", lambda rows: False)
    monkeypatch.setattr("jakiro.engine.outcome._on_host", lambda tensor: False)
    counted = []
    for _ in range(count):
        counter = ReadCounter()
        with counter.watching(monkeypatch):
            next(stream)
        counted.append({name: number for name, number in counter.reads.items() if number})
    return counted


def test_a_reread_step_reads_twice(monkeypatch, without_compiled_functions):
    generator = scripted_generator(vocab_size=1500)
    stream = generator.stream("Tell me.", SamplingParams(2.0, top_p=0.99), method="autoregressive")
    assert reads_of_steps(stream, 2, monkeypatch) == [{"tolist": 2}] * 2


@pytest.mark.parametrize(
    "read",
    [
        lambda x: x[2].item(),
        lambda x: x.tolist(),
        lambda x: x.cpu(),
        lambda x: x[x > 1],
        lambda x: (x > 1).nonzero(),
        lambda x: torch.unique(x),
        lambda x: x.repeat_interleave(torch.tensor([1, 2, 1, 0])),
    ],
)
@pytest.mark.parametrize("inference", [False, True])
def test_the_counter_notices_every_kind_of_read(read, inference, monkeypatch):
    values, counter = torch.arange(4.0), ReadCounter()
    with torch.inference_mode(inference), counter.watching(monkeypatch):
        read(values)
    assert sum(counter.reads.values()) == 1, counter.reads
