"""A pair widened with zeros: another cost, the same text."""

import copy

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.base import Resources
from jakiro.generator import JakiroGenerator
from jakiro.loading import shapes
from jakiro.loading.loader import LoadedModels, LoadOptions
from jakiro.loading.registry import Pair
from jakiro.models.target import TargetModel
from lab import scaling
from lab.scaling import OFFICIAL, Widener, widen
from tests.support import HEADS, byte_tokenizer, tiny_head, tiny_model, tiny_target

LIMIT = 3_000_000
SAMPLINGS = (SamplingParams(max_new_tokens=24), SamplingParams(temperature=0.9, seed=4, max_new_tokens=24))


def generator_over(model, head):
    target = TargetModel(model, byte_tokenizer(), "tiny")
    return JakiroGenerator(Resources(target, head.bind(target.embedding, target.output_weight).pack()))


def pair(kind="summed"):
    return tiny_model(), tiny_head(tiny_target(), **HEADS[kind], bind=False)


def weights_of(model):
    linears = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]
    return sum(linear.weight.numel() for linear in linears)


@pytest.mark.parametrize("kind", HEADS)
def test_a_widened_pair_writes_the_narrow_pairs_text_with_and_without_drafting(kind):
    model, head = pair(kind)
    narrow = generator_over(copy.deepcopy(model), copy.deepcopy(head))
    widen(model, head, "7b", LIMIT)
    wide = generator_over(model, head)
    assert wide.target.bit_identical == narrow.target.bit_identical
    for sampling in SAMPLINGS:
        tree = TreeConfig(width=4, depth=4, nodes=12)
        expected, drafted = narrow.run("Tell me.", sampling, tree=tree), wide.run("Tell me.", sampling, tree=tree)
        plain = wide.run("Tell me.", sampling, method="autoregressive")
        assert plain.token_ids == drafted.token_ids == expected.token_ids
        # The same candidates too, so that acceptance is the small pair's.
        for ours, theirs in zip(drafted.steps, expected.steps, strict=True):
            assert [node.token_id for node in ours.nodes] == [node.token_id for node in theirs.nodes]


@pytest.mark.parametrize("kind", ["summed", "decoupled"])
def test_what_a_pass_reads_has_the_official_ratio_and_is_counted_right(kind):
    model, head = pair(kind)
    widening = widen(model, head, "7b", LIMIT)
    assert widening.before == (128, 64)
    assert widening.weights.target == pytest.approx(LIMIT, rel=0.02)
    assert widening.weights.target == weights_of(model)
    output = 0 if head.config.draft_vocab_size else head.config.vocab_size * head.config.hidden_size
    assert widening.weights.head == weights_of(head) + output
    official = OFFICIAL["7b"]
    assert widening.weights.head / widening.weights.target == pytest.approx(official.head / official.target, rel=0.2)
    assert (
        model.config.intermediate_size == widening.inner_size == model.base_model.layers[0].mlp.gate_proj.out_features
    )
    assert head.config.expert_intermediate_size == widening.expert_size


def test_the_widener_gives_the_pair_a_name_of_its_own(monkeypatch):
    monkeypatch.setattr("lab.scaling.free_memory", lambda device: 16 * LIMIT)
    model, head = pair()
    names = Pair("tiny", "tiny", "head", None)
    widener = Widener("7b")
    options = LoadOptions(numerics="exact")
    read = widener(LoadedModels(names, model, byte_tokenizer(), "0" * 64, head, options))
    assert read.sha256 is None and read.names.target_name.startswith("tiny, widened to 7b's costs (MLP ")
    assert "Texts and acceptance are the small pair's." in widener.widening.sentence
    with pytest.raises(ValueError, match="Only a target with a draft head"):
        Widener("7b")(LoadedModels(names, model, byte_tokenizer(), None, None, options))
    with pytest.raises(ValueError, match="can be scaled to 7b; got '8b'"):
        Widener("8b")


def test_random_weights_of_a_true_shape_take_the_small_pair_s_place(monkeypatch):
    assert scaling.SHAPES["7b-random"] is shapes.SHAPES["vicuna-7b-v1.3"]
    tiny = {"hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4}
    monkeypatch.setitem(
        scaling.SHAPES, "7b-random", shapes.Shape(*tiny.values(), kv_heads=4, head_dim=24, vocabulary=0)
    )
    model, head = pair()
    scaler = scaling.scaler("7b-random")
    read = scaler(
        LoadedModels(Pair("tiny", "tiny", "head", None), model, byte_tokenizer(), "hash", head, LoadOptions())
    )
    assert read.sha256 is None and "random" in read.names.target_name and "means nothing" in scaler.widening.sentence
    config = read.model.config
    assert {name: getattr(config, name) for name in tiny} == tiny and config.vocab_size == model.config.vocab_size
    assert scaler.widening.weights.target == weights_of(read.model)
    generator = generator_over(read.model, read.head)
    sampling, tree = SamplingParams(max_new_tokens=6), TreeConfig(width=4, depth=4, nodes=12)
    plain = generator.run("Tell me.", sampling, method="autoregressive")
    assert generator.run("Tell me.", sampling, tree=tree).token_ids == plain.token_ids
