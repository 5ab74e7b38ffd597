"""Figures of shipped recordings: data, outcomes, palettes, edge cases, and the command that writes them."""

import json
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jakiro import figures
from jakiro.cli.main import app
from jakiro.system import assets_folder
from jakiro.trace import Trace, TraceError, pooled_tau

ASSETS = assets_folder()
ROOT = Path(__file__).resolve().parent.parent


def recorded(name: str) -> dict[str, Trace]:
    values = json.loads((ASSETS / "traces" / f"{name}.json").read_text(encoding="utf-8"))
    return {method: Trace.from_dict(trace) for method, trace in values["traces"].items()}


@pytest.fixture(scope="module")
def opening() -> dict[str, Trace]:
    return recorded("1-opening")


@pytest.fixture(scope="module")
def large() -> Trace:
    return recorded("5-large-tree")["jakiro"]


def test_speed_has_a_point_for_every_step_and_labels_of_the_page(opening):
    from app.words.plots import BROWSER

    drafted, plain = opening["jakiro"], opening["autoregressive"]
    figure = figures.speed(drafted, plain)
    below, above = figure.data
    assert list(above.y) == [1, *(1 + sum(len(s.committed_ids) for s in drafted.steps[: n + 1]) for n in range(49))]
    assert above.y[-1] == len(drafted.token_ids) == below.y[-1]
    assert above.x[-1] == pytest.approx(drafted.decode_seconds, abs=1e-9)
    assert above.line.shape == "hv" and below.line.shape == "linear"
    assert figure.layout.xaxis.title.text == BROWSER["plot_x"] and figure.layout.yaxis.title.text == BROWSER["plot_y"]
    assert f"{drafted.tokens_per_second:.1f} tokens/s" in above.name


def test_the_palette_is_that_of_the_page():
    template = json.loads((ASSETS / "plots" / "template.json").read_text(encoding="utf-8"))
    css = (ASSETS / "web" / "base" / "base.css").read_text(encoding="utf-8")
    for scheme, rules in (
        ("light", css.partition(".dark {")[0]),
        ("dark", css.partition(".dark {")[2].partition("}")[0]),
    ):
        for name, colour in template["colours"][scheme].items():
            assert f"--{name}: {colour};" in rules, (scheme, name)


@pytest.mark.parametrize("dark", [False, True])
def test_a_figure_uses_the_colours_of_its_scheme(opening, dark):
    colours = json.loads((ASSETS / "plots" / "template.json").read_text())["colours"]["dark" if dark else "light"]
    figure = figures.speed(opening["jakiro"], opening["autoregressive"], dark)
    assert figure.layout.paper_bgcolor == colours["page"]
    assert [line.line.color for line in figure.data] == [colours["plain-line"], colours["ink"]]
    assert len({line.line.dash for line in figure.data}) == 2


def test_a_tree_has_every_node_once_and_says_why_it_was_rejected(large):
    step = max(large.steps, key=lambda step: len(step.nodes))
    figure = figures.draft_tree(step, large.header.proposers)
    drawn = [text for trace in figure.data if trace.mode != "lines" for text in trace.hovertext]
    assert len(drawn) == len(step.nodes) > 20
    places = {(x, y) for trace in figure.data if trace.mode != "lines" for x, y in zip(trace.x, trace.y, strict=True)}
    assert len(places) == len(step.nodes)
    outcomes = [figures.outcome_of(step, index) for index in range(len(step.nodes))]
    assert outcomes.count("accepted") == len(step.accepted_path)
    for index in range(1, len(step.nodes)):
        parent = step.nodes[index].parent
        if outcomes[index].startswith("rejected: the target chose"):
            assert parent in (0, *step.accepted_path)
            assert step.nodes[parent].target_choice != step.nodes[index].token_id
    assert any(outcome.startswith("not compared") for outcome in outcomes)
    assert {trace.name for trace in figure.data} >= {"accepted path", "root", "Expert 1", "Expert 2"}


