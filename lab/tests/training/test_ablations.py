"""Ablations: one training per variant, and the table."""

import gzip
import json

import pytest
import torch

from jakiro.heads.checkpoint import load_head
from jakiro.training.features import FeatureCache
from lab.training.ablations import BASE, ablate, configured, variants
from tests.support import save_target, tiny_model


def test_every_variant_has_a_different_training():
    made = [
        configured(corpora=(), out="", work="", max_steps=1, **fields) for fields in variants(960, 16384, 1000).values()
    ]
    assert len(set(made)) == len(made) > 15


def test_the_runner_measures_every_variant_once_and_tabulates(tmp_path, monkeypatch):
    save_target(tmp_path / "target", tiny_model(layers=3))
    corpus = tmp_path / "part-00000.jsonl.gz"
    generator = torch.Generator().manual_seed(0)
    with gzip.open(corpus, "wt") as file:
        for _ in range(12):
            ids = torch.randint(0, 250, (20,), generator=generator).tolist()
            file.write(json.dumps({"ids": ids, "kind": "prompts", "temp": 0.0, "a0": 4, "l0": 4}) + "\n")
    settings = {
        "max_steps": 1, "max_tokens": 240, "width": 8, "draft_vocab": 100, "validation_rows": 4, "batch_tokens": 128,
        "limit": 1, "max_new_tokens": 4, "nodes": "4", "target": str(tmp_path / "target"),
    }  # fmt: skip
    chosen = (
        BASE, "cross-entropy only", "decoupled", "one dense expert of equal parameters", "half of the text",
    )  # fmt: skip
    ablate([corpus], tmp_path / "out", names=",".join(chosen), **settings)
    table = (tmp_path / "out" / "ablations.md").read_text().splitlines()
    assert table[0] == "| variant | τ, T 0, 4 nodes | τ, T 1, 4 nodes |"
    assert {line.split(" | ")[0].strip("| ") for line in table[2:]} == set(chosen)
    assert len(FeatureCache(tmp_path / "out" / "features").learned_ids(0)) == 240
    assert len(FeatureCache(tmp_path / "out" / "half-of-the-text" / "work" / "features").learned_ids(0)) == 120
    base, decoupled = (load_head(tmp_path / "out" / name / "head").config for name in (BASE, "decoupled"))
    assert (base.fusion, base.contrastive, base.expert_intermediate_size) == ("summed", True, 8)
    assert (decoupled.fusion, decoupled.expert_intermediate_size) == ("decoupled", 12)
    assert load_head(tmp_path / "out" / "one-dense-expert-of-equal-parameters" / "head").config.kind == "eagle"
    monkeypatch.setattr("lab.training.ablations.train", None)
    ablate([corpus], tmp_path / "out", names=BASE, **settings)
    with pytest.raises(ValueError, match="Unknown variant 'other'; choose one of base, official loss"):
        ablate([corpus], tmp_path / "out", names="other", **settings)
