"""`jakiro doctor --head`: numbers equal the results of `evaluate`, and each cause of low acceptance is reported."""

import json
from dataclasses import replace

import pytest
import torch

from jakiro.cli import head_report
from jakiro.cli.head_report import head_findings
from jakiro.drafters.registry import METHODS
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.loading import weights
from jakiro.loading.loader import LoadOptions
from jakiro.training.bound import BoundHead
from jakiro.training.corpus import Row, turn_ids, write_part
from jakiro.training.evaluate import ALL, EvaluateConfig, evaluate
from jakiro.training.replay import ReplayedStep
from tests.cli.test_main import run
from tests.marks import rarely
from tests.support import ALL_HEADS, byte_tokenizer, head_fields, prompt_ids, save_target, tiny_head, tiny_target
from tests.training.test_evaluation import lucky

PROMPTS = [("first", "hi"), ("first", "tell me"), ("second", "why?")]
TOPICS = ["measured on", "features", "length", "draft vocabulary", "agreement", "trees", "calibration", "tau"]


@pytest.fixture
def pair(own_cache, tmp_path):
    """Return the folder of a tiny target, a head that is sometimes correct, and prompts."""
    save_target(tmp_path / "target")
    save_head(lucky(tiny_head(tiny_target())), tmp_path / "head")
    questions = [{"question_id": text, "category": category, "turns": [text]} for category, text in PROMPTS]
    lines = [json.dumps(question) for question in questions]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    return tmp_path


def options(pair):
    return LoadOptions(str(pair / "target"), str(pair / "head"), "cpu", "float32")


def report(pair, corpus=None):
    findings = list(head_findings(options(pair), corpus and str(corpus), str(pair / "prompts.jsonl")))
    return {finding.topic: finding for finding in findings}


def answers_of(pair, head):
    bound = BoundHead.read(head, str(pair / "target"), torch.device("cpu"), torch.float32)
    return bound.answers(3).answers_to_ids([prompt_ids(text) for _, text in PROMPTS], head_report.SAMPLING)


def write_corpus(pair, ids, answer_start):
    path = pair / "part.jsonl.gz"
    write_part(path, [Row(ids, "prompts", 0.0, answer_start, answer_start)])
    return path


def change_config(pair, **values):
    path = pair / "head" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_measured_numbers_equal_evaluate_and_a_count_by_hand(pair):
    findings = report(pair)
    assert list(findings) == TOPICS
    names = {"head": str(pair / "head"), "target": str(pair / "target"), "prompts": str(pair / "prompts.jsonl")}
    result = evaluate(EvaluateConfig(**names, temperatures=(0.0,), nodes=(8,), max_new_tokens=96, device="cpu"))
    scores = {score.category: score for score in result.scores}
    taus = sorted((score.tau, name) for name, score in scores.items() if name != ALL)
    listed = ", ".join(f"{name} {tau:.2f}" for tau, name in taus)
    assert findings["tau"].text == f"{scores[ALL].tau:.2f}; by kind of prompt, lowest first: {listed}"
    by_depth = " ".join(f"{accepted / tested:.2f}" for accepted, tested in scores[ALL].acceptance_by_depth)
    assert f"accepted in {by_depth} of the steps" in findings["trees"].text
    head, hits = load_head(pair / "head"), []
    for answer in answers_of(pair, head):
        ids, features, end = answer.ids, answer.features, answer.end
        with torch.no_grad():
            output = head(head.embed(ids[None, 1:end]), features[None, : end - 1], torch.arange(end - 1)[None])
            first = head.logits(output.features[0]).argmax(-1)
        hits.append(first[answer.start - 1 :] == ids[answer.start + 1 : end + 1])
    share = torch.cat(hits).float().mean().item()
    assert 0.01 < share < 0.99
    assert findings["agreement"].text.startswith(f"the target's choice is first in {share:.2f} ")
    assert findings["agreement"].ok == (share >= head_report.MIN_AGREEMENT)
    assert f"3 prompts, {len(torch.cat(hits))} tokens" in findings["measured on"].text


def test_target_choices_outside_the_draft_vocabulary_are_counted(pair):
    head = tiny_head(tiny_target(), draft_vocab_size=90)
    save_head(head, pair / "head")
    choices = [
        token for answer in answers_of(pair, head) for token in answer.ids[answer.start + 1 : answer.end + 1].tolist()
    ]
    share = sum(token not in head.draft_token_ids.tolist() for token in choices) / len(choices)
    finding = report(pair)["draft vocabulary"]
    assert not finding.ok and f"90 of 260 tokens; {share:.1%} of the choices are others." in finding.text
    assert "larger --draft-vocab" in finding.text


