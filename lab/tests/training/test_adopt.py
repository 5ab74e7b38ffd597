"""A head of another shape starts with the layer of a trained head, and `train --init` continues."""

import json

import pytest
import torch

from jakiro.heads.checkpoint import load_head
from lab import KNOWN
from lab.training.adopt import adopt, adopt_stream, started_from
from tests.training.test_commands import TRAIN, invoke, succeed
from tests.training.tiny import start, tiny_cache, tiny_head, tiny_target


def test_a_head_of_the_other_fusion_keeps_the_stream_and_has_fitted_experts(tmp_path):
    target = tiny_target()
    cache = tiny_cache(tmp_path, target)
    source, head = tiny_head(target, "summed"), tiny_head(target, "decoupled")
    start(source, cache)
    with torch.no_grad():
        source.layers[0].self_attn.o_proj.weight.normal_(std=0.02)
    started_from(source, head, cache.texts(0, len(cache), torch.device("cpu")), 1)
    batch = cache.batch([0])
    features = batch.features[:, 1:]
    with torch.no_grad():
        inputs = (head.embed(batch.ids[:, 1:]), batch.features[:, :-1], torch.arange(features.shape[1])[None])
        ours, theirs = head(*inputs), source(*inputs)
    assert torch.equal(ours.residual, theirs.residual)
    for expert in range(2):
        residual = (ours.features[expert] - features).square().mean()
        assert residual < 0.9 * (ours.residual - features).square().mean()
    assert not torch.equal(ours.features[0], ours.features[1])


def test_a_head_without_a_layer_is_refused(tmp_path):
    target = tiny_target()
    texts = tiny_cache(tmp_path, target).texts(0, 4, torch.device("cpu"))
    with pytest.raises(ValueError, match="has no layer that can be copied; choose a head with a layer"):
        adopt_stream(tiny_head(target), texts, tiny_head(target, kind="medusa"), 0)


@pytest.fixture(scope="module")
def sources(first, target_folder, corpus_folder, tmp_path_factory):
    """Return the folders of a summed and a decoupled head, trained on the same features with experts of width 16."""
    folder = tmp_path_factory.mktemp("summed")
    folders = ("--out", folder / "head", "--work", folder / "work", "--features", first / "work" / "features")
    options = (*TRAIN[:4], *TRAIN[6:], "--expert-width", 16, "--fusion", "summed", "--no-report")
    succeed("train", corpus_folder, "--target", target_folder, *folders, *options)
    return {"summed": folder / "head", "decoupled": first / "head"}


# Matrices of 16 × width: a summed source has 2 experts · 3 · 16 = 96 rows in them, a decoupled one 2 · 2 · 16 = 64
@pytest.mark.parametrize(
    ("method", "fusion", "width"),
    [
        ("eagle2", "summed", 32),
        ("parallelspec", "summed", 32),
        ("gumiho", "summed", 32),
        ("medusa", "summed", None),
        ("eagle2", "decoupled", 21),
    ],
)
def test_training_continues_from_a_head_of_another_method(
    method, fusion, width, first, sources, target_folder, corpus_folder, tmp_path
):
    options = {"method": method, "validation_rows": 4, "target": str(target_folder)}
    adopt(str(sources[fusion]), first / "work" / "features", tmp_path / "start", **options)
    began, source = load_head(tmp_path / "start", kinds=KNOWN.kinds), load_head(sources[fusion])
    assert source.config.fusion == fusion and source.config.expert_intermediate_size == 16
    assert torch.equal(began.draft_token_ids, source.draft_token_ids)
    if width is not None:
        assert began.config.expert_intermediate_size == width, "at most as many parameters as two experts of 16"
        assert torch.equal(began.fc.weight, source.fc.weight)
    manifest = json.loads((tmp_path / "start" / "manifest.json").read_text())
    assert manifest["held_out"] and "minutes" not in manifest
    folders = ("--out", tmp_path / "head", "--work", tmp_path / "work", "--features", first / "work" / "features")
    options = ("--target", target_folder, *TRAIN[:4], "--validation-rows", 4, "--init", tmp_path / "start")
    known = ("--method", method, "--methods-from", "lab")
    result = invoke("train", corpus_folder, *options, *known, *folders)
    assert result.exit_code == 0, result.exception
    trained = load_head(tmp_path / "head", kinds=KNOWN.kinds)
    assert trained.config.kind == began.config.kind and torch.equal(trained.draft_token_ids, began.draft_token_ids)
