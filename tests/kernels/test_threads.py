"""An answer computes with the threads that have a core; its text does not depend on their number."""

import itertools
import threading

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.kernels.compiled import threads
from jakiro.kernels.compiled.library import library, num_threads, why_not
from jakiro.kernels.compiled.threads import fitting_threads
from tests.support import DEVICE, TREE, tiny_generator

pytestmark = pytest.mark.skipif(
    DEVICE.type == "cuda" or library() is None, reason=f"no compiled functions: {why_not() or 'the suite is on a GPU'}"
)


class Following:
    """Stands in for `Cores`: these numbers, one after another."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = itertools.cycle(numbers)
        self.given = []

    def threads(self, wanted: int) -> int:
        self.given.append(min(wanted, next(self._numbers)))
        return self.given[-1]


@pytest.fixture
def follow(monkeypatch):
    """Has threads follow a list of numbers, in a process whose torch has three."""
    monkeypatch.setattr("jakiro.kernels.compiled.library.usable_threads", lambda wanted: wanted)
    before = torch.get_num_threads()
    torch.set_num_threads(3)

    def start(*numbers: int) -> Following:
        following = Following(*numbers)
        monkeypatch.setattr(threads, "_cores", lambda: following)
        return following

    yield start
    torch.set_num_threads(before)


def test_only_this_thread_and_only_the_block_has_fewer_threads(follow):
    follow(2)
    others = []
    with fitting_threads():
        assert (num_threads(), torch.get_num_threads()) == (2, 2)
        other = threading.Thread(target=lambda: others.append(torch.get_num_threads()))
        other.start()
        other.join()
    assert (num_threads(), others) == (3, [3])


def test_a_block_that_fails_gives_the_threads_back(follow):
    follow(1)
    with pytest.raises(RuntimeError, match="stopped"), fitting_threads():
        raise RuntimeError("stopped")
    assert torch.get_num_threads() == 3


def test_without_compiled_code_the_number_stays(follow, monkeypatch):
    follow(1)
    monkeypatch.setattr(threads, "library", lambda: None)
    with fitting_threads():
        assert torch.get_num_threads() == 3


@pytest.mark.parametrize("method", ["autoregressive", "jakiro"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_do_not_depend_on_threads_that_change_from_step_to_step(follow, method, temperature):
    generator = tiny_generator()
    assert generator.status["compiled"]
    sampling = SamplingParams(temperature=temperature, seed=4, max_new_tokens=24)
    texts = []
    for numbers in ((3,), (1,), (1, 3, 2)):
        following = follow(*numbers)
        trace = generator.run("A tale of two threads", sampling, method=method, tree=TREE)
        texts.append([(step.committed_ids, [node.margin for node in step.nodes]) for step in trace.steps])
        assert set(numbers) <= set(following.given)
    assert texts[0] == texts[1] == texts[2]