def test_a_rule_that_forbids_a_token_is_the_reason(large):
    step, index = next(
        (step, index)
        for step in large.steps
        for index in range(1, len(step.nodes))
        if figures.outcome_of(step, index).startswith("rejected")
    )
    nodes = [*step.nodes]
    nodes[index] = replace(nodes[index], forbidden_by="grammar")
    assert figures.outcome_of(replace(step, nodes=tuple(nodes)), index) == "rejected: forbidden by grammar"


def test_text_of_a_model_is_no_markup(large):
    step = large.steps[0]
    nodes = [replace(node, piece=b"<b>x</b>") for node in step.nodes]
    figure = figures.draft_tree(replace(step, nodes=tuple(nodes)))
    assert all("<b>x" not in text for trace in figure.data if trace.mode != "lines" for text in trace.text)


def test_bars_add_up_to_tau_and_to_the_accepted_nodes(opening):
    trace = opening["jakiro"]
    accepted, own = figures.accepted_per_step(trace).data
    assert (sum(accepted.y) + sum(own.y)) / len(trace.steps) == pytest.approx(pooled_tau(trace.steps))
    proposed, kept = figures.experts(trace).data
    assert sum(map(int, proposed.text)) == sum(len(step.nodes) - 1 for step in trace.steps)
    assert sum(map(int, kept.text)) == sum(accepted.y)
    assert sum(kept.y) == pytest.approx(1)


def test_depths_are_pooled_as_in_the_library(opening):
    from jakiro.trace import acceptance_by_depth

    (line,) = figures.acceptance_by_depth({"Jakiro": opening["jakiro"]}).data
    counts = acceptance_by_depth(opening["jakiro"].steps)
    assert list(line.y) == [kept / tested for kept, tested in counts] and list(line.x) == [1, 2, 3]


def test_a_benchmark_has_its_speedups_and_intervals():
    result = json.loads((ASSETS / "benchmark" / "bench.json").read_text(encoding="utf-8"))
    figure = figures.bench(result)
    for bars, temperature in zip(figure.data, (0, 1), strict=True):
        rows = [r for r in result["groups"] if r["category"] == "overall" and r["temperature"] == temperature]
        assert list(bars.y) == [row["speedup"] for row in rows]
        low, high = rows[1]["speedup_interval"]
        assert bars.y[1] - bars.error_y.arrayminus[1] == pytest.approx(low)
        assert bars.y[1] + bars.error_y.array[1] == pytest.approx(high)


def test_a_training_log_is_read_from_its_lines():
    log = "step 20 loss 3.1\nstep 50 validation: main_1/top1 0.250 main_2/top1 0.125\n"
    log += "step 100 validation: main_1/top1 0.500"
    first, second = figures.training(log).data
    assert (list(first.x), list(first.y)) == ([50, 100], [0.25, 0.5])
    assert (second.name, list(second.y)) == ("main_2/top1", [0.125])


def test_an_answer_without_steps_gives_one_sentence(opening):
    empty = Trace(opening["jakiro"].header, [], "eos")
    for figure in (figures.speed(empty), figures.accepted_per_step(empty), figures.experts(empty)):
        assert not figure.data and "no step" in figure.layout.annotations[0].text
    one = Trace(opening["jakiro"].header, opening["jakiro"].steps[:1], "eos")
    assert len(figures.speed(one).data[0].x) == 2
    assert "0 steps" in repr(empty) and "<table>" in empty._repr_html_()


def test_a_trace_shows_itself_shortly_and_is_saved_and_loaded(opening, tmp_path):
    trace = opening["jakiro"]
    assert len(repr(trace)) < 120 and len(repr(trace.steps[0])) < 160
    assert f"{len(trace.token_ids)} tokens, {len(trace.steps)} steps" in repr(trace)
    shown = trace._repr_html_()
    assert len(shown) < 6000 and "<script" not in shown and shown.count("✓") > 2
    trace.save(tmp_path / "trace.json")
    assert Trace.load(tmp_path / "trace.json") == trace
    (tmp_path / "old.json").write_text(trace.to_json().replace('"schema_version":1', '"schema_version":99'))
    with pytest.raises(TraceError, match="format 99"):
        Trace.load(tmp_path / "old.json")


