"""Speedups at other delays are those of the same answers with longer passes."""

import pytest

from lab.measuring.offload import LANES, PLAIN, figure, speedup, table


def answer(lane: str, prompt: int, seconds: float, passes: int, tokens: int) -> dict:
    numbers = {"seconds": seconds, "passes": passes, "tokens": tokens, "tau": tokens / passes, "nodes": 1}
    return {"prompt": prompt, "temperature": 0.0, "lane": lane} | numbers


@pytest.fixture
def data():
    plain = [answer(PLAIN, prompt, 6.0, 20, 20) for prompt in range(8)]
    drafted = [answer(lane, prompt, 9.0, 5, 20) for lane in LANES if lane != PLAIN for prompt in range(8)]
    return {"layers": 10, "delay": 0.02, "answers": plain + drafted}


def test_speedup_grows_with_the_delay_to_the_tokens_of_a_pass(data):
    lane = "jakiro, 24 nodes"
    measured = speedup(data, lane, 0.0, 0.02)
    assert (measured["speedup"], measured["tokens_per_second"], measured["tau"]) == (1.0, 2.0, 4.0)
    assert measured["plain_pass_seconds"] == 0.5 and measured["interval"] == (1.0, 1.0)
    # 10 layers take 0.1 s longer: a second a pass
    slower = speedup(data, lane, 0.0, 0.12)
    assert slower["plain_pass_seconds"] == pytest.approx(1.5)
    assert slower["speedup"] == pytest.approx(30 / 15)
    assert speedup(data, lane, 0.0, 1000.0)["speedup"] == pytest.approx(4.0, rel=1e-2)


def test_table_and_the_figure_have_every_lane(data):
    assert table(data).count("\n") == 1 + len(LANES)
    assert [line.name for line in figure(data).data] == [lane for lane in LANES if lane != PLAIN]
