"""The questions that the page offers."""

import json

from app.page.offered import QUESTIONS, offered_questions
from app.tools import questions


def test_six_are_offered_and_none_of_them_are_sums():
    rows = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    assert len(offered_questions()) == questions.COUNT == len(rows)
    assert set(offered_questions()) <= set(questions.candidates())
    rates = [row["tokens_per_step"] for row in rows]
    assert rates == sorted(rates, reverse=True)
