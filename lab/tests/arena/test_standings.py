"""Standings of the leaderboard and their tables, compared with scripted runs that are counted by hand."""

import json
from dataclasses import replace

import pytest

from jakiro.bench.report import OVERALL
from jakiro.bench.runner import Bench, BenchSettings
from jakiro.prompts import Question
from lab import raw
from lab.arena import counts, standings, tables
from lab.figures import END, START, write
from lab.leads import lead
from tests.bench.scripted import STAMP, ScriptedGenerator

QUESTIONS = [Question(str(number), "math" if number % 2 else "coding", ("x",)) for number in range(16)]


def bench_of(nodes, faster: float = 1.0) -> dict:
    """Return a bench.json of plain decoding, `jakiro`, and an `eagle2` that is faster by a factor."""
    settings = BenchSettings(methods=("autoregressive", "jakiro", "eagle2"), temperatures=(0.0,), nodes=nodes)
    runs = list(Bench(ScriptedGenerator(), settings).runs(QUESTIONS))
    runs = [replace(run, seconds=run.seconds / faster) if run.lane.method == "eagle2" else run for run in runs]
    stamp = STAMP | {"head": "small"}
    return {"environment": stamp, "settings": {"max_new_tokens": 5}, "runs": [run.to_dict() for run in runs]}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Convert the result folders of two benchmarks into the raw data of both comparisons."""
    monkeypatch.setattr(tables, "folder", lambda: tmp_path)
    for name, bench in {"own-size": bench_of(("auto",), faster=1.25), "same-nodes": bench_of((8, 14))}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "bench.json").write_text(json.dumps(bench), encoding="utf-8")
        tables.take(name, tmp_path / name)
    return tmp_path


def test_speeds_are_compared_with_plain_decoding_and_jakiro(measured):
    standing_of = {
        standing.method: standing
        for standing in standings.speed_standings(raw.read(measured / standings.OWN_SIZE).runs)
        if standing.group.category == OVERALL
    }
    assert standing_of["eagle2"].group.speed == pytest.approx(312.5)
    assert standing_of["eagle2"].group.speedup == pytest.approx(3.125)
    assert standing_of["eagle2"].against_default == pytest.approx(1.25)
    assert standing_of["eagle2"].against_default_interval == pytest.approx((1.25, 1.25))
    assert standing_of["jakiro"].against_default == 1.0
    assert standing_of["autoregressive"].against_default == pytest.approx(0.4)
    assert standing_of["jakiro"].tau_interval == (2.0, 2.0)


def test_equal_trees_are_counted_by_size(measured):
    standing_of = {
        (standing.method, standing.nodes): standing
        for standing in standings.nodes_standings(counts.read(measured / standings.SAME_NODES)[1])
    }
    assert set(standing_of) == {(method, nodes) for method in ("jakiro", "eagle2") for nodes in (8, 14)}
    # Two steps accept 2 of 3 tested levels and 0 of 1
    assert (standing_of["jakiro", 14].tau, standing_of["jakiro", 14].acceptance) == (2.0, 0.5)


def test_an_answer_that_differs_from_plain_decoding_is_counted():
    bench = bench_of((8,))
    for run in bench["runs"]:
        if run["lane"] == "eagle2 · 8 nodes" and run["question_id"] == "3":
            run["token_ids"] = [*run["token_ids"][:-1], 7]
    answers = json.loads(counts.compact(bench))["answers"]
    assert [row[-1] for row in answers if row[2] == "eagle2"].count(False) == 1
    assert [row[-1] for row in answers if row[2] == "jakiro"].count(False) == 0
    without_plain = bench | {"runs": [run for run in bench["runs"] if run["lane"] != "autoregressive"]}
    assert {row[-1] for row in json.loads(counts.compact(without_plain))["answers"]} == {None}


@pytest.mark.parametrize("late", [(), (0, 3, 6, 9)])
def test_a_lead_within_noise_is_reported_as_level(measured, late):
    runs = raw.read(measured / standings.OWN_SIZE).runs
    uneven = [
        replace(run, seconds=run.seconds * (1.9 if int(run.question_id) in late else 1.0))
        if run.lane.method == "eagle2"
        else run
        for run in runs
    ]
    first = lead(uneven)
    assert first.first.method == "eagle2" and first.against.method == "jakiro"
    assert bool(first.level) == bool(late)
    assert standings.leads(uneven)[0]["level"] == (["jakiro"] if late else [])


def test_no_method_is_the_fastest_without_an_interval(measured):
    few = [run for run in raw.read(measured / standings.OWN_SIZE).runs if int(run.question_id) < 5]
    assert lead(few).interval is None and lead(few).level
    assert lead([run for run in few if run.lane.method == "jakiro"]) is None


def test_tables_are_written_between_their_marks_and_name_the_fastest(measured, tmp_path):
    page = tmp_path / "page.md"
    marks = "\n".join(f"{START.format(name=name)}old{END}" for name in tables.BLOCKS)
    page.write_text(f"Before\n{marks}\nAfter\n", encoding="utf-8")
    write([page], {name: tables.block(name) for name in tables.BLOCKS})
    text = page.read_text(encoding="utf-8")
    assert "old" not in text and text.startswith("Before\n") and text.endswith("\nAfter\n")
    assert "| `eagle2` | 312.5 | 3.12× [3.12, 3.12] | 1.25× [1.25, 1.25] | 2.00 | 2.0 + 5.0 |" in text
    assert "Fastest at temperature 0: `eagle2`, 1.25× [1.25, 1.25] as fast as `jakiro`." in text
    assert "| `jakiro` | 2.00 [2.00, 2.00] · 50 % | 2.00 [2.00, 2.00] · 50 % |" in text


def test_the_leaderboard_file_matches_the_raw_data():
    assert (tables.folder() / tables.LEADERBOARD).read_text(encoding="utf-8") == tables.leaderboard()
