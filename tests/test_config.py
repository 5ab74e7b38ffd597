"""Settings are checked at the door, in one sentence that holds what came."""

import dataclasses
import math

import pytest

from jakiro.config import SamplingParams, TreeConfig


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        *(("temperature", value, "Temperature must be between 0 and 2") for value in (-1, -0.1, 2.5)),
        *(("temperature", value, "Temperature must be between 0 and 2") for value in (math.nan, math.inf, -math.inf)),
        *(("temperature", value, "Temperature must be between 0 and 2") for value in (True, False, "1", None)),
        *(
            ("temperature", value, "Temperature must be 0, which is greedy, or at least")
            for value in (9e-5, 1e-38, 5e-324)
        ),
        *(("top_p", value, "Top-p must be above 0 and at most 1") for value in (0, -0.5, 1.01, math.nan, True, "1")),
        *(("top_k", value, "Top-k must be a whole number, 0 or more") for value in (-1, 1.5, True, "5", None)),
        *(("seed", value, "Seed must be a whole number from 0 to") for value in (-1, 2**63, 2**64, 1.0, True, None)),
        *(
            ("max_new_tokens", value, "Length must be a whole number of tokens")
            for value in (0, -5, 1.5, True, None, "6")
        ),
    ],
)
def test_a_sampling_setting_out_of_range_is_refused_with_its_value(name, value, sentence):
    with pytest.raises(ValueError) as caught:
        SamplingParams(**{name: value})
    message = str(caught.value)
    came = "nothing" if value is None else repr(value) if isinstance(value, str) else str(value)
    assert message.startswith(sentence) and message.endswith(f"you gave {came}.") and "\n" not in message


def test_the_ends_of_every_range_are_allowed():
    SamplingParams(temperature=0, top_p=1, top_k=0, seed=0, max_new_tokens=1)
    SamplingParams(temperature=1e-4, top_p=1e-9)
    SamplingParams(temperature=2, top_p=1e-9, top_k=10**6, seed=2**63 - 1, max_new_tokens=10**6)
    TreeConfig(width=1, depth=0, nodes=1)
    TreeConfig(width=64, depth=16, nodes=256, policy="auto")


def test_temperature_zero_is_greedy_and_nothing_else_is():
    assert SamplingParams().greedy and SamplingParams(temperature=0.0).greedy
    assert not SamplingParams(temperature=1e-4).greedy


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        *(("width", value, "Tree width must be 1 to 64") for value in (0, 65, 2.0, True)),
        *(("depth", value, "Tree depth must be 0 to 16") for value in (-1, 17, 2.0, True)),
        *(("nodes", value, "Tree nodes must be 1 to 256") for value in (0, 257, 2.0, True)),
        ("policy", "clever", "Tree policy must be one of"),
    ],
)
def test_a_tree_setting_out_of_range_is_refused_with_its_value(name, value, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        TreeConfig(**{name: value})
    assert str(value) in str(caught.value)


def test_a_tree_without_depth_or_with_one_node_is_its_root():
    assert (
        TreeConfig(depth=0).root_only and TreeConfig(nodes=1).root_only and not TreeConfig(depth=1, nodes=2).root_only
    )


@pytest.mark.parametrize("kind", [SamplingParams, TreeConfig])
def test_settings_cannot_be_changed_behind_one_s_back(kind):
    settings = kind()
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(settings, dataclasses.fields(settings)[0].name, 3)
