"""Which questions the page offers, and the one with which a lecture ends."""

import json
import re
from pathlib import Path

import pytest

from app.page.offered import QUESTIONS, offered_questions
from app.tools import questions
from jakiro.config import SamplingParams, TreeConfig
from jakiro.methods import DEFAULT, PLAIN
from tests.app.fake import FakeGenerator

PLAN = Path(__file__).parents[3] / "docs" / "teaching.md"


def answer(text: str, length: int = 200, method: str = DEFAULT.name):
    pieces = [f"{word} ".encode() for word in text.split()]
    stream = FakeGenerator(pieces).stream(
        [{"role": "user", "content": "Why?"}], SamplingParams(max_new_tokens=length), method, TreeConfig(nodes=8)
    )
    list(stream)
    return stream.trace


def test_whole_answers_that_repeat_nothing_are_offered_the_best_drafted_first():
    words = " ".join(f"word{number}" for number in range(60))
    traces = {
        "cut": answer(words, 50),
        "short": answer("one two three"),
        "again": answer("the same five words here " * 12),
        "whole": answer(words, method=PLAIN.name),
        "better": answer(words),
    }
    found = questions.chosen(traces)
    assert [row["question"] for row in found] == ["better", "whole"]
    assert found[0]["tokens_per_step"] > found[1]["tokens_per_step"]


def test_six_are_offered_and_none_of_them_are_sums():
    rows = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    assert len(offered_questions()) == questions.COUNT == len(rows)
    assert set(offered_questions()) <= set(questions.candidates())
    rates = [row["tokens_per_step"] for row in rows]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.rare
def test_the_plan_s_last_question_drafts_worse_than_any_that_is_offered():
    from jakiro import JakiroGenerator

    asked = re.search(r"drafts badly: `(.+?)`", PLAN.read_text(encoding="utf-8"))[1]
    generator = JakiroGenerator.from_pretrained()
    sampling = SamplingParams(max_new_tokens=questions.LONGEST)
    rates = {
        one: generator.run(one, sampling, method=DEFAULT.name, tree=questions.TREE).delivered_tau
        for one in [asked, *offered_questions()]
    }
    assert rates[asked] < 0.8 * min(rate for one, rate in rates.items() if one != asked), rates
