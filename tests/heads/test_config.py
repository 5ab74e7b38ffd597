"""The config of a head is validated on creation; the message names the invalid field."""

import json

import pytest

from jakiro.heads.eagle3 import Eagle3Config
from jakiro.heads.jakiro import JakiroConfig
from jakiro.heads.kinds import config_from

SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "expert_intermediate_size": 64,
}


def test_a_draft_config_survives_json():
    config = JakiroConfig(**SIZES, fusion="decoupled", draft_vocab_size=50, calibration={"main/1/greedy": 1.5})
    assert config.head_dim == 16
    assert config_from(json.loads(json.dumps(config.to_dict()))) == config


@pytest.mark.parametrize(
    ("fusion", "num_experts", "contrastive"), [("summed", 2, True), ("summed", 1, False), ("decoupled", 2, False)]
)
def test_only_two_summed_experts_have_a_contrastive_branch(fusion, num_experts, contrastive):
    assert JakiroConfig(**SIZES, fusion=fusion, num_experts=num_experts).contrastive == contrastive


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"fusion": "added"}, ["fusion", "summed", "'added'"]),
        ({"num_experts": 3}, ["num_experts", "3"]),
        ({"num_key_value_heads": 3}, ["4 query heads", "3 key/value heads"]),
        ({"hidden_size": 66}, ["hidden_size 66", "4 heads"]),
        ({"hidden_size": "64"}, ["hidden_size"]),
        ({"draft_vocab_size": 101}, ["draft_vocab_size", "100", "101"]),
        ({"feature_layers": [2, 1]}, ["feature_layers", "ascending", "[2, 1]"]),
        ({"feature_layers": 3}, ["feature_layers", "not 3"]),
        ({"target_sha256": 5}, ["target_sha256 must be text; got 5."]),
        ({"target_name": None}, ["target_name must be text; got None."]),
        ({"fc_bias": "no"}, ["fc_bias must be true or false; got 'no'."]),
        ({"wings": 2}, ["unknown fields: wings"]),
        ({"vocab_size": None, "hidden_size": None}, ["has no fields hidden_size, vocab_size"]),
    ],
)
def test_invalid_draft_config_is_refused_by_field(change, parts):
    kind = Eagle3Config if "feature_layers" in change else JakiroConfig
    values = {name: value for name, value in (SIZES | change).items() if value is not None or name == "target_name"}
    with pytest.raises(ValueError, match="Draft head config") as caught:
        kind.from_dict(values)
    for part in parts:
        assert part in str(caught.value)
