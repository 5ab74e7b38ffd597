"""Counts of a head's serial passes along written answers."""

import json

import pytest

from jakiro.config import SamplingParams, TreeConfig
from jakiro.heads.checkpoint import save_head
from jakiro.training.evaluate import EvaluateConfig, evaluate
from lab import KNOWN
from lab.arena.passes import count, mean_passes
from tests.support import ALL_HEADS, head_fields, save_target, tiny_head, tiny_model, tiny_target
from tests.training.test_evaluation import answers_of, model  # noqa: F401


@pytest.mark.parametrize(
    ("trains", "passes"),
    [
        (ALL_HEADS["summed"], 3),
        (ALL_HEADS["decoupled"], 4),
        (head_fields(KNOWN["eagle2"]), 4),
        (head_fields(KNOWN["gumiho"]), 3),
        (head_fields(KNOWN["parallelspec"]), 1),
        (head_fields(KNOWN["medusa"]), 1),
    ],
)
def test_serial_passes_are_counted(model, tmp_path, trains, passes):  # noqa: F811
    """A tree with all candidates of four levels; the contrastive branch drafts the last level without a pass."""
    head = tiny_head(tiny_target(), known=KNOWN, **trains)
    sampling, tree = SamplingParams(max_new_tokens=12), TreeConfig(width=2, depth=4, nodes=64)
    answers = answers_of(model, tmp_path, sampling)
    assert mean_passes(KNOWN.drafter_of(head), answers, sampling, tree) == passes


def test_the_command_adds_passes_to_the_scores_of_evaluate(tmp_path):
    save_target(tmp_path / "target", tiny_model())
    save_head(tiny_head(tiny_target()), tmp_path / "head")
    names = {"head": str(tmp_path / "head"), "target": str(tmp_path / "target"), "answers": str(tmp_path / "answers")}
    options = {"limit": 2, "max_new_tokens": 8, "temperatures": (0.0,), "nodes": (2, 8)}
    before = evaluate(EvaluateConfig(**names, **options, dtype="float32")).to_json()
    numbers = tmp_path / "numbers.json"
    numbers.write_text(before, encoding="utf-8")
    count(numbers, **names)
    after = json.loads(numbers.read_text(encoding="utf-8"))
    passes = [score.pop("passes") for score in after["scores"] if score["category"] == "all"]
    assert after == json.loads(before) and len(passes) == 2 and 1 == passes[0] < passes[1] <= 4
