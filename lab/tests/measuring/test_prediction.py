"""Lanes of the measurement of predicted outputs, on a tiny pair."""

import json

from jakiro.config import SamplingParams
from lab.measuring import prediction
from tests.support import tiny_generator


def test_every_lane_answers_every_edit_and_a_right_prediction_needs_fewer_steps(monkeypatch):
    monkeypatch.setattr(prediction, "PROMPT", "{instruction}")
    generator = tiny_generator()
    sampling = SamplingParams(max_new_tokens=40, logit_bias=dict.fromkeys(range(94, 260), -100))
    answer = generator.run("abc", sampling, "autoregressive").text
    edits = [{"instruction": "abc", "code": code} for code in (answer, "x")]
    results = prediction.measure(generator, edits, sampling, rounds=2)
    assert all(sums["tokens"] == 78 for edit in results for sums in edit.values())
    right, wrong = results
    assert right["prompt_lookup, prediction"]["steps"] < 20 < right["plain"]["steps"] == 78
    assert right["jakiro, prediction"]["accepted"] > 40 > wrong["jakiro, prediction"]["accepted"] == 0
    assert all(sums["proposed"] == 0 for lane, sums in right.items() if "prediction" not in lane)
    assert prediction.table(results).count("\n") == len(prediction.LANES) + 1


def test_the_edits_are_ten_and_differ():
    edits = json.loads(prediction.EDITS.read_text(encoding="utf-8"))
    assert len({edit["code"] for edit in edits}) == len(edits) == 10
