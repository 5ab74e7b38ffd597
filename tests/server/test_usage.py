"""Usage counts accepted tokens correctly if the end of an answer cuts a step."""

from types import SimpleNamespace

import pytest

from jakiro.server.reply import Reply
from tests.test_trace import header, node, step


@pytest.mark.parametrize(("num_committed", "accepted"), [(4, 3), (3, 3), (2, 2), (1, 1)])
def test_accepted_tokens_are_those_in_the_answer(num_committed, accepted):
    """A step of three accepted nodes and a bonus token, cut after some of them."""
    nodes = (node(10), *(node(10 + depth, depth - 1, depth, "expert_0") for depth in (1, 2, 3)))
    last = step(0, (1, 2, 3), nodes, committed=(11, 12, 13, 99)[:num_committed])
    options = SimpleNamespace(include_usage=False)
    body = SimpleNamespace(stream=False, jakiro=None, n=1, stream_options=options)
    extension = SimpleNamespace(provenance=False, alternatives=False)
    request = SimpleNamespace(
        raw=False, body=body, extension=extension, index=0, prediction="", method=None, hints=(), logprobs=None
    )
    reply = Reply([request], "tiny")
    for event in (("header", None, header()), ("step", None, last), ("end", None, "length")):
        reply.take(0, event)
    usage = reply.to_dict()["usage"]
    assert usage["completion_tokens"] == 1 + num_committed
    assert usage["completion_tokens_details"] == {
        "accepted_prediction_tokens": accepted,
        "rejected_prediction_tokens": 3 - accepted,
    }