def test_a_table_has_a_row_for_each_step(opening):
    pytest.importorskip("pandas")
    table = opening["jakiro"].to_dataframe()
    assert len(table) == len(opening["jakiro"].steps)
    assert "".join(table["text"]) == opening["jakiro"].text
    assert table["tokens"].sum() + 1 == len(opening["jakiro"].token_ids)


@pytest.fixture
def plot(tmp_path):
    def run(*arguments):
        return CliRunner().invoke(app, ["plot", *map(str, arguments)])

    return run


@pytest.mark.parametrize("name", ["speed", "tree", "accepted", "depth", "experts"])
def test_the_command_writes_a_page_of_every_figure(name, plot, tmp_path):
    out = tmp_path / "figure.html"
    done = plot(ASSETS / "traces" / "1-opening.json", "--figure", name, "--dark", "--out", out)
    assert done.exit_code == 0, done.exception
    assert "Plotly.newPlot" in out.read_text(encoding="utf-8")


def test_the_command_reads_traces_and_benchmarks_and_refuses_others(plot, tmp_path, opening):
    opening["jakiro"].save(tmp_path / "trace.json")
    assert plot(tmp_path / "trace.json", "--out", tmp_path / "a.html").exit_code == 0
    assert plot(ASSETS / "benchmark" / "bench.json", "--out", tmp_path / "b.html").exit_code == 0
    for arguments, sentence in (
        ((ROOT / "README.md", "--out", tmp_path / "c.html"), "is not JSON"),
        ((ASSETS / "questions.json", "--out", tmp_path / "c.html"), "neither a trace nor a recording"),
        ((tmp_path / "trace.json", "--out", tmp_path / "c.gif"), "--out must end in"),
        (
            (tmp_path / "trace.json", "--figure", "tree", "--step", "400", "--out", tmp_path / "c.html"),
            "between 1 and 49",
        ),
    ):
        assert sentence in str(plot(*arguments).exception)


def test_without_kaleido_one_sentence_names_it(plot, tmp_path, opening, monkeypatch):
    def missing(*arguments, **options):
        raise ValueError("Image export requires the kaleido package.\nInstall it.")

    monkeypatch.setattr("plotly.graph_objects.Figure.write_image", missing)
    opening["jakiro"].save(tmp_path / "trace.json")
    message = str(plot(tmp_path / "trace.json", "--out", tmp_path / "a.png").exception)
    assert "pip install kaleido" in message and "a.html" in message and "\n" not in message


@pytest.mark.rare
@pytest.mark.skipif(find_spec("kaleido") is None, reason="no kaleido")
@pytest.mark.parametrize("form", ["png", "svg"])
def test_static_pictures_are_written(form, plot, tmp_path):
    out = tmp_path / f"figure.{form}"
    done = plot(ASSETS / "traces" / "5-large-tree.json", "--figure", "tree", "--out", out)
    assert done.exit_code == 0, done.exception
    assert out.read_bytes()[:4] in (b"\x89PNG", b"<svg")


def test_the_packages_of_the_card_are_installed_with_it_and_used():
    """The founding card names torch, transformers, gradio, plotly and accelerate."""
    pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    sources = "\n".join(
        p.read_text(encoding="utf-8") for folder in ("jakiro", "app") for p in (ROOT / folder).rglob("*.py")
    )
    for package in ("torch", "transformers", "gradio", "plotly", "accelerate"):
        assert re.search(rf"^{package}==", pinned, re.MULTILINE), package
        assert re.search(rf"^\s*(from|import) {package}\b", sources, re.MULTILINE), package
