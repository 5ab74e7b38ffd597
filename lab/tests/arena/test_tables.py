"""Tables of docs/arena.md, compared with the raw data."""

import json
from pathlib import Path

import pytest

from lab.arena import standings, tables
from lab.figures import END, START, between, write
from lab.tests.arena.test_standings import bench_of

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "arena.md"


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """Convert the result folders of a benchmark into raw data of both comparisons."""
    monkeypatch.setattr(tables, "folder", lambda: tmp_path)
    benches = {standings.OWN_SIZE: bench_of(("auto",), faster=1.25), standings.SAME_NODES: bench_of((8, 14))}
    for name, bench in benches.items():
        (tmp_path / name.removesuffix(".json")).mkdir()
        (tmp_path / name.removesuffix(".json") / "bench.json").write_text(json.dumps(bench), encoding="utf-8")
        tables.take(name, tmp_path / name.removesuffix(".json"))
    return tmp_path


def test_tables_are_written_between_their_marks_and_name_the_fastest(measured, tmp_path):
    page = tmp_path / "page.md"
    marks = "\n".join(f"{START.format(name=name)}old{END}" for name in ("own-size", "same-nodes"))
    page.write_text(f"Before\n{marks}\nAfter\n", encoding="utf-8")
    write([page], {name: tables.block(name) for name in tables.BLOCKS})
    text = page.read_text(encoding="utf-8")
    assert "old" not in text and text.startswith("Before\n") and text.endswith("\nAfter\n")
    assert "| `eagle2` | 312.5 | 3.12× [3.12, 3.12] | 1.25× [1.25, 1.25] | 2.00 | 2.0 + 5.0 |" in text
    assert "Fastest at temperature 0: `eagle2`, 1.25× [1.25, 1.25] as fast as `jakiro`." in text
    assert "| `jakiro` | 2.00 [2.00, 2.00] · 50 % | 2.00 [2.00, 2.00] · 50 % |" in text


@pytest.mark.parametrize("name", tables.BLOCKS)
def test_the_page_has_the_tables_of_the_raw_data(name):
    text = PAGE.read_text(encoding="utf-8")
    start, end = between(text, name)
    assert text[start:end] == tables.block(name)


def test_the_leaderboard_file_matches_the_raw_data():
    assert tables.path_of(tables.LEADERBOARD).read_text(encoding="utf-8") == tables.leaderboard()
