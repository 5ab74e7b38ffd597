"""Figures of shipped recordings: data, outcomes, palettes, edge cases, and the command that writes them."""

import json
import random
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jakiro import figures
from jakiro.cli.main import app
from jakiro.cli.plot import chosen_step
from jakiro.system import assets_folder
from jakiro.trace import Trace, TraceError, pooled_tau

ASSETS = assets_folder()
ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


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
    assert figure.layout.xaxis.title.text == BROWSER["plot_seconds"]
    assert figure.layout.yaxis.title.text == BROWSER["plot_y"]
    assert above.name == f"Jakiro  {drafted.tokens_per_second:.0f} tokens/s"
    slow = replace(drafted, steps=[replace(step, verify_ms=100 * step.verify_ms) for step in drafted.steps])
    assert figures.speed(slow).data[0].name == f"Jakiro  {slow.tokens_per_second:.1f} tokens/s"


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
    hover_texts = [text for trace in figure.data if trace.mode != "lines" for text in trace.hovertext]
    assert len(hover_texts) == len(step.nodes) > 20
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


def test_logits_processor_that_forbids_a_token_is_the_reason(large):
    step, index = next(
        (step, index)
        for step in large.steps
        for index in range(1, len(step.nodes))
        if figures.outcome_of(step, index).startswith("rejected")
    )
    nodes = [*step.nodes]
    nodes[index] = replace(nodes[index], forbidden_by="grammar")
    assert figures.outcome_of(replace(step, nodes=tuple(nodes)), index) == "rejected: forbidden by grammar"


def test_text_of_a_model_is_escaped(large):
    step = large.steps[0]
    nodes = [replace(node, piece=b"<b>x</b>") for node in step.nodes]
    figure = figures.draft_tree(replace(step, nodes=tuple(nodes)))
    assert all("<b>x" not in text for trace in figure.data if trace.mode != "lines" for text in trace.text)


def test_bars_add_up_to_tau_and_to_the_accepted_nodes(opening):
    trace = opening["jakiro"]
    accepted, bonus = figures.accepted_per_step(trace).data
    assert (sum(accepted.y) + sum(bonus.y)) / len(trace.steps) == pytest.approx(pooled_tau(trace.steps))
    proposed, accepted_by_expert = figures.experts(trace).data
    assert sum(map(int, proposed.text)) == sum(len(step.nodes) - 1 for step in trace.steps)
    assert sum(map(int, accepted_by_expert.text)) == sum(accepted.y)
    assert sum(accepted_by_expert.y) == pytest.approx(1)


def test_depths_are_pooled_as_in_the_library(opening):
    from jakiro.trace import acceptance_by_depth

    (line,) = figures.acceptance_by_depth({"Jakiro": opening["jakiro"]}).data
    counts = acceptance_by_depth(opening["jakiro"].steps)
    assert list(line.y) == [accepted / tested for accepted, tested in counts] and list(line.x) == [1, 2, 3]


def test_a_benchmark_has_its_speedups_and_intervals():
    result = json.loads((ASSETS / "benchmark" / "bench.json").read_text(encoding="utf-8"))
    figure = figures.bench(result)
    for bars, temperature in zip(figure.data, (0, 1), strict=True):
        rows = [r for r in result["groups"] if r["category"] == "overall" and r["temperature"] == temperature]
        assert list(bars.y) == [row["speedup"] for row in rows]
        assert list(bars.x) == ["Plain decoding", "Jakiro · auto"]
        low, high = rows[1]["speedup_interval"]
        assert bars.y[1] - bars.error_y.arrayminus[1] == pytest.approx(low)
        assert bars.y[1] + bars.error_y.array[1] == pytest.approx(high)


def test_a_training_log_is_read_from_its_lines():
    log = "step 20 loss 3.1\nstep 50 validation: main_1/top1 0.250 main_2/top1 0.125\n"
    log += "step 100 validation: main_1/top1 0.500"
    first, second = figures.training(log).data
    assert (list(first.x), list(first.y)) == ([50, 100], [0.25, 0.5])
    assert (second.name, list(second.y)) == ("main_2/top1", [0.125])


def all_figures(trace: Trace) -> list:
    """Return every figure of a trace except the tree."""
    return [
        figures.speed(trace),
        figures.accepted_per_step(trace),
        figures.acceptance_by_depth({"Jakiro": trace}),
        figures.experts(trace),
    ]


def test_an_answer_without_steps_gives_one_sentence(opening, plot, tmp_path):
    empty = Trace(opening["jakiro"].header, [], "eos")
    for figure in [*all_figures(empty), figures.bench({"groups": []}), figures.training("")]:
        assert not figure.data and "nothing to show: no step" in figure.layout.annotations[0].text
    assert "0 steps" in repr(empty) and "<table>" in empty._repr_html_()
    empty.save(tmp_path / "empty.json")
    arguments = (tmp_path / "empty.json", "--figure", "tree", "--out", tmp_path / "a.html")
    assert str(plot(*arguments).exception) == "This answer has no steps, so there is no draft tree."


