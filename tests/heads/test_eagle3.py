"""EAGLE-3: trees of the published code over three rounds in both published formats, and unsupported configs."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from jakiro.config import TreeConfig
from jakiro.drafters.eagle3 import fused_drafter
from jakiro.heads.checkpoint import load_head
from jakiro.heads.config import named_target
from jakiro.heads.eagle3.config import Eagle3Config
from jakiro.heads.eagle3.network import Eagle3Head
from tests.heads.golden import assert_grows
from tests.heads.test_foreign import write_folder

DATA = Path(__file__).parents[1] / "data"
CASES = json.loads((DATA / "eagle3_cases.json").read_text(encoding="utf-8"))


def official_config(case: dict) -> dict:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": case["hidden"],
        "intermediate_size": case["inter"],
        "num_attention_heads": case["heads"],
        "num_key_value_heads": case["kv"],
        "num_hidden_layers": 1,
        "vocab_size": case["vocab"],
        "draft_vocab_size": case["draft_vocab"],
        "rms_norm_eps": case.get("eps", 1e-6),
        "rope_theta": case["theta"],
    }


def as_speculators(values: dict, tensors: dict) -> tuple[dict, dict]:
    """Return config and tensors of the same head in speculators' format."""
    layer_config = {name: value for name, value in values.items() if name not in ("architectures", "draft_vocab_size")}
    layers = {name.replace("midlayer.", "layers.0."): tensor for name, tensor in tensors.items()}
    about = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "transformer_layer_config": layer_config,
        "draft_vocab_size": values["draft_vocab_size"],
    }
    return about, layers


def with_last_state(features: torch.Tensor, size: int) -> torch.Tensor:
    """Return features as a target returns them, with its last hidden state first, which these heads do not read."""
    return torch.cat([torch.full_like(features[:, :size], torch.nan), features], dim=-1)


@pytest.mark.parametrize("form", ["official", "speculators"])
@pytest.mark.parametrize("case", CASES)
def test_trees_equal_the_published_ones_over_three_rounds(case, form, tmp_path):
    about = CASES[case]
    values, tensors = official_config(about), load_file(DATA / f"{case}_weights.safetensors")
    if form == "speculators":
        values, tensors = as_speculators(values, tensors)
    head = load_head(write_folder(tmp_path / "head", tensors, values, "model.safetensors"))
    embedding = load_file(DATA / f"{case}_target.safetensors")["model.embed_tokens.weight"]
    head.bind(embedding, embedding)
    assert list(head.config.layers_of(about["layers"])) == about["taps"]
    assert_grows_the_published_trees(head, case)


@pytest.mark.parametrize("case", CASES)
def test_head_without_output_rows_uses_those_of_the_target(case, tmp_path):
    """Put the output rows of the published head into the target's output matrix, each at its token."""
    about = CASES[case]
    tensors = load_file(DATA / f"{case}_weights.safetensors")
    rows = tensors.pop("lm_head.weight")
    head = load_head(write_folder(tmp_path / "head", tensors, official_config(about), "model.safetensors"))
    assert not head.config.own_output and head.config.draft_vocab_size in (None, len(rows))
    embedding = load_file(DATA / f"{case}_target.safetensors")["model.embed_tokens.weight"]
    output = torch.full_like(embedding, torch.nan)
    output[head.draft_token_ids] = rows[(head.draft_token_ids[:, None] == drafted_ids(tensors, rows)).int().argmax(1)]
    assert_grows_the_published_trees(head.bind(embedding, output), case)


def drafted_ids(tensors: dict, rows: torch.Tensor) -> torch.Tensor:
    """Return the token of each of the published output rows."""
    return torch.arange(len(rows)) + tensors.get("d2t", torch.zeros(len(rows), dtype=torch.int64))


def assert_grows_the_published_trees(head, case):
    about, golden = CASES[case], load_file(DATA / f"{case}_golden.safetensors")
    config = TreeConfig(width=about["top_k"], depth=about["depth"] + 1, nodes=about["total"])
    assert_grows(fused_drafter(head), golden, config, 3, lambda states: with_last_state(states, about["hidden"]))


