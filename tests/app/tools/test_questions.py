"""Which questions the page offers, and the one with which a lecture ends."""

import json

from app.page.offered import QUESTIONS, offered_questions
from app.tools import questions
from jakiro.config import SamplingParams, TreeConfig
from jakiro.methods import DEFAULT
from tests.app.fake import FakeGenerator


def answer(text: str, length: int = 200, method: str = DEFAULT.name):
    pieces = [f"{word} ".encode() for word in text.split()]
    stream = FakeGenerator(pieces).stream(
        [{"role": "user", "content": "Why?"}], SamplingParams(max_new_tokens=length), method, TreeConfig(nodes=8)
    )
    list(stream)
    return stream.trace


def test_six_are_offered_and_none_of_them_are_sums():
    rows = json.loads(QUESTIONS.read_text(encoding="utf-8"))
    assert len(offered_questions()) == questions.COUNT == len(rows)
    assert set(offered_questions()) <= set(questions.candidates())
    rates = [row["tokens_per_step"] for row in rows]
    assert rates == sorted(rates, reverse=True)
