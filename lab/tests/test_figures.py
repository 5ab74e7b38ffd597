"""Figures of README and docs equal those of the shipped raw data and are consistent with each other."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from jakiro.bench.report import summarise
from jakiro.bench.runner import Bench, BenchSettings, Lane
from jakiro.prompts import Question
from lab import figures, raw
from lab.arena import tables, trained
from tests.bench.scripted import STAMP, ScriptedGenerator

README = Path(__file__).resolve().parents[2] / "README.md"
DOCS = README.parent / "docs"
PAGES = (README, *(DOCS / f"{name}.md" for name in ("performance", "training", "arena", "fair-play")))
NAMES = (*figures.BLOCKS, figures.TAUS)
TAU_NUMBERS = {
    "head": {"name": "small"},
    "settings": {"prompts": 3, "max_new_tokens": 5, "width": 8, "depth": 4},
    "scores": [
        {"method": method, "category": category, "temperature": 0.0, "nodes": nodes, "tau": tau, "num_steps": 9,
         "num_prompts": 3, "acceptance_by_depth": []}
        for method, category, nodes, tau in (
            ("jakiro", "all", 8, 2.344), ("jakiro", "all", 16, 2.5), ("jakiro", "math", 8, 9.0), ("aded", "all", 8, 9.0)
        )
    ],
}  # fmt: skip


def text_in_page(name):
    """Return a table as it appears in one of the pages."""
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    text = next((text for text in pages if figures.START.format(name=name) in text), pages[0])
    start, end = figures.between(text, name)
    return text[start:end]


def cells(block):
    """Return the rows of the first table of a block, without its rule."""
    lines = [line for line in block.splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def leading_number(cell):
    return float(re.match(r"[\d.]+", cell)[0])


def test_pages_have_the_tables_of_the_raw_data():
    blocks = {name: figures.block(name) for name in NAMES} | {name: tables.block(name) for name in tables.BLOCKS}
    for name, block in (blocks | trained.blocks()).items():
        assert text_in_page(name) == block, name


def check_against_runs(block, values):
    """Compare every speed and speedup of a table with sums over the runs of its raw data."""
    runs = [dict(zip(values["columns"], row, strict=True)) for row in values["runs"]]
    words, *rows = cells(block)
    lanes = list(dict.fromkeys(run["lane"] for run in runs))
    assert len(rows) == len(lanes)
    for column in (index for index, word in enumerate(words) if word.startswith("tokens/s")):
        temperature = float(words[column].rpartition("= ")[2])
        exact = {}
        for lane in lanes:
            members = [run for run in runs if (run["lane"], run["temperature"]) == (lane, temperature)]
            if members:
                exact[lane] = sum(run["tokens"] - 1 for run in members) / sum(run["seconds"] for run in members)
        fastest_plain = max((lane for lane in exact if lane.startswith("autoregressive")), key=exact.get)
        for lane, row in zip(lanes, rows, strict=True):
            if lane not in exact:
                assert row[column] == row[column + 1] == "–"
                continue
            assert leading_number(row[column]) == pytest.approx(exact[lane], abs=0.051)
            assert leading_number(row[column + 1]) == pytest.approx(exact[lane] / exact[fastest_plain], abs=0.0051)


SPEEDS = [name for name in figures.BLOCKS if name not in (figures.STEP, "coder-speedup")]


def runs_of(name):
    """Return the raw data of a table as one object."""
    files = [
        json.loads((figures.folder() / f"{file}.json").read_text(encoding="utf-8")) for file in figures.BLOCKS[name][1]
    ]
    return {"columns": files[0]["columns"], "runs": [run for file in files for run in file["runs"]]}


@pytest.mark.parametrize("name", SPEEDS)
def test_speeds_and_speedups_follow_from_seconds_and_tokens_of_the_runs(name):
    check_against_runs(text_in_page(name), runs_of(name))


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Return a folder as written by `make figures`, with scripted runs, and redirect the raw data."""
    settings = BenchSettings(methods=("autoregressive", "jakiro"), temperatures=(0.0, 1.0), nodes=("auto",))
    questions = [Question(str(number), "math", ("x",)) for number in range(8)]
    runs = list(Bench(ScriptedGenerator(), settings).runs(questions))
    plain = [run for run in runs if run.lane.method == "autoregressive"]
    runs += [
        replace(run, lane=Lane("llama-cpp"), seconds=run.seconds / 2, comparable=False, prefill_ms=None, num_steps=0)
        for run in plain
    ]
    bench = {"environment": STAMP, "settings": {"max_new_tokens": 64}, "runs": [run.to_dict() for run in runs]}
    for name in {file for _, files in figures.BLOCKS.values() for file in files}:
        content = bench
        if name.endswith("makers"):
            warm = [replace(run, temperature=0.7).to_dict() for run in runs if run.temperature == 0]
            content = bench | {"settings": {"max_new_tokens": 64, "top_p": 0.8, "top_k": 20}, "runs": warm}
        (tmp_path / name).mkdir()
        (tmp_path / name / "bench.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "tau.json").write_text(json.dumps(TAU_NUMBERS), encoding="utf-8")
    monkeypatch.setattr(figures, "folder", lambda: tmp_path / "raw")
    return tmp_path, runs


def test_raw_data_has_the_same_sums_as_the_runs(measured):
    folder, runs = measured
    assert sorted(figures.take(folder)) == ["adversarial", "coder", "coder-makers", "speed", "speed-makers", "tau"]
    read = raw.read(folder / "raw" / "speed.json")
    ours, theirs = summarise(runs), summarise(read.runs)
    assert [replace(group, acceptance_by_depth=()) for group in ours] == list(theirs)
    assert theirs[1].identical == 1.0


def test_tables_are_written_between_their_marks(measured, tmp_path):
    folder, _ = measured
    readme = tmp_path / "README.md"
    places = "\n".join(
        f"{name}:\n{figures.START.format(name=name)}old{figures.END}" for name in NAMES if name != figures.STEP
    )
    readme.write_text(f"Before\n{places}\nAfter\n", encoding="utf-8")
    figures.take(folder)
    blocks = {name: figures.block(name) for name in NAMES}
    with pytest.raises(ValueError, match="The marks of “step” are missing"):
        figures.write([readme], blocks)
    assert readme.read_text(encoding="utf-8") == f"Before\n{places}\nAfter\n", (
        "without one table's marks, no page is changed"
    )
    second = tmp_path / "second.md"
    second.write_text(f"{figures.START.format(name=figures.STEP)}old{figures.END}\n", encoding="utf-8")
    figures.write([readme, second], blocks)
    assert "| Jakiro, automatic trees | 0 | " in second.read_text(encoding="utf-8")
    text = readme.read_text(encoding="utf-8")
    assert text.startswith("Before\nspeed:\n") and text.endswith("\nAfter\n") and "old" not in text
    ours = "250.0 | 2.50× [2.50, 2.50]"
    assert f"| Jakiro, automatic trees | {ours} | {ours} | {ours} |" in text
    assert "| plain decoding, exact numerics | 100.0 | 1.00× | 100.0 | 1.00× | 100.0 | 1.00× |" in text
    assert "Temperature 0.7 uses top-p 0.8, top-k 20. By category, the speedup at temperature 0 ranges from" in text
    assert "in llama.cpp at temperature 0, Jakiro is 1.25× and plain decoding here 0.50× as fast." in text
    assert "A processor, 2 threads, torch 2.13.0" in text and "8 prompts, at most 64 new tokens" in text
    assert "| 8 | 2.34 |\n| 16 | 2.50 |\n\nHead `small`, 3 prompts" in text