def test_one_step_gives_every_figure(opening):
    trace = Trace(opening["jakiro"].header, opening["jakiro"].steps[:1], "eos")
    for figure in [*all_figures(trace), figures.draft_tree(trace.steps[0], trace.header.proposers)]:
        assert figure.data and not figure.layout.annotations
    assert len(figures.speed(trace).data[0].x) == 2
    plain = Trace(opening["autoregressive"].header, opening["autoregressive"].steps[:1], "eos")
    assert "0 candidates, 0 accepted" in figures.draft_tree(plain.steps[0]).layout.title.text


def test_a_tree_of_60_nodes_has_a_row_for_each_leaf_below_its_legend(large):
    dice, step = random.Random(0), large.steps[0]
    nodes = [step.nodes[0]]
    for index in range(1, 61):
        parent = dice.randrange(max(0, index - 12), index)
        nodes.append(replace(step.nodes[1], parent=parent, depth=nodes[parent].depth + 1))
    figure = figures.draft_tree(replace(step, nodes=tuple(nodes), accepted_path=()), large.header.proposers)
    (line, root, candidates) = figure.data
    assert len({*zip(candidates.x, candidates.y, strict=True)}) == 60 and (line.name, root.name) == (
        "not accepted",
        "root",
    )
    leaves = 61 - len({node.parent for node in nodes[1:]})
    assert figure.layout.height >= figures.LEAF_PIXELS * leaves + figure.layout.margin.t
    # Shares of the height would move the legend over the title of a tall figure
    assert figure.layout.legend.y == 1 and figure.layout.title.yref == "container"


def test_trace_has_a_short_representation_and_can_be_saved_and_loaded(opening, tmp_path):
    trace = opening["jakiro"]
    assert len(repr(trace)) < 120 and len(repr(trace.steps[0])) < 160
    assert f"{len(trace.token_ids)} tokens, {len(trace.steps)} steps" in repr(trace)
    html = trace._repr_html_()
    assert len(html) < 6000 and "<script" not in html and html.count("✓") > 2
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
    recording = json.loads((ASSETS / "traces" / "1-opening.json").read_text(encoding="utf-8"))
    recording["traces"]["jakiro"]["header"]["schema_version"] = 99
    (tmp_path / "other.json").write_text(json.dumps(recording), encoding="utf-8")
    (tmp_path / "bench.json").write_text('{"groups": [{"category": "overall"}]}', encoding="utf-8")
    for arguments, sentence in (
        ((ROOT / "README.md", "--out", tmp_path / "c.html"), "is not JSON"),
        ((tmp_path / "other.json", "--out", tmp_path / "c.html"), "This trace uses format 99; this version reads 1."),
        ((tmp_path / "bench.json", "--out", tmp_path / "c.html"), "is not a bench.json of this version"),
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


def test_the_pictures_of_readme_show_the_recordings(opening, large):
    speed = figures.speed(opening["jakiro"], opening["autoregressive"])
    tree = figures.draft_tree(chosen_step(large, None), large.header.proposers)
    for name, figure in (("speed", speed), ("tree", tree)):
        picture = (ROOT / "docs" / "figures" / f"{name}.svg").read_text(encoding="utf-8")
        assert figure.layout.title.text in picture
        assert all(trace.name in picture for trace in figure.data)


@pytest.mark.rare
def test_the_lines_of_readme_write_pictures(tmp_path, monkeypatch):
    """The default pair decodes; pictures are written where kaleido is installed, and as pages elsewhere."""
    (lines,) = re.findall(r"```python\n(from jakiro import JakiroGenerator, figures\n.*?)```", README, re.DOTALL)
    assert lines.count("\n") <= 10
    monkeypatch.chdir(tmp_path)
    if find_spec("kaleido") is None:
        lines = lines.replace("write_image", "write_html")
    exec(lines, {})
    assert {path.name for path in tmp_path.iterdir()} == {"speed.svg", "tree.svg", "steps.html"}


@pytest.mark.rare
@pytest.mark.skipif(find_spec("kaleido") is None, reason="no kaleido")
@pytest.mark.parametrize("form", ["png", "svg"])
def test_static_pictures_are_written(form, plot, tmp_path):
    out = tmp_path / f"figure.{form}"
    done = plot(ASSETS / "traces" / "5-large-tree.json", "--figure", "tree", "--width", 480, "--out", out)
    assert done.exit_code == 0, done.exception
    written = out.read_bytes()
    if form == "png":
        assert written[:4] == b"\x89PNG" and int.from_bytes(written[16:20]) == 960
    else:
        assert written[:4] == b"<svg" and b'width="480"' in written


def test_required_packages_are_pinned_and_imported():
    """The project must use torch, transformers, gradio, plotly and accelerate."""
    pinned = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    sources = "\n".join(
        p.read_text(encoding="utf-8") for folder in ("jakiro", "app") for p in (ROOT / folder).rglob("*.py")
    )
    for package in ("torch", "transformers", "gradio", "plotly", "accelerate"):
        assert re.search(rf"^{package}==", pinned, re.MULTILINE), package
        assert re.search(rf"^\s*(from|import) {package}\b", sources, re.MULTILINE), package
