"""Drafting ahead: on a GPU the next draft starts while the host still describes a step."""

import pytest

from jakiro.backends.cuda_graphs.buffers import GraphBuffers
from jakiro.backends.cuda_graphs.drafter import StaticHeadSession
from jakiro.config import AUTOMATIC_TREE, SamplingParams
from jakiro.decode import recorder
from tests.backends.static import shape_of, static_generator
from tests.support import TREE, tiny_generator

pytestmark = pytest.mark.usefixtures("without_compiled_functions")

SAMPLED = SamplingParams(0.8, seed=3, max_new_tokens=12)


@pytest.fixture
def log(monkeypatch):
    """Return the order of calls, with buffers that report that the host continues before a draft is complete."""
    found = []

    def logged(place, name, word):
        function = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *given, **more: (found.append(word), function(*given, **more))[1])

    monkeypatch.setattr(GraphBuffers, "can_draft_ahead", True)
    logged(StaticHeadSession, "propose", "draft")
    logged(GraphBuffers, "score", "score")
    logged(recorder, "make_nodes", "describe")
    return found


@pytest.mark.parametrize("tree", [TREE, AUTOMATIC_TREE], ids=["fixed", "automatic"])
def test_the_next_draft_begins_before_a_step_is_described_and_the_text_stays_the_same(log, tree):
    expected = tiny_generator().run("Why?", SAMPLED, "autoregressive")
    log.clear()
    trace = static_generator(measured=True).run("Why?", SAMPLED, tree=tree)
    assert (trace.token_ids, trace.end_reason) == (expected.token_ids, expected.end_reason)
    assert log.count("score") == log.count("describe") == len(trace.steps) > 2
    drafts = [place for place, word in enumerate(log) if word == "draft"]
    assert drafts[0] == 0 and len(drafts) > 1
    assert all(log[place - 1 : place + 2] == ["score", "draft", "describe"] for place in drafts[1:])


def test_nothing_is_drafted_after_the_last_token_and_a_stop_drops_what_was(log):
    generator = static_generator()
    ended = generator.stream("Why?", SamplingParams(max_new_tokens=2), tree=TREE)
    next(ended)
    assert ended.finished and log == ["draft", "score", "describe"]
    stopped = generator.stream("Why?", SAMPLED, tree=TREE)
    next(stopped)
    assert stopped._pending is not None
    stopped.close()
    assert stopped._pending is None and stopped.finished
    expected = tiny_generator().run("Why?", SAMPLED, tree=TREE)
    assert shape_of(generator.run("Why?", SAMPLED, tree=TREE)) == shape_of(expected)
