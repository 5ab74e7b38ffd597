"""Numbers of a benchmark, counted by hand on scripted runs."""

import json
from dataclasses import replace

import pytest
from rich.console import Console

from jakiro.bench.environment import environment
from jakiro.bench.render import as_json, tables
from jakiro.bench.report import OVERALL, bootstrap_interval, fastest_plain, summarise
from jakiro.bench.runner import Bench, BenchSettings, Lane, run_of
from jakiro.config import SamplingParams
from jakiro.prompts import Question
from tests.bench.scripted import ScriptedGenerator, trace

QUESTIONS = [Question("1", "math", ("one",)), Question("2", "math", ("two",)), Question("3", "coding", ("three",))]


SETTINGS = BenchSettings(methods=("autoregressive", "jakiro"), temperatures=(0.0,), nodes=(24,))


@pytest.fixture
def runs():
    return list(Bench(ScriptedGenerator(), SETTINGS).runs(QUESTIONS))


def group_of(groups, lane, category=OVERALL):
    return next(group for group in groups if group.lane.startswith(lane) and group.category == category)


def test_drafted_lane_equals_numbers_counted_by_hand(runs):
    drafted = group_of(summarise(runs), "jakiro")
    # Two steps of 8 ms commit four tokens; one step accepts 2 of 3 candidates, the other none of 3.
    assert drafted.tokens_per_second[1] == pytest.approx(250)
    assert drafted.tau == 2.0
    assert drafted.acceptance_by_depth == ((3, 6), (3, 3), (0, 3))
    assert (drafted.draft_ms, drafted.verify_ms, drafted.other_ms) == (2, 5, 1)
    assert drafted.speedup == pytest.approx(40 / 16)
    assert drafted.speedup == pytest.approx(drafted.speed / group_of(summarise(runs), "autoregressive").speed)
    assert drafted.speedup_interval is None, "three prompts are too few"
    # Each lane reads each prompt in 5 ms
    assert drafted.end_to_end == pytest.approx(45 / 21)
    unknown = [replace(run, prefill_ms=None) if run.lane.method == "jakiro" else run for run in runs]
    assert group_of(summarise(unknown), "jakiro").end_to_end is None
    assert drafted.prompt_speedups == pytest.approx([40 / 16] * 3)
    assert drafted.predicted == pytest.approx(2 * 10 / 8)
    assert drafted.identical == 1.0


def test_baseline_is_the_faster_plain_lane(runs):
    fast = [
        replace(run, lane=Lane("autoregressive-fast"), seconds=run.seconds / 2)
        for run in runs
        if run.lane.method == "autoregressive"
    ]
    assert fastest_plain([*runs, *fast]) == Lane("autoregressive-fast")
    drafted = group_of(summarise([*runs, *fast]), "jakiro")
    assert drafted.baseline == "autoregressive-fast"
    assert drafted.speedup == pytest.approx(1.25)


def test_answer_that_ends_with_the_prefill_has_no_speed():
    ended = run_of(trace("jakiro", 9, []), Lane("jakiro", 24), SamplingParams(), QUESTIONS[0], 0)
    assert ended.tokens_per_second is None
    group = summarise([ended])[0]
    assert group.tau is None and group.tokens_per_second is None and group.speedup is None


def test_interval_contains_the_pooled_ratio_and_widens_with_spread():
    narrow = bootstrap_interval([(2.0, 10, 1.0, 10)] * 20 + [(2.2, 10, 1.0, 10)] * 20)
    wide = bootstrap_interval([(1.0, 10, 1.0, 10)] * 20 + [(3.0, 10, 1.0, 10)] * 20)
    assert narrow[0] < 2.1 < narrow[1]
    assert wide[1] - wide[0] > narrow[1] - narrow[0]
    assert bootstrap_interval([(2.0, 10, 1.0, 10)] * 7) is None
    assert bootstrap_interval([(2.0, 10, 1.0, 10)] * 8) == pytest.approx((2.0, 2.0))


def test_interval_leaves_2_5_percent_on_each_side():
    """7 of 16 prompts are as slow as plain decoding, 9 twice as fast; the number of slow ones sampled is binomial."""
    pairs = [(1.0, 1, 1.0, 1)] * 7 + [(1.0, 1, 0.5, 1)] * 9
    # 11 or more slow ones occur in 3.9 % of samples and 12 or more in 1.2 %; 3 or fewer in 3.5 %, 2 or fewer in 1.0 %
    assert bootstrap_interval(pairs) == pytest.approx((16 / (8 + 11 / 2), 16 / (8 + 3 / 2)))


def test_runs_of_one_prompt_are_sampled_together():
    """Each prompt runs once at twice and once at half the speed, so that prompts do not differ."""
    runs = []
    for question in (Question(str(number), "math", ("one",)) for number in range(16)):
        for seed, seconds in ((0, 0.5), (1, 2.0)):
            request = SamplingParams(seed=seed), question, 0
            plain = run_of(trace("autoregressive", 1, [(2,)] * 4), Lane("autoregressive"), *request)
            drafted = run_of(trace("jakiro", 1, [(2, 2)] * 2), Lane("jakiro", 24), *request)
            runs += [replace(plain, seconds=1.0), replace(drafted, seconds=seconds)]
    drafted = group_of(summarise(runs), "jakiro")
    assert drafted.speedup == pytest.approx(0.8)
    assert drafted.speedup_interval == pytest.approx((0.8, 0.8))
    assert drafted.prompt_speedups == pytest.approx([0.8] * 16)


def test_tables_show_the_median_of_runs_and_the_speed_of_all_tokens(runs):
    drafted = next(run for run in runs if run.lane.method == "jakiro")
    slowed = [replace(drafted, seconds=drafted.decoded / speed) for speed in (100.0, 200.0, 400.0)]
    groups = summarise(slowed)
    assert groups[0].tokens_per_second == pytest.approx((150, 200, 300))
    console = Console(width=200)
    with console.capture() as capture:
        for table in tables(groups):
            console.print(table)
    # 12 tokens in 70 ms
    assert capture.get().count(" 200.0 ") == 1 and capture.get().count(" 171.4 ") == 2, "all prompts, and by category"


def test_tables_are_readable_in_80_columns_with_one_row_per_method_and_category(runs):
    renamed = [replace(run, lane=Lane("jakiro+prompt_lookup", 24)) if run.lane.nodes else run for run in runs]
    speed, steps, by_category = tables(summarise(renamed))
    assert [column.header for column in by_category.columns] == [
        "method",
        "category",
        "tokens/s",
        "speedup",
        "95 %",
        "τ",
    ]
    lanes = dict.fromkeys(run.lane.name for run in renamed)
    assert list(by_category.columns[0].cells) == [lane for lane in lanes for _ in range(2)]
    assert list(by_category.columns[1].cells) == ["math", "coding"] * 2
    console = Console(width=80)
    with console.capture() as capture:
        for table in (speed, steps, by_category):
            console.print(table)
    assert "…" not in capture.get() and "2.50×" in capture.get()


def test_results_are_written_as_json(runs):
    stamp = environment(ScriptedGenerator().status)
    values = json.loads(as_json(stamp, SETTINGS, summarise(runs), runs))
    assert values["environment"]["target"] == "scripted" and values["environment"]["cores"] >= 1
    assert len(values["groups"]) == 6 and len(values["runs"]) == 6
    assert values["runs"][0]["token_ids"] == [1, 2, 3, 4, 9]
