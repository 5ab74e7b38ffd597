"""The identity check: what it reports, and that it goes on where it stopped."""

import pytest

from jakiro.bench.identical import check_identical, read_log
from jakiro.bench.runner import BenchSettings
from jakiro.prompts import Question
from tests.bench.scripted import ScriptedGenerator

QUESTIONS = [Question(str(number), "math", ("ask",)) for number in range(3)]
SETTINGS = BenchSettings(methods=("autoregressive", "jakiro"), temperatures=(0.0, 1.0), seeds=(0, 1), nodes=(8, 24))


def test_equal_texts_are_compared_once_for_every_combination(tmp_path):
    generator = ScriptedGenerator()
    comparisons = list(check_identical(generator, QUESTIONS, SETTINGS, tmp_path / "log.jsonl"))
    assert len(comparisons) == 3 * 2 * 2 * 2
    assert all(comparison.position is None and comparison.num_tokens == 5 for comparison in comparisons)
    assert sum(comparison.num_accepted for comparison in comparisons) == 2 * 24
    # One plain run serves all node budgets.
    assert sum(call[2] == "autoregressive" for call in generator.calls) == 12
    assert read_log(tmp_path / "log.jsonl") == comparisons


def test_a_difference_is_reported_with_position_and_margin(tmp_path):
    generator = ScriptedGenerator(drafted_ids=((2, 3, 8), (9,)))
    comparison = next(check_identical(generator, QUESTIONS, SETTINGS, tmp_path / "log.jsonl"))
    assert comparison.position == 3
    # Token 3 was chosen after the root of plain decoding's third step.
    assert comparison.margin == pytest.approx(0.2)


def test_a_stopped_check_goes_on_where_it_was(tmp_path):
    log = tmp_path / "log.jsonl"
    first = check_identical(ScriptedGenerator(), QUESTIONS, SETTINGS, log)
    done = [next(first) for _ in range(5)]
    first.close()
    with log.open("a", encoding="utf-8") as file:
        file.write('{"setup": "cut off')
    rest = list(check_identical(ScriptedGenerator(), QUESTIONS, SETTINGS, log))
    assert len(rest) == 24 - 5
    assert not {comparison.key for comparison in done} & {comparison.key for comparison in rest}
    assert len(read_log(log)) == 24


def test_a_goal_of_tokens_goes_on_with_further_seeds_where_they_matter(tmp_path):
    log = tmp_path / "log.jsonl"
    comparisons = list(check_identical(ScriptedGenerator(), QUESTIONS, SETTINGS, log, target_tokens=200))
    # Every comparison has five tokens and two trees: 24 by the settings, 16 more at temperature 1 alone.
    assert len(comparisons) == 40
    assert {(each.temperature, each.seed) for each in comparisons[24:]} == {(1.0, 2), (1.0, 3), (1.0, 4)}
    assert not list(check_identical(ScriptedGenerator(), QUESTIONS, SETTINGS, log, target_tokens=200))
    assert len(list(check_identical(ScriptedGenerator(), QUESTIONS, SETTINGS, log, target_tokens=215))) == 4
