"""Memory that runs out at any place of loading or of an answer is one sentence, and what is asked next works.

Every place in the library that takes memory worth the name is refused once; on a GPU of a real model's these are the
places that take more than a megabyte.
"""

import gc
import sys
import threading

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from app.asking import Asking
from app.devices.local import LocalDevice
from app.words import page as words
from jakiro.config import SamplingParams
from tests.graphs.fake_graphs import storage_of
from tests.graphs.static import static_generator, usual_drafters
from tests.support import TREE

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="memory of the CPU is refused"),
    pytest.mark.usefixtures("without_compiled_functions"),
]

# Of tiny models; what a 7B target has over a megabyte of, they have over so many bytes of
LIMIT = 8000
ASKING = Asking(
    ({"role": "user", "content": "Why?"},),
    SamplingParams(1.0, top_p=0.9, seed=3, max_new_tokens=3),
    TREE,
    ("autoregressive", "jakiro"),
)


class Scarce(TorchDispatchMode):
    """Notes the places that take new memory, and refuses one of them.

    Attributes:
        places: file and line of the library's code, in the order of their first use.
    """

    def __init__(self, refused: str | None = None) -> None:
        super().__init__()
        self.refused, self.places = refused, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        new = [each for each in tree_leaves(result) if isinstance(each, torch.Tensor) and not each.is_mkldnn]
        if any(each.nbytes >= LIMIT for each in new):
            given = {storage_of(each) for each in tree_leaves((args, kwargs))}
            if any(each.nbytes >= LIMIT and storage_of(each) not in given for each in new):
                place = _place()
                self.places[place] = True
                if place == self.refused:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return result


def _place() -> str:
    frame = sys._getframe(2)
    while frame is not None and "/jakiro/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename.rpartition('/jakiro/')[2]}:{frame.f_lineno}"


@pytest.fixture(autouse=True)
def no_collection(monkeypatch):
    """Looking for what could be freed, after each refusal, would take most of the time."""
    monkeypatch.setattr(gc, "collect", lambda *_: 0)


def loaded():
    generator = static_generator(start_tokens=48)
    generator.lanes.prepare(usual_drafters(generator), side_by_side=2)
    generator.lanes.check(usual_drafters(generator)[-1])
    return generator


def text_of(device: LocalDevice) -> list[str]:
    return [payload.text for kind, _, payload in device.answer(ASKING, threading.Event()) if kind == "step"]


def test_memory_that_runs_out_anywhere_in_an_answer_is_a_sentence_and_the_next_answer_works():
    device = LocalDevice(loaded)
    device.load(lambda *_: None)
    with Scarce() as watching:
        expected = text_of(device)
    assert len(watching.places) > 40 and any(place.startswith("graphs/growing.py") for place in watching.places)
    for place in watching.places:
        with Scarce(place), pytest.raises(ValueError, match=words.OUT_OF_MEMORY.partition(".")[0]):
            text_of(device)
        assert text_of(device) == expected, place
    assert device.status["graphs"]["lanes"] <= 2


def test_memory_that_runs_out_anywhere_in_loading_is_told_and_loading_again_works():
    device = LocalDevice(loaded)
    # What tests share is made once
    device.load(lambda *_: None)
    with Scarce() as watching:
        device.load(lambda *_: None)
    expected = text_of(device)
    places = [place for place in watching.places if place]
    assert len(places) > 10 and any(place.startswith("graphs/lane.py") for place in places)
    for place in places:
        with Scarce(place), pytest.raises(torch.OutOfMemoryError, match="out of memory"):
            device.load(lambda *_: None)
        assert text_of(device) == expected, "what was loaded before goes on"
    device.load(lambda *_: None)
    assert text_of(device) == expected
