"""Drafts that run the target's own layers propose the predictions of these layers."""

import json
import re

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.drafters.base import DraftRequest, Resources
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.registry import PLAIN
from jakiro.generator import JakiroGenerator
from jakiro.heads.layer_head import LayerHead
from jakiro.models.stored import StoredModel
from jakiro.models.target import TargetModel
from jakiro.ops import kernels
from lab import KNOWN, METHODS
from lab.layers import plan as layer_plan
from lab.layers.exit_head import scaled
from lab.layers.plan import LayerPlan
from lab.methods import s2d
from lab.methods.skip import SkippingHead
from lab.tests.test_subset import model_of
from lab.training import exits
from tests.models.test_stored import write_model
from tests.support import DEVICE, byte_tokenizer, committed, head_fields, prompt_of, tiny_head, tiny_model, tiny_target

TEXT = torch.arange(30) * 11 % 250
GREEDY, CHAIN = SamplingParams(), TreeConfig(width=1, depth=3, nodes=4)


def proposed(drafter, chunks=(9, 4, 1, 6)):
    """Yield the number of committed tokens, the chain that is then proposed, and its probabilities."""
    end = chunks[0]
    session = drafter.start(prompt_of(TEXT[:end], torch.zeros(end - 1, 64)), GREEDY, KeyedNoise(0))
    for count in (*chunks[1:], 0):
        tree = session.propose(DraftRequest(CHAIN)).tree
        yield end, tree.token_ids.tolist()[1:], tree.draft_probs.tolist()[1:]
        session.observe(committed(TEXT[end : end + count], torch.zeros(count, 64))) if count else None
        end += count


def assert_predicts(drafter, probs_after, most=1e-3):
    """Assert that every proposed token has the probability of `probs_after` after the text and the earlier tokens."""
    for end, chain, probs in proposed(drafter):
        for depth, (token, prob) in enumerate(zip(chain, probs, strict=True)):
            expected = probs_after(torch.cat([TEXT[:end], torch.tensor(chain[:depth], dtype=torch.int64)]))
            assert prob == pytest.approx(float(expected[token]), abs=most)
            assert token == int(expected.argmax())


@pytest.mark.parametrize("kept_layers", [(0, 2), (0, 1, 3)], ids=str)
def test_skipped_layers_predict_like_a_model_without_them(kept_layers):
    stock = model_of(kept_layers)
    target = TargetModel(tiny_model(layers=4), byte_tokenizer(), "tiny")
    drafter = HeadDrafter(SkippingHead(target, LayerPlan(kept_layers)), has_evidence=False)
    assert_predicts(drafter, lambda ids: stock(input_ids=ids[None], use_cache=False).logits[0, -1].softmax(-1))


@pytest.mark.parametrize("name", ["exit", "distillspec"])
def test_an_exit_proposes_the_predictions_of_its_layer(name):
    target, stock = tiny_target(), tiny_model()
    head = tiny_head(target, known=KNOWN, **head_fields(KNOWN[name]))
    drafter = KNOWN[name].load(Resources(target, head, {"name": "tiny"}))

    def probs_after(ids):
        lower = scaled(stock.model(input_ids=ids[None], output_hidden_states=True).hidden_states[1])
        places = torch.arange(len(ids))[None]
        return head.logits(LayerHead.forward(head, head.embed(ids)[None], lower, places).features[0, -1]).softmax(-1)

    assert_predicts(drafter, probs_after)


@pytest.mark.parametrize(("threshold", "number"), [(0.0, 0), (2.0, 2)])
def test_s2d_drafts_with_the_first_confident_exit(threshold, number, monkeypatch):
    monkeypatch.setattr(s2d, "THRESHOLD", threshold)
    target, stock = tiny_target(), tiny_model()
    head = tiny_head(target, known=KNOWN, **head_fields(KNOWN["s2d"]))
    head.attach(target)

    def probs_after(ids):
        states = stock.model(input_ids=ids[None], output_hidden_states=True).hidden_states
        # The last state of transformers is after the final norm; the exit reads the state before it
        before_norm = []
        stock.model.norm.register_forward_pre_hook(lambda _, inputs: before_norm.append(inputs[0]))
        stock.model(input_ids=ids[None])
        stock.model.norm._forward_pre_hooks.clear()
        lower = [scaled(states[1]), scaled(before_norm[0])]
        exits = head.all_exits(head.embed(ids)[None], lower, torch.arange(len(ids))[None])
        return head.logits(exits[number][0, -1]).softmax(-1)

    drafter = s2d.nested_drafter(head)
    assert_predicts(drafter, probs_after)
    lengths = {len(chain) for _, chain, _ in proposed(drafter)}
    assert lengths == ({3} if threshold == 0 else {1}), "one level without a confident exit"
    names = {proposer.id for proposer in drafter.proposers}
    assert names == {"exit_1", "exit_2", "exit_3"}


@pytest.mark.parametrize("name", ["exit", "s2d", "distillspec", "mcsd_exit"])
def test_a_missing_exit_head_names_the_command_that_trains_it(name):
    target = tiny_target()
    generator = JakiroGenerator(Resources(target, tiny_head(target)), methods=KNOWN)
    trained = "exit" if name == "mcsd_exit" else name
    sentence = f"{name} needs a head that `python -m lab.training.exits --method {trained}` trains, given with --head; "
    with pytest.raises(ValueError, match=re.escape(sentence)):
        generator.stream("Why?", method=name)
    assert trained in exits.TAUGHT


def test_a_plan_is_found_by_its_target_and_refused_if_it_does_not_fit(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.files.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr("lab.files._ASSETS", tmp_path / "shipped")
    assert layer_plan.find_plan("tiny") is None
    drafter = KNOWN["skip"].load(Resources(tiny_target()))
    assert drafter.info["name"] == "layers 0" and drafter.proposers[0].label == "1 of 2 layers"
    plan = LayerPlan((0, 1), {"main/1/greedy": 0.5}, {"target": "tiny"})
    plan.save(tmp_path / "shipped" / "layers" / "tiny.json")
    assert LayerPlan.load(layer_plan.find_plan("tiny"), 2) == plan
    assert KNOWN["skip"].load(Resources(tiny_target())).head.config.calibration == plan.calibration
    LayerPlan((1,)).save(layer_plan.plan_path("tiny"))
    assert KNOWN["skip"].load(Resources(tiny_target())).info["name"] == "layers 1", "the user's plan has precedence"
    other = json.dumps({"kept": [0, 2], "calibration": {}, "manifest": {}})
    for text, words in (
        (other, r"has layers \[0, 2\], but the target has 0 to 1"),
        (json.dumps({"kept": []}), "is not a layer plan"),
        ("[", "is not a layer plan"),
    ):
        layer_plan.plan_path("tiny").write_text(text)
        with pytest.raises(ValueError, match=words):
            KNOWN["skip"].load(Resources(tiny_target()))


@pytest.mark.skipif(
    DEVICE.type == "cuda" or kernels.current() is kernels.TORCH,
    reason="no compiled functions, or the suite is on a GPU",
)
def test_layers_in_a_gguf_file_s_own_bits_write_plain_decoding_s_text(tmp_path, monkeypatch):
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    generator = JakiroGenerator.from_pretrained(str(write_model(tmp_path, "Q8_0")), device="cpu", methods=METHODS)
    assert isinstance(generator.target.model, StoredModel)
    limits = SamplingParams(max_new_tokens=20)
    plain, skipped = (generator.run("abab", limits, method, CHAIN) for method in (PLAIN.name, "skip"))
    assert skipped.token_ids == plain.token_ids and len(skipped.steps) < len(plain.steps)