SPECULATORS = sorted(path.name for path in (DATA / "speculators").iterdir())


@pytest.mark.parametrize("name", SPECULATORS)
def test_logits_equal_speculators(name):
    """Compare every row of a text, and one row that continues with the head's own state."""
    folder = DATA / "speculators" / name
    head, golden = load_head(folder), load_file(folder / "golden.safetensors")
    assert named_target(json.loads((folder / "config.json").read_text(encoding="utf-8"))) == "somebody/target"
    head.bind(head.embed_tokens.weight, head.embed_tokens.weight)
    ids = golden["input_ids"][0]
    features = with_last_state(golden["hidden_states"][0], 16)
    last = len(ids) - 2
    cache = head.new_cache(len(ids) + 1)
    with torch.no_grad():
        read = head.extend(ids[: last + 1], features[: last + 1], cache)
        torch.testing.assert_close(
            head.logits(read.features)[0], golden["logits_0"][0, : last + 1], atol=1e-4, rtol=1e-4
        )
        state = read.features[:, -1:]
        mask = torch.ones((1, 1, 1, last + 2), dtype=torch.bool)
        continued = head(head.embed(ids[None, last + 1 :]), state, torch.tensor([[last + 1]]), mask, cache)
        torch.testing.assert_close(
            head.logits(continued.features)[0, 0], golden["logits_1"][0, last], atol=1e-4, rtol=1e-4
        )


def test_fc_is_applied_to_target_features_that_are_as_wide_as_the_head():
    """(1 + 3 states) · 16 numbers of the target are as many as the head's 64."""
    config = Eagle3Config(
        hidden_size=64, target_hidden_size=16, vocab_size=40, num_attention_heads=4, num_key_value_heads=2,
        expert_intermediate_size=32, own_embedding=True,
    )  # fmt: skip
    head = Eagle3Head(config).eval().requires_grad_(False)
    assert config.feature_size == config.hidden_size
    embedding = torch.randn(40, 16)
    head.bind(embedding, embedding)
    ids, features = torch.arange(5), torch.randn(5, 64)
    output = head.extend(ids, features, head.new_cache(8))
    states = head.fc(features[:, 16:])
    expected = head(head.embed(ids)[None], states[None], torch.arange(5)[None])
    torch.testing.assert_close(output.features, expected.features)


def folder_of(tmp_path, **values):
    case = next(iter(CASES))
    tensors = load_file(DATA / f"{case}_weights.safetensors")
    return write_folder(tmp_path / "head", tensors, official_config(CASES[case]) | values, "model.safetensors")


LAYERS = {"eagle_aux_hidden_state_layer_ids": [1, 3, 4], "norm_before_residual": True, "use_last_layernorm": True}


@pytest.mark.parametrize("values", [LAYERS, {"eagle_config": LAYERS}], ids=["top", "eagle_config"])
def test_layers_and_norms_of_an_official_config_are_read(values, tmp_path, caplog):
    config = load_head(folder_of(tmp_path, **values)).config
    assert config.layers_of(32) == (1, 3, 4) and config.norm_before_residual and not config.norm_output
    assert not caplog.text


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"eagle_aux_hidden_state_layer_ids": [1, 3]},
            r"names layers \[1, 3\] of the target, but its fc.weight has input columns for 3",
        ),
        ({"eagle_aux_hidden_state_layer_ids": [3, 1, 4]}, r"ascending layer numbers from 1 on, not \(3, 1, 4\)"),
        (
            {"eagle_config": {"use_aux_hidden_state": False}},
            "has use_aux_hidden_state = False, Jakiro supports only True",
        ),
        ({"eagle_config": {"parallel_draft_step": 4}}, "has parallel_draft_step = 4, Jakiro supports only 1"),
        ({"use_mtp_layernorm": True}, "has use_mtp_layernorm = True"),
        ({"layer_types": ["sliding_attention"]}, "a sliding window"),
        ({"use_sliding_window": True}, "a sliding window"),
        ({"norm_before_fc": True}, r"missing \['input_norm.weight'\]"),
    ],
)
def test_unsupported_values_of_an_official_config_are_refused(values, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        load_head(folder_of(tmp_path, **values))
