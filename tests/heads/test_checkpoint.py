"""Heads on disk: saving and loading, and errors that name the invalid file or field."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from jakiro.config import SamplingParams
from jakiro.drafters.base import Resources
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import CONFIG_NAME, WEIGHTS_NAME, load_head, save_head
from jakiro.system import file_sha256
from tests.support import ALL_HEADS, DEVICE, TREE, tiny_head, tiny_target


@pytest.fixture(scope="module")
def target():
    return tiny_target()


@pytest.fixture
def folder(target, tmp_path):
    """Return the folder of a saved head with a reduced vocabulary."""
    save_head(tiny_head(target, draft_vocab_size=90), tmp_path)
    return tmp_path


@pytest.mark.anywhere
@pytest.mark.parametrize("name", ALL_HEADS)
def test_saved_head_loads_with_the_same_weights_and_drafts_the_same_trees(target, tmp_path, name):
    head = tiny_head(target, **ALL_HEADS[name]).half().float()
    save_head(head, tmp_path)
    again = load_head(tmp_path, DEVICE)
    assert again.config == head.config and not again.training
    saved, loaded = head.state_dict(), again.state_dict()
    assert saved.keys() == loaded.keys()
    for key, tensor in saved.items():
        assert torch.equal(loaded[key], tensor) and loaded[key].dtype == tensor.dtype
    target = target.with_feature_layers(head.config.feature_layers)
    traces = [
        JakiroGenerator(Resources(target, copy.bind(target.embedding, target.output_weight))).run(
            "Hello", SamplingParams(max_new_tokens=6), tree=TREE
        )
        for copy in (head, again)
    ]
    first, second = ([[node.token_id for node in step.nodes] for step in trace.steps] for trace in traces)
    assert first == second


def test_files_are_float16_and_contain_nothing_of_the_target(target, tmp_path):
    save_head(tiny_head(target, draft_vocab_size=90), tmp_path)
    tensors = load_file(tmp_path / WEIGHTS_NAME)
    assert tensors.pop("draft_token_ids").dtype == torch.int32
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    assert not any(target.vocab_size in tensor.shape for tensor in tensors.values())
    assert not any("inv_freq" in name for name in tensors)
    assert len(file_sha256(tmp_path / WEIGHTS_NAME)) == 64


@pytest.mark.parametrize("length", [0, 4, 100, 5000])
def test_truncated_weights_are_named(folder, length):
    path = folder / WEIGHTS_NAME
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(ValueError, match=rf"draft head's {WEIGHTS_NAME} is broken"):
        load_head(folder)


def rewrite(folder, change):
    tensors = load_file(folder / WEIGHTS_NAME)
    change(tensors)
    save_file(tensors, folder / WEIGHTS_NAME)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_non_finite_weights_are_named(folder, value):
    rewrite(folder, lambda tensors: tensors["fc.bias"].__setitem__(3, value))
    with pytest.raises(ValueError, match=r"fc\.bias holds values that are not finite"):
        load_head(folder)


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (-1, 260, "draft_token_ids run from \\d+ to 260, its vocabulary from 0 to 259"),
        (0, -3, "draft_token_ids run from -3 to"),
        (1, 0, "draft_token_ids are not in ascending order"),
    ],
)
def test_invalid_draft_token_ids_are_refused(folder, place, value, sentence):
    rewrite(folder, lambda tensors: tensors["draft_token_ids"].__setitem__(place, value))
    with pytest.raises(ValueError, match=sentence):
        load_head(folder)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"head_dim": "x"}, "head_dim must be a whole number"),
        ({"max_position_embeddings": None}, "max_position_embeddings must be a whole number"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be a number"),
        ({"calibration": {"main/1/greedy": "x"}}, "calibration must be an object of numbers"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": "x"}}, "does not describe a valid head"),
        ({"hidden_size": 3}, r"hidden size \(3\) is not a multiple"),
        ({"kind": None}, r"was written by Jakiro 0\.9 or before and has no kind; train it"),
        (
            {"rope_parameters": {"rope_type": "spiral", "rope_theta": 1e4}},
            "RoPE settings have a missing or unknown entry 'spiral'",
        ),
        ({"rope_parameters": {"rope_type": "yarn"}}, "RoPE settings .*'factor'.*; correct them in its config"),
    ],
    ids=str,
)
def test_config_with_invalid_values_is_refused_in_one_sentence(folder, values, sentence):
    path = folder / CONFIG_NAME
    config = json.loads(path.read_text()) | values
    path.write_text(json.dumps({name: value for name, value in config.items() if name != "kind" or value}))
    with pytest.raises(ValueError, match=sentence) as caught:
        load_head(folder)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
