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
    calls = []

    def log_calls(owner, name, word):
        function = getattr(owner, name)
        monkeypatch.setattr(
            owner, name, lambda *arguments, **options: (calls.append(word), function(*arguments, **options))[1]
        )

    monkeypatch.setattr(GraphBuffers, "can_draft_ahead", True)
    log_calls(StaticHeadSession, "propose", "draft")
    log_calls(GraphBuffers, "score", "score")
    log_calls(recorder, "make_nodes", "describe")
    return calls


@pytest.mark.parametrize("tree", [TREE, AUTOMATIC_TREE], ids=["fixed", "automatic"])
def test_next_draft_starts_before_a_step_is_described_and_keeps_the_text(log, tree):
    expected = tiny_generator().run("Why?", SAMPLED, "autoregressive")
    log.clear()
    trace = static_generator(measured=True).run("Why?", SAMPLED, tree=tree)
    assert (trace.token_ids, trace.end_reason) == (expected.token_ids, expected.end_reason)
    assert log.count("score") == log.count("describe") == len(trace.steps) > 2
    drafts = [index for index, word in enumerate(log) if word == "draft"]
    assert drafts[0] == 0 and len(drafts) > 1
    assert all(log[index - 1 : index + 2] == ["score", "draft", "describe"] for index in drafts[1:])


def test_no_draft_starts_after_the_last_token_and_a_stop_drops_a_pending_one(log):
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
