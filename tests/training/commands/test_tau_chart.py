import json

import pytest

from jakiro.training.commands.tau_chart import tau_chart, taus


def score(method, tau, nodes=14, temperature=0.0, category="all"):
    return {"method": method, "tau": tau, "nodes": nodes, "temperature": temperature, "category": category}


def test_a_method_s_first_file_counts(tmp_path):
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    scores = [score("skip", 1.5), score("skip", 9.0, nodes=8), score("skip", 8.0, category="math")]
    first.write_text(json.dumps({"scores": [*scores, score("skip", 1.25, temperature=1.0)]}))
    second.write_text(json.dumps([{"scores": [score("skip", 3.0)]}, {"scores": [score("exit", 1.75)]}]))
    assert taus([first, second], 14) == {"skip": {0.0: 1.5, 1.0: 1.25}, "exit": {0.0: 1.75}}
    other.write_text("{}")
    with pytest.raises(ValueError, match="holds no scores of evaluate"):
        taus([other], 14)
    pytest.importorskip("plotly")
    tau_chart(tmp_path / "chart.html", [first, second])
    assert "temperature 1" in (tmp_path / "chart.html").read_text(encoding="utf-8")
