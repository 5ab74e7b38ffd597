import json

import pytest

from lab.arena.tau_chart import parts_of, tau_chart, taus


def score(method, tau, nodes=14, temperature=0.0, category="all"):
    return {"method": method, "tau": tau, "nodes": nodes, "temperature": temperature, "category": category}


def test_the_first_of_a_name_counts_and_what_is_drawn_can_be_drawn_again(tmp_path):
    first, second, other, keep = (tmp_path / name for name in ("first", "second", "other", "keep"))
    scores = [score("skip", 1.5), score("skip", 9.0, nodes=8), score("skip", 8.0, category="math")]
    first.write_text(json.dumps({"scores": [*scores, score("skip", 1.25, temperature=1.0)]}))
    second.write_text(json.dumps([{"scores": [score("skip", 3.0)]}, {"scores": [score("exit", 1.75)]}]))
    expected = {"skip": {0.0: 1.5, 1.0: 1.25}, "exit": {0.0: 1.75}, "merged": {0.0: 3.0}}
    parts = [*parts_of(str(first)), *parts_of(str(second)), *parts_of(f"merged={second}")[:1]]
    assert taus(parts, 14) == expected
    other.write_text("{}")
    with pytest.raises(ValueError, match="holds no scores of evaluate"):
        parts_of(str(other))
    pytest.importorskip("plotly")
    tau_chart(tmp_path / "chart.html", [str(first), str(second)], keep=keep)
    assert "temperature 1" in (tmp_path / "chart.html").read_text(encoding="utf-8")
    assert taus(parts_of(str(keep)), 14) == {name: expected[name] for name in ("skip", "exit")}
