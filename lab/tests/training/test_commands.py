"""The product's training commands train the lab's heads, too."""

from importlib import import_module

import pytest
import torch

from jakiro.heads.checkpoint import load_head
from jakiro.training.corpus import read_corpus
from lab import KNOWN
from tests.training.test_commands import TRAIN, corpus_folder, invoke, target_folder  # noqa: F401

METHOD = ("--methods-from", "lab", "--method")


def test_a_draft_writes_text_and_is_taught_on_it(target_folder, corpus_folder, tmp_path):  # noqa: F811
    arguments = ["train", corpus_folder, "--target", target_folder, *TRAIN[:4], *TRAIN[6:]]
    first, own, second = (tmp_path / name for name in ("first", "own", "second"))
    labels = ("--divergence", "labels", "--feature-weight", 0, *METHOD, "exit", "--expert-width", 16)
    # A second run may hold out only rows that the first may not have learned, by their hashes
    held_out = ("--validation-rows", 9)
    result = invoke(*arguments, "--out", first, "--work", tmp_path / "work", *labels, *held_out)
    assert result.exit_code == 0, result.exception
    own_text = import_module("lab.training.own_text")
    own_text.own_text([corpus_folder], own, str(first), str(target_folder), first=2, rows=8, max_new_tokens=24)
    rows = read_corpus([own])
    assert len(rows) == 8 and {row.kind for row in rows} == {"drafted"}
    assert all(row.loss_start == row.a0 < len(row.ids) <= row.a0 + 24 for row in rows)
    taught = (
        "--validation-rows",
        2,
        *METHOD,
        "distillspec",
        "--divergence",
        "total-variation",
        "--init",
        first,
        "--expert-width",
        16,
    )
    arguments[1] = own
    result = invoke(*arguments, "--out", second, "--work", tmp_path / "again", *taught)
    assert result.exit_code == 0, result.exception
    assert load_head(second, networks=KNOWN.networks).config.kind == "distilled"
    with pytest.raises(ValueError, match="reads the target's last feature; give a head for exit"):
        own_text.own_text([corpus_folder], own, "smollm2-135m-instruct-summed", str(target_folder))
    result = invoke(*arguments, "--out", second, "--work", tmp_path / "third", "--divergence", "half")
    assert str(result.exception).startswith("Divergence must be one of forward-kl, total-variation, labels;")


def test_features_with_more_layers_serve_a_head_that_reads_fewer(target_folder, corpus_folder, tmp_path):  # noqa: F811
    heads = []
    for method, features in (("s2d", "shared"), ("exit", "shared"), ("exit", "own")):
        out = tmp_path / f"{method}-{features}"
        arguments = [
            "train",
            corpus_folder,
            "--target",
            target_folder,
            "--out",
            out,
            *TRAIN,
            *METHOD,
            method,
        ]
        result = invoke(*arguments, "--work", tmp_path / "work", "--features", tmp_path / features)
        assert result.exit_code == 0, result.exception
        heads.append(load_head(out, networks=KNOWN.networks))
    _, shared, own = heads
    assert all(torch.equal(tensor, own.state_dict()[name]) for name, tensor in shared.state_dict().items())
