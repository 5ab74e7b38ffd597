"""Captured passes at the shapes of 7B targets: CUDA rejects a capture that moves data between host and device."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights

from jakiro.backends.cuda_graphs.buffers import MOST_NODES
from jakiro.backends.cuda_graphs.pool import GraphPool
from jakiro.config import ROOT_ONLY, Grammar, SamplingParams, TreeConfig
from jakiro.core.logits_processors import LogitsProcessor, make_logits_processors
from jakiro.drafters.base import Context, Drafter, DraftRequest, Resources
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN, WITH_COPIES
from jakiro.heads.kinds import KINDS, make_head
from jakiro.models import target as targets
from jakiro.models.llama import FusedLlama
from jakiro.models.target import TargetModel
from jakiro.training.start import head_config
from tests.backends.fake_cuda_tensors import CUDA, Crossings, FakeCudaTensors

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU captures the passes themselves")

# Kind, hidden size, intermediate size, layers, heads, key/value heads, vocabulary
SHAPES = {
    "Vicuna-7B": ("llama", 4096, 11008, 32, 32, 32, 32000),
    "Llama-3-8B": ("llama", 4096, 14336, 32, 32, 8, 128256),
    "Qwen2.5-7B": ("qwen2", 3584, 18944, 28, 28, 4, 152064),
}
# All layers run the same operations; a few are enough for the matrix of drafters and settings
FEW_LAYERS = 4
SAMPLINGS = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(1.0),
    "top-p": SamplingParams(1.0, top_p=0.9),
    "top-k": SamplingParams(0.7, top_k=40),
    "min-p": SamplingParams(0.7, min_p=0.1),
    "penalties": SamplingParams(0.7, repetition_penalty=1.1, presence_penalty=0.3),
    "biases": SamplingParams(logit_bias=((7, 2.0),), suppress_tokens=(9,)),
}
# Name of a drafter: the method and the fields of its head
DRAFTERS = {
    "plain": (PLAIN, {}),
    "summed": (DEFAULT, {"fusion": "summed"}),
    "decoupled": (DEFAULT, {"fusion": "decoupled"}),
    "with copies": (WITH_COPIES, {"fusion": "decoupled"}),
    "eagle3": (METHODS["eagle3"], {"feature_layers": (1, 2, 3), "draft_vocab_size": 200}),
    "dflash": (METHODS["dflash"], {"feature_layers": (1, 2, 3)}),
    "medusa": (METHODS["medusa"], {}),
    "parallelspec": (METHODS["parallelspec"], {}),
}
# Their drafts have no fixed shape and run kernel by kernel; the target's passes are captured
DRAFTED_EAGERLY = {"medusa", "parallelspec"}
PROMPT_TOKENS, LAST_TOKENS = 900, 1100


@pytest.fixture
def fake(monkeypatch, without_compiled_functions) -> FakeCudaTensors:
    """Return fake CUDA tensors; skip the trial passes at load, which compare values."""

    class NoTrial:
        def __init__(self, *model) -> None:
            """Run nothing."""

        def failure(self, target) -> None:
            return None

    monkeypatch.setattr(targets, "Trial", NoTrial)
    monkeypatch.setattr("jakiro.models.weights.output_function", lambda model, like: model.get_output_embeddings())
    monkeypatch.setattr("jakiro.models.target.is_bit_identical", lambda *arguments: True)
    monkeypatch.setattr(FusedLlama, "build", classmethod(lambda cls, model, packing: cls.of(model, packing)))
    return FakeCudaTensors(monkeypatch)


def fake_target(name: str, numerics: str, layers: int | None = FEW_LAYERS) -> TargetModel:
    """Return a target of fake bfloat16 weights; `layers` None keeps the number of its shape."""
    kind, hidden_size, intermediate_size, all_layers, heads, kv_heads, vocab_size = SHAPES[name]
    config = AutoConfig.for_model(
        kind, hidden_size=hidden_size, intermediate_size=intermediate_size, num_hidden_layers=layers or all_layers,
        num_attention_heads=heads, num_key_value_heads=kv_heads, vocab_size=vocab_size, max_position_embeddings=4096,
        tie_word_embeddings=False,
    )  # fmt: skip
    with CUDA, no_init_weights():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval().requires_grad_(False)
    target = TargetModel(model, nn.Module(), name, None, numerics)
    assert target.device.type == "cuda" and target.fused is not None and target.bucketed
    return target


def fake_drafter(name: str, target: TargetModel) -> tuple[TargetModel, Drafter]:
    """Return the drafter, and the target with the features that its head reads."""
    method, fields = DRAFTERS[name]
    if method is PLAIN:
        return target, method.load(Resources(target))
    config = head_config(KINDS[method.needs.head[0]], target.config, **((method.trains or {}) | fields))
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with CUDA:
            head = make_head(config).eval().requires_grad_(False)
    finally:
        torch.set_default_dtype(dtype)
    # Buffers made from lists are on the CPU. `Module.to` cannot swap fake parameters
    for module in head.modules():
        for buffer_name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, buffer_name, buffer.to(CUDA))
    head.bind(target.embedding, target.output_weight).pack("int8")
    target = target.with_feature_layers(fields.get("feature_layers", ()))
    return target, method.load(Resources(target, head, {"name": name, "sha256": None}))


def tree_for(drafter: Drafter) -> TreeConfig:
    return TreeConfig(nodes=MOST_NODES) if drafter.proposers else ROOT_ONLY


def capture_all(target: TargetModel, name: str, samplings=SAMPLINGS) -> GraphPool:
    """Capture the passes that a drafter needs for these samplings, in one set of buffers."""
    target, drafter = fake_drafter(name, target)
    pool = GraphPool(target, True)
    for sampling in samplings.values():
        buffers = pool.borrow(drafter, sampling, tree_for(drafter), PROMPT_TOKENS, LAST_TOKENS)
        assert (buffers.static_drafter(drafter) is None) == (name in DRAFTED_EAGERLY)
        pool.give_back(buffers)
    return pool


def check_captures(fake: FakeCudaTensors, pool: GraphPool, fewest: int) -> None:
    assert pool.graphs.failure is None
    assert len(fake.captures) == pool.graphs.num_captured >= fewest
    assert min(fake.captures) > 0
    assert not fake.crossings, fake.crossings


@pytest.mark.parametrize("drafter", ["plain", "decoupled"])
def test_captured_passes_move_nothing_between_host_and_device(drafter, fake):
    with fake.active():
        check_captures(fake, capture_all(fake_target("Llama-3-8B", "exact", 2), drafter), 10)


@pytest.mark.rare
@pytest.mark.parametrize("drafter", DRAFTERS)
@pytest.mark.parametrize("numerics", ["exact", "fast"])
@pytest.mark.parametrize("shape", SHAPES)
def test_captured_passes_of_every_drafter_move_nothing(shape, numerics, drafter, fake):
    with fake.active():
        check_captures(fake, capture_all(fake_target(shape, numerics), drafter), 10)


@pytest.mark.rare
@pytest.mark.parametrize("shape", SHAPES)
def test_captured_passes_over_all_layers_move_nothing(shape, fake):
    sampling = {"sampled": SAMPLINGS["sampled"]}
    with fake.active():
        check_captures(fake, capture_all(fake_target(shape, "exact", None), "with copies", sampling), 6)


def set_one_element(logits: torch.Tensor) -> torch.Tensor:
    logits[0, 0] = 0.0
    return logits


PLANTED = {
    "one element": set_one_element,
    "to the host": lambda logits: (logits.cpu(), logits)[1],
    "from the host": lambda logits: logits + torch.zeros(logits.shape[1]).to(logits.device),
    "a new tensor": lambda logits: logits + torch.tensor([1.0], device=logits.device),
}


@pytest.mark.parametrize("planted", PLANTED.values(), ids=PLANTED)
def test_a_planted_crossing_is_reported(planted, fake):
    """Release 0.8 had such an assignment to one element, for which CUDA rejects every verify graph."""
    with fake.active():
        target = fake_target("Vicuna-7B", "exact", 1)
        output = target.logits
        target.logits = lambda features: planted(output(features))
        capture_all(target, "plain", {"greedy": SAMPLINGS["greedy"]})
        assert fake.crossings


def test_a_planted_read_is_an_error(fake):
    with fake.active():
        target = fake_target("Vicuna-7B", "exact", 1)
        output = target.logits
        target.logits = lambda features: output(features) * output(features)[0, 0].item()
        with pytest.raises(DataDependentOutputException):
            capture_all(target, "plain", {"greedy": SAMPLINGS["greedy"]})


class AllTokens(LogitsProcessor):
    """A grammar that allows everything."""

    name = "grammar"

    def forbid(self, token_ids, parents, allowed) -> None:
        """Remove no token."""


def test_a_step_with_a_grammar_reads_twice_and_sends_one_mask(fake):
    """The host reads the tree's tokens, sends the mask of allowed tokens, and reads the result."""
    sampling = SamplingParams(0.7, grammar=Grammar("regex", "[a-z]*"), top_p=0.9)
    with fake.active(), torch.inference_mode():
        target, loaded = fake_drafter("decoupled", fake_target("Qwen2.5-7B", "exact", 1))
        slot = GraphPool(target, True).borrow(loaded, sampling, tree_for(loaded), PROMPT_TOKENS, LAST_TOKENS)
        ids = torch.zeros(PROMPT_TOKENS + 1, dtype=torch.int64, device=CUDA)
        features, _ = slot.prefill(ids[:-1])
        slot.begin(ids[-1:], make_logits_processors(sampling, target.vocab_size, CUDA, AllTokens()))
        session = slot.drafter.start(Context([0] * len(ids), ids, features), sampling, slot.draft_noise)
        proposal = session.propose(DraftRequest(tree_for(loaded)))
        slot.score(proposal.tree)
        fake.reads.clear()
        with Crossings() as crossings:
            slot.verify(proposal.tree)
        assert sum(fake.reads.values()) == 2
        assert sum(crossings.counts.values()) == 1, crossings.counts
        assert not fake.crossings and not fake.uploads
