"""A generator without a model: every run is scripted, so that its numbers can be counted by hand."""

from types import SimpleNamespace

from jakiro.trace import Plan, Step, Trace
from tests.app.fake import FakeRace, FakeStream
from tests.test_trace import header, node

# Fields of `environment` that tables show
STAMP = {"target": "a-model", "cpu": "A processor", "threads": 2,
          "torch": "2.13.0", "device": "cpu", "dtype": "float32", "weight_bits": 16,
         "compiled": True, "date": "2026-11-23T10:00:00+00:00"}  # fmt: skip


def step(index, committed_ids, candidates, draft_ms, verify_ms, other_ms, margin=1.0):
    """Return a step with one chain below the root as its tree; all committed ids except the last were drafted."""
    plain = {"piece": b"x", "evidence": {}, "also_proposed_by": (), "target_choice": 5, "margin": margin}
    chain = range(candidates + 1)
    nodes = tuple(node(5, depth - 1, depth, "expert_0" if depth else "root", **plain) for depth in chain)
    path, text = tuple(range(1, len(committed_ids))), "x" * (len(committed_ids) + (index == 0))
    plan = Plan(levels=candidates, nodes=candidates + 1, why="scripted")
    ids = committed_ids[-1], b"x", tuple(committed_ids)
    return Step(index, nodes, path, *ids, text, draft_ms, verify_ms, other_ms, plan)


def trace(method, first_token_id, blocks, candidates=0, parts=(0.0, 10.0, 0.0), end_reason="eos", margins=None):
    """Return a run with steps that commit the given blocks of ids."""
    request = {"method": method, "messages": ({"role": "user", "content": "hi"},), "num_prompt_tokens": 3}
    proposer = {"id": "expert_0", "label": "Expert 1", "sentence": "Guessed the candidate itself."}
    pair = {"target": {"name": "scripted", "sha256": "0"}, "drafter": None, "proposers": (proposer,)}
    first = {"first_token_id": first_token_id, "first_piece": b"x", "first_text": "x", "prefill_ms": 5.0}
    margins = margins or [1.0] * len(blocks)
    steps = [step(i, block, candidates, *parts, margin=margins[i]) for i, block in enumerate(blocks)]
    return Trace(header(**request | pair | first), steps, end_reason)


class ScriptedGenerator:
    """A generator that answers every prompt with five tokens: plain in four steps of 10 ms, drafted in two of 8 ms.

    Args:
        drafted_ids: ids that each drafted step commits; by default the text of plain decoding.
    """

    def __init__(self, drafted_ids=((2, 3, 4), (9,))):
        self.drafted_ids = drafted_ids
        self.calls, self.closed = [], 0
        self.status = {
            "target": "scripted",
            "head": "scripted",
            "device": "cpu",
            "dtype": "float32",
            "numerics": "exact",
            "bit_identical": True,
            "notices": ["A notice."],
        }

    def drafter(self, method):
        return SimpleNamespace(info=None)

    def run(self, messages, sampling=None, method="jakiro", tree=None, raw=False):
        self.calls.append((messages, sampling, method, tree))
        if method == "autoregressive":
            return trace(method, 1, [(2,), (3,), (4,), (9,)], margins=[0.4, 0.3, 0.2, 0.1])
        return trace(method, 1, self.drafted_ids, candidates=3, parts=(2.0, 5.0, 1.0))

    def stream(self, messages, sampling=None, method="jakiro", tree=None, raw=False):
        complete = self.run(messages, sampling, method, tree, raw)
        trace = Trace(complete.header)

        def steps():
            yield from complete.steps
            trace.end_reason = complete.end_reason

        return FakeStream(self, trace, steps())

    def race(self, messages, sampling=None, methods=None, tree=None, raw=False):
        raced = methods or ("autoregressive", "jakiro")
        return FakeRace({method: self.stream(messages, sampling, method, tree, raw) for method in raced})
