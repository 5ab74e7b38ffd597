"""bench.html: the numbers of the report, in the page's look."""

import json
import re

import pytest

from jakiro.bench.plots import figures
from jakiro.bench.report import OVERALL, summarise
from jakiro.plots import write_report
from tests.bench.test_report import runs  # noqa: F401 - a fixture


def drawn(path) -> dict:
    text = re.search(r'id="figures">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)[1]
    return json.loads(text)


def test_plots_hold_the_numbers_of_the_report(runs, tmp_path):  # noqa: F811
    groups = summarise(runs)
    path = write_report(tmp_path / "bench.html", "Benchmark", (), lambda look: figures(groups, look))
    speedups, speeds, acceptance, steps = drawn(path)["light"]
    prompts, points = speedups["data"]
    drafted = [group for group in groups if group.lane == "jakiro · 24 nodes"]
    assert points["x"] == pytest.approx([group.speedup for group in drafted])
    assert prompts["x"] == pytest.approx([value for group in drafted for value in group.prompt_speedups])
    overall = [group for group in groups if group.category == OVERALL]
    assert speeds["data"][0]["x"] == pytest.approx([group.tokens_per_second[1] for group in overall])
    assert acceptance["data"][-1]["y"] == pytest.approx([0.5, 1.0, 0.0])
    assert [bar["x"][-1] for bar in steps["data"]] == pytest.approx([2, 5, 1])
