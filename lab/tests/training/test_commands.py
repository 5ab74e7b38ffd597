"""A draft on top of the target's first layers is trained, writes text, and is trained on this text."""

import re

import pytest
from rich.console import Console

from jakiro.heads.checkpoint import load_head
from jakiro.training.corpus import read_corpus
from lab import KNOWN
from lab.training import exits, own_text
from tests.training.test_commands import invoke


def test_a_draft_writes_text_and_is_trained_on_it(target_folder, corpus_folder, tmp_path):
    first, own_corpus, second = (tmp_path / name for name in ("first", "own", "second"))
    options = {"target": str(target_folder), "expert_width": 16, "max_steps": 2, "batch_tokens": 256}
    # A second run may hold out only rows that the first run has not learned; they are compared by hash
    exits.train_exit([corpus_folder], first, tmp_path / "work", validation_rows=9, **options)
    own_text.own_text([corpus_folder], own_corpus, str(first), str(target_folder), first=2, rows=8, max_new_tokens=24)
    rows = read_corpus([own_corpus])
    assert len(rows) == 8 and {row.kind for row in rows} == {"drafted"}
    assert all(row.l0 == row.a0 < len(row.ids) <= row.a0 + 24 for row in rows)
    options |= {"validation_rows": 2, "init": str(first), "divergence": "total-variation", "method": "distillspec"}
    exits.train_exit([own_corpus], second, tmp_path / "again", **options)
    config = load_head(second, kinds=KNOWN.kinds).config
    assert config.kind == "distilled"
    assert config.calibration["main/1/greedy"] == config.calibration["main/6/greedy"]
    with pytest.raises(
        ValueError, match="needs the target's last feature, so it cannot write text; use a head for exit"
    ):
        own_text.own_text([corpus_folder], own_corpus, "smollm2-135m-instruct-summed", str(target_folder))
    with pytest.raises(ValueError, match="Choose one of forward-kl, total-variation; got 'half'"):
        exits.train_exit([own_corpus], second, tmp_path / "third", divergence="half")


def test_the_package_s_command_refuses_to_train_an_exit_head(target_folder, corpus_folder, tmp_path):
    options = ("--target", target_folder, "--max-steps", 2, "--validation-rows", 4, "--methods-from", "lab")
    folders = ("--out", tmp_path / "out", "--work", tmp_path / "work", "--method", "exit")
    result = invoke("train", corpus_folder, *options, *folders)
    sentence = str(result.exception)
    assert sentence.startswith("Heads of the kind stacked cannot be trained: the kind has no function start; choose")
    (names,) = re.findall(r"choose one of the methods (.+), or define start for the kind\.$", sentence)
    trainable = {method.name for method in KNOWN.values() if method.trains is not None} - {"exit", "distillspec", "s2d"}
    assert set(names.split(", ")) == trainable and {"jakiro", "gumiho"} < trainable


def test_the_list_of_methods_names_the_command_that_trains_an_exit_head(monkeypatch):
    monkeypatch.setattr("jakiro.cli.loading.table_console", lambda: Console(width=400))
    lines = invoke("methods", "--methods-from", "lab").stdout.splitlines()
    (line,) = (line for line in lines if line.split()[:1] == ["s2d"])
    assert "`python -m lab.training.exits --method s2d` trains, given with --head  " in line
