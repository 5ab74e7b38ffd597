"""Running out of memory in loading or in an answer is reported in one sentence, and the next request works.

Every place in the library that allocates a relevant amount of memory fails once. For a real model on a GPU these are
the places that allocate more than a megabyte.
"""

import gc
import threading
from collections import Counter

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from app.asking import Asking
from app.devices.local import LocalDevice
from app.words import page as words
from jakiro.config import SamplingParams
from jakiro.generator import JakiroGenerator
from jakiro.loading import loader
from tests.backends.fake_graphs import library_place, storage_of
from tests.backends.static import static_generator, usual_drafters
from tests.device_tags import PRETENDED
from tests.marks import rarely
from tests.support import TREE, tiny_generator

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="memory of the CPU is refused"),
    pytest.mark.usefixtures("without_compiled_functions"),
]

# For tiny models; the same tensors of a 7B target have more than a megabyte
LIMIT = 8000
ON_A_GPU = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
ON_A_CPU = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 2147483648 bytes.")
SHORT = SamplingParams(max_new_tokens=3)
ASKING = Asking(
    ({"role": "user", "content": "Why?"},),
    SamplingParams(1.0, top_p=0.9, seed=3, max_new_tokens=3),
    TREE,
    ("autoregressive", "jakiro"),
)


class Scarce(TorchDispatchMode):
    """A mode that records the places that allocate memory and lets one of them fail.

    Args:
        granted: number of allocations of this place that succeed.
        error: the error of the failed allocation.

    Attributes:
        places: number of allocations by file and line of the library, in the order of their first use.
    """

    def __init__(self, refused: str | None = None, granted: int = 0, error: Exception = ON_A_GPU) -> None:
        super().__init__()
        self.refused, self.granted, self.error, self.places = refused, granted, error, Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        new = [tensor for tensor in tree_leaves(result) if isinstance(tensor, torch.Tensor) and not tensor.is_mkldnn]
        if any(tensor.nbytes >= LIMIT for tensor in new):
            existing = {storage_of(tensor) for tensor in tree_leaves((args, kwargs))}
            if any(tensor.nbytes >= LIMIT and storage_of(tensor) not in existing for tensor in new):
                place = library_place()
                self.places[place] += 1
                if place == self.refused and self.places[place] > self.granted:
                    # A new error, because a raised one references all frames that it passed
                    raise type(self.error)(*self.error.args)
        return result


def one_of_each_folder(places):
    """Return the first place of each folder of the library."""
    return list({place.partition("/")[0]: place for place in reversed(list(places))}.values())


EXTENTS = pytest.mark.parametrize(
    "extent",
    [pytest.param(one_of_each_folder, id="each folder"), rarely(list, id="each place")],
)


@pytest.fixture
def no_collection(monkeypatch):
    """Disable garbage collection: after each failure it would take most of the time."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


@pytest.fixture
def frozen():
    """Return a function that freezes existing objects, so that garbage collection takes little time."""
    yield gc.freeze
    gc.unfreeze()


def make_generator():
    generator = static_generator(tokens=48)
    generator.target = generator.backend.pool.settle(usual_drafters(generator)[-1])
    generator.backend.pool.prepare(usual_drafters(generator), side_by_side=2)
    return generator


def text_of(device: LocalDevice) -> list[str]:
    return [payload.text for kind, _, payload in device.answer(ASKING, threading.Event()) if kind == "step"]


@EXTENTS
def test_out_of_memory_in_an_answer_is_one_sentence_and_the_next_answer_works(no_collection, extent):
    device = LocalDevice(make_generator)
    device.load(lambda *_: None)
    # Tables are created once
    text_of(device)
    with Scarce() as watching:
        expected = text_of(device)
    assert len(watching.places) > 40 and any(place.startswith("drafters/candidates.py") for place in watching.places)
    for place in extent(watching.places):
        with Scarce(place), pytest.raises(ValueError, match=words.OUT_OF_MEMORY.partition(".")[0]):
            text_of(device)
        assert text_of(device) == expected, place
    assert device.status["graphs"]["slots"] <= 2


@pytest.mark.rare
@EXTENTS
def test_out_of_memory_in_loading_is_one_sentence_and_leaves_no_tensors(tags, frozen, extent):
    """Covers reading, moving, testing, binding and checking the pair, and its first buffers, on a simulated GPU."""

    def load():
        return JakiroGenerator.from_pretrained(*tags.pair, dtype="float32", graphs=False).run("Why?", SHORT).token_ids

    with tags:
        expected = load()
        with Scarce() as watching:
            JakiroGenerator.from_pretrained(*tags.pair, dtype="float32", graphs=False)
        frozen()
        places = [place for place in watching.places if place]
        assert len(places) > 40 and {"heads", "models", "backends"} <= {place.partition("/")[0] for place in places}
        for place in extent(places):
            # Trial passes take other torch errors for the errors of an unsupported model
            error = ON_A_CPU if place.startswith("target/") else ON_A_GPU
            with Scarce(place, error=error), pytest.raises(ValueError, match=r"^Memory ran out while .* was loaded;"):
                load()
            assert not new_large_tensors(), place
        assert load() == expected


def test_out_of_memory_in_a_forked_process_leaves_the_pair_intact(tags):
    """Spaces may keep the process, and then the next answer uses the same pair."""
    options = loader.LoadOptions(*tags.pair, "cpu", "float32", "exact", "full", capture_at_load=False)
    read = loader.read_pair(options)
    expected = tiny_generator().run("Why?", SHORT).token_ids
    with tags:
        with Scarce() as watching:
            loader.start_pair(read, PRETENDED)
        ((moving, count),) = [item for item in watching.places.items() if item[0].startswith("loading/loader.py")]
        assert count > 10
        in_a_slot = next(place for place in watching.places if place.startswith("backends/cuda_graphs/buffers.py"))
        for place, granted in ((moving, count - 1), (in_a_slot, 0)):
            with Scarce(place, granted), pytest.raises(ValueError, match="Memory ran out"):
                loader.start_pair(read, PRETENDED)
        parts = loader.start_pair(read, PRETENDED)
        assert JakiroGenerator.from_parts(parts).run("Why?", SHORT).token_ids == expected
    assert not any(tags.is_tagged(parameter) for parameter in (*read.model.parameters(), *read.head.parameters()))


def new_large_tensors() -> int:
    """Return the number of large tensors that are not frozen."""
    tensors = [tensor for tensor in gc.get_objects() if type(tensor) in (torch.Tensor, nn.Parameter)]
    return sum(1 for tensor in tensors if not tensor.is_mkldnn and tensor.nbytes >= LIMIT)
