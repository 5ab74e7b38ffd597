import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from jakiro.cli.main import app
from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.base import Resources
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.registry import DEFAULT, METHODS
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import save_head
from jakiro.prompts import Question
from jakiro.trace import acceptance_by_depth
from jakiro.training.answers import AnswerFolder
from jakiro.training.evaluate import ALL, scores
from jakiro.training.replay import replay
from tests.marks import rarely
from tests.support import ALL_HEADS, byte_tokenizer, save_target, tiny_head, tiny_model, tiny_target

QUESTIONS = [Question(str(number), "ab"[number % 2], (text,)) for number, text in enumerate(["hi", "why?", "tell me"])]
TREES = [TreeConfig(width=6, depth=5, nodes=20), TreeConfig(width=4, depth=3, nodes=8)]


@pytest.fixture(scope="module")
def model():
    model = tiny_model()
    model.generation_config.eos_token_id = [7]
    return model


@pytest.fixture(scope="module")
def target():
    target = tiny_target()
    target.stop_ids |= {7}
    return target


@pytest.fixture(scope="module")
def stock(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    save_target(folder, model)
    return folder


def lucky(head):
    """Copy the target's feature to the output, so that candidates are sometimes correct."""
    with torch.no_grad():
        head.fc.weight[:, head.config.hidden_size :] = torch.eye(head.config.hidden_size)
    return head


def answers_of(model, folder, sampling, feature_layers=()):
    answers = AnswerFolder(model, byte_tokenizer(), "0", folder, 2, feature_layers)
    return answers.answers(QUESTIONS, sampling)


@pytest.mark.parametrize(
    ("name", "temperature"),
    [
        rarely("summed", 0.0),
        ("summed, reduced vocabulary", 1.0),
        ("decoupled", 0.7),
        rarely("eagle3", 1.0),
    ],
)
def test_replayed_steps_equal_those_of_the_generator(model, target, tmp_path, name, temperature):
    sampling = SamplingParams(temperature=temperature, seed=5, max_new_tokens=14)
    head = tiny_head(target, **ALL_HEADS[name])
    head = head if name == "eagle3" else lucky(head)
    target = target.with_feature_layers(head.config.feature_layers)
    answers = answers_of(model, tmp_path, sampling, head.config.feature_layers)
    generator, drafter = JakiroGenerator(Resources(target, head)), METHODS.drafter_of(head)
    for tree in (TREES[0], replace(TREES[1], contrastive=False)):
        traces = [generator.run(question.turns[0], sampling, tree=tree) for question in QUESTIONS]
        for answer, trace in zip(answers, traces, strict=True):
            assert answer.ids[answer.start : answer.end + 1].tolist() == trace.token_ids
            steps = list(replay(drafter, answer, sampling, tree))
            assert [step.token_ids for step in steps] == [
                tuple(node.token_id for node in step.nodes) for step in trace.steps
            ]
            assert [step.accepted_path for step in steps] == [step.accepted_path for step in trace.steps]
            assert [step.tested_depth for step in steps] == [step.tested_depth for step in trace.steps]
            assert [step.proposers for step in steps] == [
                tuple(step.nodes[index].proposer for index in step.accepted_path) for step in trace.steps
            ]
        pooled = [step for trace in traces for step in trace.steps]
        score = next(scores(DEFAULT.name, drafter, answers, sampling, [tree]))
        assert score.tau == pytest.approx(sum(len(step.accepted_path) for step in pooled) / len(pooled) + 1)
        assert score.num_steps == len(pooled) and score.tau > 1
        assert list(score.acceptance_by_depth) == acceptance_by_depth(pooled)
        counts = Counter(step.nodes[index].proposer for step in pooled for index in step.accepted_path)
        assert score.accepted_share == {
            proposer: pytest.approx(count / sum(counts.values())) for proposer, count in counts.items()
        }


def test_stored_answers_are_not_written_again(model, tmp_path, monkeypatch):
    sampling = SamplingParams(max_new_tokens=6)
    first = answers_of(model, tmp_path, sampling)
    monkeypatch.setattr(AnswerFolder, "_store", None)
    again = answers_of(model, tmp_path, sampling)
    for before, after in zip(first, again, strict=True):
        assert torch.equal(before.ids, after.ids) and torch.equal(before.features, after.features)
    with pytest.raises(TypeError):
        answers_of(model, tmp_path, replace(sampling, seed=1))
    with pytest.raises(TypeError):
        answers_of(model, tmp_path, sampling, (1,))


def test_categories_are_pooled_separately_and_together(model, target, tmp_path):
    sampling = SamplingParams(max_new_tokens=12)
    drafter = HeadDrafter(tiny_head(target))
    results = list(scores(DEFAULT.name, drafter, answers_of(model, tmp_path, sampling), sampling, TREES))
    assert [(score.nodes, score.category) for score in results] == [
        (nodes, category) for nodes in (20, 8) for category in (ALL, "a", "b")
    ]
    everything, *parts = results[:3]
    assert everything.num_steps == sum(part.num_steps for part in parts)
    accepted = sum((part.tau - 1) * part.num_steps for part in parts)
    assert everything.tau == pytest.approx(accepted / everything.num_steps + 1)
    assert len(everything.prompts) == 3 and sorted(everything.prompts) == sorted(parts[0].prompts + parts[1].prompts)
    assert [sum(column) for column in zip(*everything.prompts, strict=True)] == [everything.num_steps, round(accepted)]


def test_command_writes_its_numbers(stock, target, tmp_path):
    save_head(tiny_head(target), tmp_path / "head")
    prompts = tmp_path / "prompts.jsonl"
    lines = [
        json.dumps({"question_id": question.question_id, "category": question.category, "turns": question.turns})
        for question in QUESTIONS
    ]
    prompts.write_text("\n".join(lines))
    arguments = ["evaluate", "--target", stock, "--head", tmp_path / "head", "--prompts", prompts, "--nodes", "8,20"]
    arguments += ["--max-new-tokens", 10, "--answers", tmp_path / "answers", "--out", tmp_path / "numbers.json"]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.exception
    assert "T 1, 20 nodes" in result.output
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert len(numbers["scores"]) == 2 * 2 * 3 and numbers["settings"]["prompts"] == 3
    # Folders are named by their last part, because the numbers may be published
    assert numbers["head"]["name"] == "head" and numbers["target"]["name"] == stock.name
    refused = CliRunner().invoke(app, [*map(str, arguments), "--nodes", "8,x"])
    assert "--nodes takes a comma list of whole numbers" in str(refused.exception)
    named = ["jakiro", "prompt_lookup", "jakiro+prompt_lookup"]
    several = CliRunner().invoke(app, [*map(str, arguments), "--methods", ",".join(named), "--nodes", "8"])
    assert several.exit_code == 0, several.exception
    rows = json.loads((tmp_path / "numbers.json").read_text())["scores"]
    assert {score["method"] for score in rows} == set(named) and len(rows) == 3 * 2 * 3
    same = [score for score in numbers["scores"] if score["nodes"] == 8]
    assert [score for score in rows if score["method"] == "jakiro"] == same
