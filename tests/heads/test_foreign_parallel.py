"""Published Medusa-1 folders draft the tokens that a small reference computes from the formula of the paper."""

import json

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.drafters.base import DraftRequest
from jakiro.drafters.registry import METHODS
from jakiro.heads.checkpoint import load_head, misfits
from jakiro.training.losses import LossWeights, objective_for
from tests.support import HIDDEN_SIZE, TOKENIZER_SIZE, prompt_of, tiny_target

HEADS, KV_HEADS, WIDTH, INNER = 4, 2, 16, 96
NUM_MLPS = 3


def random(*shape, seed=[0]):  # noqa: B006
    seed[0] += 1
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed[0])) * 0.2


def blocks_at(name, count):
    size = HIDDEN_SIZE
    return {
        f"{name}{place}.linear.{kind}": random(*shape)
        for place in count
        for kind, shape in (("weight", (size, size)), ("bias", (size,)))
    }


def medusa_tensors(prefix="", blocks=1):
    tensors = {}
    for number in range(NUM_MLPS):
        tensors |= blocks_at(f"{prefix}{number}.", range(blocks))
        tensors[f"{prefix}{number}.{blocks}.weight"] = random(TOKENIZER_SIZE, HIDDEN_SIZE)
    return tensors


def medusa_folder(folder, tensors, name="medusa_lm_head.pt"):
    folder.mkdir()
    config = {"medusa_num_heads": NUM_MLPS, "medusa_num_layers": 1, "base_model_name_or_path": "tiny"}
    (folder / "config.json").write_text(json.dumps(config))
    torch.save(tensors, folder / name) if name.endswith(".pt") else save_file(tensors, folder / name)
    return folder


@pytest.fixture(scope="module")
def target():
    return tiny_target()


def chain_of(head, target, ids, features, levels, methods=METHODS):
    """Return tokens and probabilities of the best chain that the head drafts after a text."""
    head.bind(target.embedding, target.output_weight)
    session = methods.drafter_of(head).start(prompt_of(ids, features), SamplingParams(), KeyedNoise(0))
    tree = session.propose(DraftRequest(TreeConfig(width=1, depth=levels, nodes=levels + 1))).tree
    return tree.token_ids[1:], tree.draft_probs[1:]


def silu_block(tensors, name, hidden):
    return functional.silu(hidden @ tensors[f"{name}.linear.weight"].T + tensors[f"{name}.linear.bias"])


@pytest.mark.parametrize(
    ("prefix", "name"), [("", "medusa_lm_head.pt"), ("medusa_head.", "medusa_lm_head.safetensors")]
)
def test_published_medusa_head_drafts_by_its_formula(prefix, name, target, tmp_path):
    tensors = medusa_tensors(prefix)
    head = load_head(medusa_folder(tmp_path / "head", tensors, name))
    assert not misfits(head.config, target.config)
    ids, features = torch.tensor([5, 6, 7, 8]), random(3, HIDDEN_SIZE)
    token_ids, probs = chain_of(head, target, ids, features, NUM_MLPS)
    for number in range(NUM_MLPS):
        hidden = features[-1] + silu_block(tensors, f"{prefix}{number}.0", features[-1])
        expected = (tensors[f"{prefix}{number}.1.weight"] @ hidden).softmax(-1)
        assert int(token_ids[number]) == int(expected.argmax())
        assert float(probs[number]) == pytest.approx(float(expected.max()), rel=1e-4)


def test_published_mlps_are_not_trained(tmp_path):
    head = load_head(medusa_folder(tmp_path / "head", medusa_tensors()))
    with pytest.raises(ValueError, match="which Jakiro can draft with but not train; train a new head with --method"):
        objective_for(head, LossWeights())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"1.1.weight": None}, "missing ['mlps.1.output.weight']"),
        ({"1.0.linear.bias": None}, "missing ['mlps.1.blocks.0.linear.bias']"),
        (
            {f"1.{name}": None for name in ("0.linear.weight", "0.linear.bias", "1.weight")},
            "missing ['mlps.1.blocks.0.linear.bias', 'mlps.1.blocks.0.linear.weight', 'mlps.1.output.weight']",
        ),
        ({"0.1.weight": None}, "do not end in output rows"),
        ({"900000.1.weight": torch.zeros(2, 2)}, "for 900001 MLPs of 1 blocks"),
        ({"0.900000.weight": torch.zeros(2, 2)}, "for 3 MLPs of 900000 blocks"),
    ],
)
def test_medusa_head_of_another_form_is_refused_with_its_tensors(change, words, tmp_path):
    tensors = {name: tensor for name, tensor in (medusa_tensors() | change).items() if tensor is not None}
    with pytest.raises(ValueError, match=r"The (draft|Medusa) head") as refusal:
        load_head(medusa_folder(tmp_path / "head", tensors))
    assert words in str(refusal.value)
