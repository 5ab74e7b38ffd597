"""Tables of trained drafters, compared with made-up scores that are counted by hand."""

import json

import pytest
from rich.console import Console

from jakiro.bench.command import measure
from jakiro.bench.runner import BenchSettings
from jakiro.prompts import Question
from lab.arena import trained
from tests.bench.scripted import ScriptedGenerator
from tests.support import tiny_generator


def score(method: str, nodes: int, accepted: int, category: str = "all") -> dict:
    """Return a score of sixteen prompts with ten steps each; an accepting step accepts one token of the first level."""
    return {
        "method": method, "temperature": 0.0, "nodes": nodes, "category": category, "tau": 9.0, "num_steps": 160,
        "passes": 4.5, "acceptance_by_depth": [[16 * accepted, 160], [0, 16 * accepted]], "accepted_share": {},
        "prompts": [[10, accepted]] * 16,
    }  # fmt: skip


@pytest.fixture
def measured(tmp_path, monkeypatch):
    monkeypatch.setattr(trained, "folder", lambda: tmp_path)
    files = []
    for method, accepted in (("jakiro", 8), ("eagle2", 6)):
        scores = [score(method, nodes, accepted) for nodes in (8, 14)] + [score(method, 14, 10, "math")]
        values = {"target": {"name": "tiny"}, "head": {"name": method}, "settings": {"prompts": 16}, "scores": scores}
        files.append(tmp_path / f"of-{method}.json")
        files[-1].write_text(json.dumps(values), encoding="utf-8")
    trained.take(files)
    return tmp_path


def test_scores_without_passes_are_refused_in_one_sentence(measured):
    file = measured / "of-eagle2.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    del values["scores"][0]["passes"]
    file.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ValueError, match=r"of-eagle2.json has no passes yet; count them with .*lab.arena.passes"):
        trained.take([measured / "of-jakiro.json", file])


def test_differences_are_of_the_same_prompts(measured):
    text = trained.taus(trained.read())
    assert "| τ | T = 0, 8 nodes | T = 0, 14 nodes |" in text
    assert "| `jakiro` | 1.80 | 1.80 |" in text and "| `eagle2` | 1.60 | 1.60 |" in text
    assert "| `jakiro` − `eagle2` | +0.20 [0.20, 0.20] | +0.20 [0.20, 0.20] |" in text
    assert "16 prompts." in text and "tau" not in (measured / trained.SCORES).read_text(encoding="utf-8")


def test_drafts_are_timed_and_shown_with_the_passes(measured):
    blocks = trained.blocks()
    assert blocks["equal-minutes"] == trained.taus(trained.read())
    assert blocks["serial-passes"] == blocks["equal-minutes-speed"] == trained.UNMEASURED
    assert "| `jakiro` | 4.50 | 80 % | 0 % | – | – | – |" in blocks["by-depth"]
    trained.time_drafts(tiny_generator("decoupled"))
    times = json.loads((measured / trained.TIMES).read_text(encoding="utf-8"))
    assert {name for name, _ in times["draft_ms"]} >= {"jakiro"}
    assert [level for level, _ in times["draft_ms"][0][1]] == list(range(1, 9))
    times["draft_ms"] = [[name, [[level, 1.5 * level] for level in range(1, 9)]] for name in ("jakiro", "eagle2")]
    (measured / trained.TIMES).write_text(json.dumps(times), encoding="utf-8")
    assert "| `eagle2` | 4.50 | 1.5 | 3.0 | 4.5 | 6.0 | 7.5 |" in trained.blocks()["serial-passes"]


def test_a_benchmark_of_heads_becomes_a_table_of_speeds(measured):
    scripted = ScriptedGenerator()
    questions = [Question(str(number), "math", ("hi",)) for number in range(8)]
    settings = BenchSettings(methods=("autoregressive", "jakiro"), temperatures=(0.0,), nodes=("auto",))
    measure(scripted, settings, questions, measured / "bench", Console(quiet=True))
    trained.take_speeds(measured / "bench")
    text = trained.blocks()["equal-minutes-speed"]
    assert "| | T = 0: tokens/s |" in text and "| `jakiro` | 250.0 | 2.50× [2.50, 2.50] | 1× |" in text
