"""A kind of head from outside the package, that of docs/straight.py, is trained, calibrated, measured and used."""

import json
import sys
from pathlib import Path

import pytest

from jakiro import JakiroGenerator, SamplingParams
from jakiro.drafters.registry import METHODS, PLAIN, methods_from
from tests.support import TREE
from tests.training.test_commands import TRAIN, corpus_folder, invoke, succeed, target_folder  # noqa: F401

DOCS = Path(__file__).resolve().parents[2] / "docs"
OUTSIDE = ("--methods-from", "straight")


@pytest.fixture
def straight(own_cache, monkeypatch):
    """Return the method of the kind, as `--methods-from straight` registers it."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield methods_from(["straight"])[0]
    sys.modules.pop("straight")


def test_outside_kind_is_trained_calibrated_measured_and_used(
    straight,
    target_folder,  # noqa: F811
    corpus_folder,  # noqa: F811
    tmp_path,
):
    head, numbers = tmp_path / "head", tmp_path / "tau.json"
    folders = ("--target", target_folder, "--out", head, "--work", tmp_path / "work")
    succeed("train", corpus_folder, *folders, *TRAIN, *OUTSIDE, "--method", straight.name)
    assert "a network of the kind “straight”" in (head / "README.md").read_text()
    few = ("--target", target_folder, "--texts", 3, "--max-new-tokens", 6)
    succeed("calibrate", head, corpus_folder, *few, *OUTSIDE)
    measured = ("--limit", 1, "--max-new-tokens", 8, "--nodes", 8, "--out", numbers, *OUTSIDE)
    succeed("evaluate", "--head", head, "--target", target_folder, *measured)
    assert {score["method"] for score in json.loads(numbers.read_text())["scores"]} == {straight.name}
    arguments = (str(target_folder), str(head), "cpu", "float32")
    generator = JakiroGenerator.from_pretrained(*arguments, methods=[straight])
    assert "main/1/sampled-0.7-kept" in json.loads((head / "config.json").read_text())["calibration"]
    for sampling in (SamplingParams(max_new_tokens=12), SamplingParams(1.0, seed=2, max_new_tokens=12)):
        drafted, plain = (generator.run("hi", sampling, name, TREE) for name in (straight.name, PLAIN.name))
        assert drafted.token_ids == plain.token_ids
        assert {node.proposer for step in drafted.steps for node in step.nodes} > {"root", "map_1"}
    with pytest.raises(
        ValueError,
        match=r"The kind 'straight' of this draft head is unknown; known kinds are jakiro, .* --methods-from",
    ):
        JakiroGenerator.from_pretrained(*arguments)


def test_kind_without_a_start_is_not_trained(straight, corpus_folder, tmp_path, monkeypatch):  # noqa: F811
    module = sys.modules["straight"]
    kind = type(straight.kind)(config=module.StraightConfig, network=module.StraightHead)
    monkeypatch.setattr(module, "METHODS", [type(straight)(**{**_fields(straight), "kind": kind})])
    folders = ("--out", tmp_path / "head", "--work", tmp_path / "work")
    result = invoke("train", corpus_folder, *folders, "--max-steps", 1, *OUTSIDE, "--method", straight.name)
    sentence = str(result.exception)
    assert sentence.startswith("Heads of the kind straight cannot be trained: the kind has no function start; choose")
    trainable = ", ".join(name for name, method in METHODS.items() if method.trains is not None)
    assert sentence.endswith(f" one of the methods {trainable}, or define start for the kind.")


def _fields(method) -> dict:
    return {name: getattr(method, name) for name in method.__dataclass_fields__}