def test_weights_of_another_target_and_too_few_positions_are_problems(pair):
    before = report(pair)
    assert before["features"].ok and before["length"].ok
    change_config(pair, target_sha256="1" * 64, max_position_embeddings=20)
    after = report(pair)
    assert not after["features"].ok and "trained for weights 111111111111…" in after["features"].text
    assert not after["length"].ok and "decoding is plain after position 20." in after["length"].text
    assert "computed in float32, by training in float32" in before["features"].text


def test_template_and_length_of_the_corpus_are_compared(pair):
    before, after = turn_ids(byte_tokenizer())
    start = [*before, 5, 6, 7, *after]
    findings = report(pair, write_corpus(pair, start + [9] * 250, len(start)))
    assert findings["template"].ok and findings["template"].text == "the same in 1 texts of the corpus and in prompts"
    assert findings["length"].ok and "0% of the answers are beyond the corpus' longest text" in findings["length"].text
    short = report(pair, write_corpus(pair, [*start, 9], len(start)))["length"]
    assert not short.ok and short.text.endswith("Train on longer texts.")
    for ids, answer_start in (([3, *start, 9], len(start) + 1), ([*start[:-1], 9], len(start) - 1)):
        finding = report(pair, write_corpus(pair, ids, answer_start))["template"]
        assert not finding.ok and "part.jsonl.gz, line 1: " in finding.text


@pytest.mark.parametrize("name", ["decoupled", "medusa", rarely("eagle3"), rarely("dflash")])
def test_heads_of_other_kinds_are_measured(name, pair):
    """Heads of the kinds eagle3 and dflash are not trained here, so they have no agreement along texts."""
    fields = ALL_HEADS.get(name) or head_fields(METHODS[name])
    save_head(tiny_head(tiny_target(), **fields), pair / "head")
    topics = [topic for topic in TOPICS if topic != "agreement" or name in ("decoupled", "medusa")]
    assert list(report(pair)) == topics


def steps(num_steps, num_accepted, chance):
    """Return steps with one candidate below the root, of which the first ones are accepted."""
    accepted = ReplayedStep((1, 2), (1,), 1, ("head",), (chance,))
    rejected = replace(accepted, accepted_path=(), proposers=())
    return [accepted] * num_accepted + [rejected] * (num_steps - num_accepted)


def test_limits_of_agreement_trees_and_calibration():
    assert head_report._check_agreement([(0.4, 0.6)]).ok and not head_report._check_agreement([(0.39, 0.6)]).ok
    assert head_report._check_trees(steps(100, 40, 0.5), [(0.49, 0.6)]).ok
    different = head_report._check_trees(steps(100, 40, 0.5), [(0.51, 0.6)])
    assert not different.ok and "accepted in 0.40 of" in different.text
    assert not head_report._check_trees([replace(step, tested_depth=0) for step in steps(1, 0, 0.5)], []).ok
    wrong = head_report._check_calibration(steps(50, 20, 0.6))
    assert not wrong.ok and wrong.text.endswith("by depth: +0.20. Run calibrate.")
    assert (
        head_report._check_calibration(steps(50, 20, 0.5)).ok and head_report._check_calibration(steps(49, 0, 0.6)).ok
    )


def test_command_measures_a_named_head_only_if_the_pair_fits(pair, capsys, monkeypatch):
    arguments = ["doctor", "--head", str(pair / "head"), "--target", str(pair / "target"), "--device", "cpu"]
    prompts = ["--prompts", str(pair / "prompts.jsonl")]
    code, out, _ = run(capsys, *arguments, *prompts)
    assert "ok      measured on: 3 prompts" in out and "tau: " in out and code == ("problem" in out)
    assert "problem acceptance: There is no prompt file" in run(capsys, *arguments, "--prompts", "none.jsonl")[1]
    assert "acceptance: not measured" in run(capsys, *arguments[:-1], "auto")[1]
    monkeypatch.setattr(weights, "load_model", lambda *a, **k: pytest.fail("the target's weights were read"))
    code, out, _ = run(capsys, *arguments, "--quick")
    assert code == 0 and "measured on" not in out
    change_config(pair, vocab_size=300)
    assert run(capsys, *arguments)[0] == 1
