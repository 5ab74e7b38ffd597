"""The leaderboard: counted by hand on scripted runs, and docs/arena.md shows what its raw data gives."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jakiro.bench import raw
from jakiro.bench.arena import counts, standings, tables
from jakiro.bench.questions import Question
from jakiro.bench.report import OVERALL
from jakiro.bench.runner import Bench, BenchSettings, Lane
from jakiro.bench.tables import END, START, between
from tests.bench.scripted import ScriptedGenerator
from tests.bench.test_tables import STAMP

PAGE = Path(__file__).resolve().parents[2] / "docs" / "arena.md"
QUESTIONS = [Question(str(number), "math" if number % 2 else "coding", ("x",)) for number in range(16)]


def bench_of(nodes, faster: float = 1.0) -> dict:
    """A bench.json of plain decoding, `jakiro`, and a `gsd` that takes so much less time."""
    settings = BenchSettings(methods=("autoregressive", "jakiro", "gsd"), temperatures=(0.0,), nodes=nodes)
    runs = list(Bench(ScriptedGenerator(), settings).runs(QUESTIONS))
    runs = [replace(run, seconds=run.seconds / faster) if run.lane.method == "gsd" else run for run in runs]
    stamp = STAMP | {"head": "small"}
    return {"environment": stamp, "settings": {"max_new_tokens": 5}, "runs": [run.to_dict() for run in runs]}


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Both disciplines, taken from the folders in which a benchmark left them."""
    monkeypatch.setattr(tables, "folder", lambda: tmp_path)
    benches = {standings.OWN_SIZE: bench_of(("auto",), faster=1.25), standings.SAME_NODES: bench_of((8, 14))}
    for name, bench in benches.items():
        (tmp_path / name.removesuffix(".json")).mkdir()
        (tmp_path / name.removesuffix(".json") / "bench.json").write_text(json.dumps(bench), encoding="utf-8")
        tables.take(name, tmp_path / name.removesuffix(".json"))
    return tmp_path


def test_speeds_stand_against_plain_decoding_and_jakiro(measured):
    found = {
        each.method: each
        for each in standings.speed_standings(raw.read(measured / standings.OWN_SIZE).runs)
        if each.category == OVERALL
    }
    assert found["gsd"].speed == pytest.approx(312.5) and found["gsd"].group.speedup == pytest.approx(3.125)
    assert found["gsd"].against_default == pytest.approx(1.25) and found["gsd"].ahead == 16
    assert found["gsd"].against_default_interval == pytest.approx((1.25, 1.25))
    assert (found["jakiro"].against_default, found["jakiro"].ahead) == (1.0, 0)
    assert found["autoregressive"].against_default == pytest.approx(0.4)
    assert found["jakiro"].tau_interval == (2.0, 2.0)


def test_equal_trees_are_counted_by_size_and_category(measured):
    found = {
        (each.method, each.nodes, each.category): each
        for each in standings.nodes_standings(counts.read(measured / standings.SAME_NODES).answers)
    }
    assert set(found) == {
        (method, nodes, category)
        for method in ("jakiro", "gsd")
        for nodes in (8, 14)
        for category in (OVERALL, "math", "coding")
    }
    drafted = found["jakiro", 14, "math"]
    # Two steps keep 2 of 3 tried levels and none of 1
    assert (drafted.prompts, drafted.tau, drafted.acceptance, drafted.identical) == (8, 2.0, 0.5, 1.0)


def test_the_counts_of_equal_trees_hold_no_seconds(measured):
    text = (measured / standings.SAME_NODES).read_text(encoding="utf-8")
    assert "second" not in text and "_ms" not in text


def test_an_answer_that_differs_from_plain_decoding_s_is_seen():
    bench = bench_of((8,))
    for run in bench["runs"]:
        if run["lane"] == "gsd · 8 nodes" and run["question_id"] == "3":
            run["token_ids"] = [*run["token_ids"][:-1], 7]
    answers = json.loads(counts.compact(bench))["answers"]
    assert [row[-1] for row in answers if row[2] == "gsd"].count(False) == 1
    assert [row[-1] for row in answers if row[2] == "jakiro"].count(False) == 0
    without_plain = bench | {"runs": [run for run in bench["runs"] if run["lane"] != "autoregressive"]}
    assert {row[-1] for row in json.loads(counts.compact(without_plain))["answers"]} == {None}


def test_tables_are_put_between_their_marks_and_name_the_fastest(measured, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    marks = "\n".join(f"{START.format(name=name)}old{END}" for name in ("own-size", "same-nodes"))
    page.write_text(f"Before\n{marks}\nAfter\n", encoding="utf-8")
    monkeypatch.delitem(tables.BLOCKS, "best-source")
    tables.write([page], {name: tables.block(name) for name in tables.BLOCKS})
    text = page.read_text(encoding="utf-8")
    assert "old" not in text and text.startswith("Before\n") and text.endswith("\nAfter\n")
    assert "| `gsd` | 312.5 | 3.12× [3.12, 3.12] | 1.25× [1.25, 1.25] | 2.00 | 2.0 ms | 5.0 ms | 1.0 ms |" in text
    assert "Fastest at temperature 0: `gsd`, 1.25× [1.25, 1.25] as fast as `jakiro`." in text
    assert "| `jakiro` | 2.00 [2.00, 2.00] · 50 % | 2.00 [2.00, 2.00] · 50 % |" in text


def test_a_lead_that_noise_could_have_made_is_called_so():
    bench = bench_of(("auto",))
    values = {name: bench[name] for name in ("environment", "settings")} | json.loads(raw.compact(bench))
    runs = [raw._run(dict(zip(values["columns"], row, strict=True))) for row in values["runs"]]
    uneven = [
        replace(run, seconds=run.seconds * (0.5 if int(run.question_id) % 3 else 1.5))
        if run.lane == Lane("gsd", "auto")
        else run
        for run in runs
    ]
    here = [each for each in standings.speed_standings(uneven) if each.category == OVERALL]
    first = sorted(here, key=lambda each: -each.speed)
    assert first[0].method == "gsd" and first[0].against_default_interval[0] < 1
    assert tables._fastest(first).endswith("the interval holds 1, so the two cannot be told apart.")


@pytest.mark.parametrize("name", tables.BLOCKS)
def test_the_arena_s_page_shows_what_its_raw_data_gives(name):
    text = PAGE.read_text(encoding="utf-8")
    start, end = between(text, name)
    assert text[start:end] == tables.block(name)


def test_the_page_has_a_place_for_every_table():
    marked = re.findall(r"<!-- figures: ([\w-]+) -->", PAGE.read_text(encoding="utf-8"))
    assert sorted(marked) == sorted(tables.BLOCKS)


def test_the_raw_data_is_small():
    files = [tables.path_of(name) for name in (standings.OWN_SIZE, standings.SAME_NODES)]
    assert sum(path.stat().st_size for path in files if path.is_file()) < 300_000
