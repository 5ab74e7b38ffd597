"""Every captured pass and a whole step on a pretended CUDA device: what crosses to the host there, CUDA refuses.

At small shapes of one family in every run, at the true ones of three 7B targets in `make test-all`.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException

from jakiro.config import AUTOMATIC_TREE, ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.drafting.base import Committed, Context, Proposal, TreeLimits
from jakiro.drafting.heads import HeadDrafter
from jakiro.drafting.merged import MergedDrafter
from jakiro.graphs.capture import Graphs
from jakiro.graphs.pool import SLOT_TOKENS
from jakiro.graphs.slot import Slot
from jakiro.methods.plain import PlainDrafter
from jakiro.methods.prompt_lookup import PromptLookupDrafter
from tests.graphs.fake_cuda import CUDA, guard, pretended
from tests.graphs.true_shapes import CONFIGS, config_of, head_of, target_on

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here; test_cuda.py captures on it"),
    # A slot tells its own tree from others by address: here all are the same
    pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor"),
]

TREE, SMALL_TREE = TreeConfig(width=8, depth=5, nodes=64), TreeConfig(width=4, depth=3, nodes=16)
SAMPLINGS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(1.0),
    "top-p": SamplingParams(1.0, top_p=0.9),
    "top-k": SamplingParams(0.7, top_k=40),
}
SMALL = {"intermediate_size": 512, "num_hidden_layers": 1, "vocab_size": 1024, "head_dim": 16}
PROMPT = 900
KINDS = {"write_root", "write_noise", "score_rows", "verify_rows", "commit_rows", "grow"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    reason = guard(tmp_path_factory.mktemp("guard"))
    if reason:
        pytest.skip(reason)


@pytest.fixture
def device(guarded, monkeypatch, without_compiled_functions):
    with pretended(monkeypatch) as found:
        yield found


def small(name):
    """A target of the same family and as many heads a group, small."""
    config = config_of(name).to_dict()
    groups = config["num_attention_heads"] // config["num_key_value_heads"]
    heads = 2 * groups
    config |= SMALL | {"hidden_size": 16 * heads, "num_attention_heads": heads, "num_key_value_heads": 2}
    config["layer_types"] = None
    return type(config_of(name)).from_dict(config)


def rehearse(config, name, numerics, device, monkeypatch, trees, fusions=(None, "summed", "decoupled")):
    """All that crosses, by pass, and the kinds of passes there are."""
    target, crossings, known = target_on(CUDA, config, name, numerics, monkeypatch), {}, {}
    assert target.device == CUDA and target.lean.is_static
    for fusion in fusions:
        slot = Slot(target, Graphs(CUDA, False), SLOT_TOKENS)
        drafter = PlainDrafter()
        if fusion is not None:
            drafter = MergedDrafter(HeadDrafter(head_of(target, fusion)), PromptLookupDrafter())
        for sampling in SAMPLINGS.values():
            for tree in trees if fusion else (ROOT_ONLY,):
                asked = (drafter, sampling, tree, PROMPT, PROMPT + 20)
                slot.open(*asked)
                for each in slot.needed(*asked):
                    kind = each.function.func.__name__
                    if each not in known:
                        with device.watched() as watch:
                            each()
                        if watch.found:
                            # What a warm-up makes for good, a capture finds made
                            with device.watched() as watch:
                                each()
                        assert watch.operations
                        known[each] = kind
                        crossings |= {(fusion, sampling, kind): watch.found} if watch.found else {}
        step = a_step(slot, drafter, TreeLimits(tree), device)
        crossings |= {(fusion, sampling, "a step"): step} if step else {}
    return crossings, set(known.values())


def a_step(slot, drafter, limits, device):
    """What crosses in a step, but for the read, which has nothing to read here."""
    ids = torch.zeros(PROMPT + 1, dtype=torch.int64, device=CUDA)
    features, _ = slot.prefill(ids[:PROMPT])
    slot.begin(ids[-1:])
    session = slot.session(drafter, Context([0] * (PROMPT + 1), ids, features)) if drafter.proposers else None
    slot._to_host = lambda rows: [0.0] * slot._packed[slot._layout].shape[0]
    with device.watched(capturing=False) as watch:
        proposal = Proposal(slot.root_tree()) if session is None else session.propose(limits)
        slot.score(proposal.tree)
        outcome = slot.verify(proposal)
        new_ids, new_features = slot.commit(outcome)
        if session is not None:
            session.observe(Committed([0], new_ids, new_features, outcome))
    return watch.found


def test_fake_cuda_no_captured_pass_and_no_step_crosses_to_the_host(device, monkeypatch):
    name = "Llama-3-8B"
    crossings, kinds = rehearse(small(name), name, "exact", device, monkeypatch, (SMALL_TREE,))
    assert not crossings and kinds == KINDS
    # How a head drafts does not depend on the numerics
    crossings, kinds = rehearse(small(name), name, "fast", device, monkeypatch, (), (None,))
    assert not crossings and kinds == KINDS - {"grow"}


@pytest.mark.rare
@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize("name", CONFIGS)
def test_fake_cuda_none_crosses_at_true_shapes_and_with_trees_that_size_themselves(name, numerics, device, monkeypatch):
    trees = (TREE, AUTOMATIC_TREE)
    crossings, kinds = rehearse(config_of(name), name, numerics, device, monkeypatch, trees)
    assert not crossings and kinds == KINDS


def test_fake_cuda_notices_what_a_capture_refuses(device):
    here, there = torch.ones(4), torch.ones(4, device=CUDA)
    pinned = torch.ones(4, pin_memory=True)
    for number, wait in enumerate([
        lambda: there.__setitem__(0, 2.0),
        lambda: there.copy_(here),
        lambda: there.copy_(pinned, non_blocking=True),
        lambda: there.cpu(),
        lambda: torch.tensor([1.0, 2.0], device=CUDA),
        lambda: there.new_tensor([1.0]),
        lambda: there[torch.tensor([0, 1], device="cpu")],
    ]):  # fmt: skip
        with device.watched() as watch:
            wait()
        assert watch.found, number
    with device.watched() as watch:
        there[1:] = 2.0
        torch.where(there > 1, there, -1.0).mul_(3.0)
    assert not watch.found
    with device.watched(capturing=False) as watch:
        there.copy_(pinned, non_blocking=True)
        assert not watch.found
        there.copy_(here, non_blocking=True)
    assert watch.found
    with pytest.raises(DataDependentOutputException), device.watched():
        there.sum().item()
    with pytest.raises(DynamicOutputShapeException), device.watched():
        there[there > 0]
