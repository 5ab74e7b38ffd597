"""Plotly figures of traces, benchmarks and training runs, in the palette and with the labels of the page.

Colours and line styles are defined in `assets/plots/template.json`. Shapes, dashes and patterns repeat the information
of colours, so that a figure is readable in grey. Every function returns a `plotly.graph_objects.Figure`.
"""

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate

from plotly.graph_objects import Bar, Figure, Scatter

from jakiro.system import assets_folder
from jakiro.trace import Node, Step, Trace
from jakiro.trace import acceptance_by_depth as count_by_depth

SYMBOLS = ("circle", "square", "diamond", "triangle-up")
PATTERNS = ("", "/", "x", ".")
ROLES = ("main", "plain", "other-0", "other-1", "other-2")
# Points of a line; of longer answers every n-th step is drawn, as on the page
MOST_POINTS = 500
SECONDS_TITLE, TOKENS_TITLE = "seconds of computing", "tokens written"
LEAF_PIXELS = 34


@cache
def _style(dark: bool) -> dict:
    """Return colours, line styles and the layout of one colour scheme."""
    text = (assets_folder() / "plots" / "template.json").read_text(encoding="utf-8")
    template = json.loads(text)
    colours = template["colours"]["dark" if dark else "light"]
    layout = json.dumps(template["layout"])
    for name, colour in colours.items():
        layout = layout.replace(f'"${name}"', f'"{colour}"')
    return template | {"colours": colours, "layout": json.loads(layout)}


def role_of(place: int) -> str:
    """Return the role of a series by its place; roles repeat after the last one."""
    return ROLES[place % len(ROLES)]


def line_style(role: str, dark: bool = False) -> dict:
    """Return the line style of a role."""
    style = _style(dark)
    look = style["looks"][role]
    return {"color": style["colours"][look["colour"]], "width": look["width"], "dash": look["dash"]}


def marker_style(role: str, dark: bool = False) -> dict:
    """Return the marker style of a role."""
    colour = line_style(role, dark)["color"]
    return {"color": colour, "symbol": _style(dark)["looks"][role]["symbol"], "size": 9, "line": {"color": colour}}


def _hue(place: int, dark: bool) -> str:
    return _style(dark)["colours"][f"hue-{place % len(SYMBOLS)}"]


def styled(data: Sequence, title: str, x: str, y: str = "", dark: bool = False, **layout) -> Figure:
    """Return a figure in the page's style; without data it contains one sentence.

    Args:
        data: Plotly's traces.
        title: title of the figure, as plain text.
        x: title of the x axis, as plain text.
        y: title of the y axis, as plain text.
        dark: use the dark palette.
        layout: further fields of Plotly's layout.
    """
    style = _style(dark)
    page = style["colours"]["page"]
    figure = Figure(data).update_layout(template={"layout": style["layout"]}, paper_bgcolor=page, plot_bgcolor=page)
    # Title and legend are anchored to the edges, not by a share of the height, because trees are tall
    figure.update_layout(
        style["figure"], title_text=plain_text(title), xaxis_title_text=plain_text(x), yaxis_title_text=plain_text(y)
    )
    figure.update_layout(**layout)
    if not data:
        figure.add_annotation(text="There is nothing to show: no step or result is recorded.", showarrow=False)
    return figure


def plain_text(text: str) -> str:
    """Return text in which Plotly finds no markup."""
    return html.escape(text, quote=False)


def _label(piece: bytes) -> str:
    """Return a token's bytes as a label: visible spaces, no markup."""
    text = piece.decode("utf-8", errors="replace").replace(" ", "␣").replace("\n", "⏎")
    return plain_text(text if len(text) <= 16 else f"{text[:15]}…")


def method_title(name: str) -> str:
    """Return the title of a drafting method, as on the page."""
    from jakiro.drafters.registry import METHODS

    return METHODS[name].title if name in METHODS else name


def outcome_of(step: Step, index: int) -> str:
    """Return why a node was accepted, rejected, or not compared."""
    if index == 0:
        return "root: the last token of the text"
    node = step.nodes[index]
    if index in step.accepted_path:
        return "accepted"
    if node.parent not in (0, *step.accepted_path):
        return "not compared: its parent was rejected"
    if node.forbidden_by is not None:
        return f"rejected: forbidden by {node.forbidden_by}"
    return f"rejected: the target chose “{_label(step.nodes[node.parent].target_choice_piece)}”"


def _heights(nodes: Sequence[Node]) -> list[float]:
    """Return a vertical place for each node: leaves in order, parents at the mean of their children."""
    children: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        children.setdefault(node.parent, []).append(index)
    places, leaves, waiting = [0.0] * len(nodes), 0, [(0, False)]
    while waiting:
        index, finished = waiting.pop()
        below = children.get(index, [])
        if finished:
            places[index] = sum(places[child] for child in below) / len(below)
        elif below:
            waiting += [(index, True), *((child, False) for child in reversed(below))]
        else:
            places[index] = float(leaves)
            leaves += 1
    return places


def draft_tree(step: Step, proposers: Sequence[Mapping] = (), dark: bool = False) -> Figure:
    """Return the draft tree of a step: columns are levels, the accepted path is a thick line.

    Args:
        step: one step of a trace.
        proposers: `trace.header.proposers`, for their labels and order; ids are shown if not given.
    """
    colours, heights, nodes = _style(dark)["colours"], _heights(step.nodes), step.nodes
    labels = {entry["id"]: entry["label"] for entry in proposers}
    ids = list(dict.fromkeys([*labels, *(node.proposer for node in nodes[1:])]))
    accepted = {0, *step.accepted_path}
    data = []
    for name, chosen, look in (
        ("not accepted", lambda index: index not in accepted, {"color": colours["control"], "width": 1, "dash": "dot"}),
        ("accepted path", lambda index: index in accepted, {"color": colours["ink"], "width": 4}),
    ):
        edges = [index for index in range(1, len(nodes)) if chosen(index)]
        x = [value for index in edges for value in (nodes[index].depth - 1, nodes[index].depth, None)]
        y = [value for index in edges for value in (heights[nodes[index].parent], heights[index], None)]
        if edges:
            data.append(Scatter(x=x, y=y, mode="lines", line=look, name=name, hoverinfo="skip"))
    for place, proposer in enumerate(["root", *ids]):
        members = [index for index in range(len(nodes)) if (nodes[index].proposer if index else "root") == proposer]
        colour = colours["ink"] if proposer == "root" else _hue(place - 1, dark)
        if members:
            data.append(
                Scatter(
                    x=[nodes[index].depth for index in members], y=[heights[index] for index in members],
                    mode="markers+text", name=plain_text(labels.get(proposer, proposer)), textposition="top center",
                    marker={
                        "size": 11, "color": [colour if index in accepted else colours["page"] for index in members],
                        "symbol": "star" if proposer == "root" else SYMBOLS[(place - 1) % len(SYMBOLS)],
                        "line": {"color": colour, "width": 2},
                    },
                    text=[_label(nodes[index].piece) for index in members],
                    # The halo keeps labels readable where edges cross them
                    textfont={"color": colours["ink"], "size": 11, "shadow": f"0 0 3px {colours['page']}"},
                    hovertext=[_hover(step, index) for index in members], hovertemplate="%{hovertext}<extra></extra>",
                )
            )  # fmt: skip
    depth, leaves = max(node.depth for node in nodes), max(heights)
    title = f"Step {step.index + 1}: {len(nodes) - 1} candidates, {len(step.accepted_path)} accepted"
    return styled(
        data, title, "level", "", dark, height=int(170 + LEAF_PIXELS * (leaves + 1)),
        xaxis={"range": [-0.4, depth + 0.4], "tickvals": list(range(depth + 1))},
        yaxis={"visible": False, "range": [leaves + 0.6, -1.1]},
    )  # fmt: skip


def _hover(step: Step, index: int) -> str:
    node = step.nodes[index]
    lines = [f"<b>{_label(node.piece)}</b>", plain_text(outcome_of(step, index))]
    if index:
        lines.append(f"estimated chance {math.exp(node.score):.0%}")
    for name, value in (("draft", node.draft_prob), ("target", node.target_prob)):
        if value is not None:
            lines.append(f"{name} probability {value:.1%}")
    return "<br>".join(lines)


def speed_points(trace: Trace) -> tuple[list[float], list[int]]:
    """Return seconds and tokens written, from the end of the prompt on: the points of the page's plot."""
    seconds = list(accumulate(step.total_ms / 1000 for step in trace.steps))
    lead = len(trace.header.prefix_ids) + 1
    counts = list(accumulate((len(step.committed_ids) for step in trace.steps), initial=lead))[1:]
    every = max(1, math.ceil(len(seconds) / MOST_POINTS))
    points = [index for index in range(len(seconds)) if index % every == 0 or index == len(seconds) - 1]
    return [0.0, *(seconds[index] for index in points)], [lead, *(counts[index] for index in points)]


def speed(trace: Trace, plain: Trace | None = None, dark: bool = False) -> Figure:
    """Return the tokens written over computing time, of a trace and optionally of plain decoding."""
    data = []
    for role, lane in (("plain", plain), ("main", trace)):
        if lane is None or not lane.steps:
            continue
        seconds, counts = speed_points(lane)
        rate = lane.tokens_per_second or 0.0
        name = f"{method_title(lane.header.method)}  {rate:,.{0 if rate >= 100 else 1}f} tokens/s"
        shape = "hv" if role == "main" and lane.header.drafter else "linear"
        data.append(
            Scatter(
                x=seconds, y=counts, mode="lines", name=plain_text(name),
                line=line_style(role, dark) | {"shape": shape},
                hovertemplate="%{y} tokens after %{x:.2f} s<extra></extra>", showlegend=True,
            )
        )  # fmt: skip
    title = "Tokens over computing time"
    if plain is not None and plain.tokens_per_second and trace.tokens_per_second:
        title += f": {trace.tokens_per_second / plain.tokens_per_second:.2f} times as fast"
    return styled(data, title, SECONDS_TITLE, TOKENS_TITLE, dark, yaxis={"rangemode": "tozero"})


def accepted_per_step(trace: Trace, dark: bool = False) -> Figure:
    """Return the tokens of each step as bars: accepted candidates, and the target's own token above them."""
    colours, steps = _style(dark)["colours"], [step.index + 1 for step in trace.steps]
    parts = (
        ("accepted", [len(step.accepted_path) for step in trace.steps], _hue(0, dark), ""),
        ("the target's own", [1] * len(steps), colours["plain-line"], "/"),
    )
    data = [
        Bar(x=steps, y=counts, name=name, marker={"color": colour, "pattern": {"shape": pattern}})
        for name, counts, colour, pattern in parts
        if steps
    ]
    tau = "" if trace.tau is None else f": τ = {trace.tau:.2f}"
    highest = max((len(step.accepted_path) + 1 for step in trace.steps), default=1)
    layout = {"barmode": "stack", "bargap": 0.15, "yaxis": {"dtick": math.ceil(highest / 10)}}
    return styled(data, f"Tokens of each step{tau}", "step", "tokens", dark, **layout)


def acceptance_by_depth(traces: Mapping[str, Trace], dark: bool = False) -> Figure:
    """Return the share of steps that accepted a candidate at each depth, one line for each trace."""
    data = []
    for place, (name, trace) in enumerate(traces.items()):
        counts = count_by_depth(trace.steps)
        role = role_of(place)
        if counts:
            data.append(
                Scatter(
                    x=list(range(1, len(counts) + 1)), y=[accepted / tested for accepted, tested in counts],
                    mode="lines+markers", name=plain_text(name), line=line_style(role, dark),
                    marker=marker_style(role, dark), customdata=[tested for _, tested in counts], showlegend=True,
                    cliponaxis=False,
                    hovertemplate="depth %{x}: %{y:.0%} of %{customdata} steps<extra></extra>",
                )
            )  # fmt: skip
    layout = {"yaxis": {"range": [0, 1], "tickformat": ".0%"}, "xaxis": {"dtick": 1}}
    return styled(data, "Acceptance by depth", "depth", "accepted", dark, **layout)


def experts(trace: Trace, dark: bool = False) -> Figure:
    """Return the candidates of each proposer, such as Jakiro's experts, and how many of them were accepted."""
    proposers = {entry["id"]: entry["label"] for entry in trace.header.proposers}
    proposed, accepted = dict.fromkeys(proposers, 0), dict.fromkeys(proposers, 0)
    for step in trace.steps:
        for index, node in enumerate(step.nodes[1:], 1):
            proposed[node.proposer] = proposed.get(node.proposer, 0) + 1
            accepted[node.proposer] = accepted.get(node.proposer, 0) + (index in step.accepted_path)
    data, labels = [], [plain_text(proposers.get(name, name)) for name in proposed]
    for place, (name, counts) in enumerate((("of all candidates", proposed), ("of the accepted ones", accepted))):
        total = sum(counts.values())
        if total:
            colours = [_hue(number, dark) for number in range(len(labels))]
            marker = {"color": colours, "opacity": (0.55, 1)[place], "pattern": {"shape": PATTERNS[1 - place]}}
            shares, texts = [count / total for count in counts.values()], [f"{count}" for count in counts.values()]
            data.append(Bar(x=labels, y=shares, name=name, marker=marker, text=texts, textposition="outside"))
    yaxis = {"range": [0, 1.1], "tickformat": ".0%", "tickvals": [0, 0.25, 0.5, 0.75, 1]}
    return styled(data, "Who proposed the candidates", "", "share", dark, barmode="group", yaxis=yaxis)


def _lane_title(lane: str) -> str:
    """Return a lane of a benchmark, a method and its settings, with the title of the method."""
    method, separator, settings = lane.partition(" · ")
    return method_title(method) + separator + settings


def bench(result: Mapping, dark: bool = False) -> Figure:
    """Return the speedups of `bench.json` with their 95 % intervals, one colour for each temperature."""
    rows = [row for row in result["groups"] if row["category"] == "overall" and row["speedup"] is not None]
    data = []
    for place, temperature in enumerate(sorted({row["temperature"] for row in rows})):
        bars = [row for row in rows if row["temperature"] == temperature]
        bounds = [row["speedup_interval"] or [row["speedup"]] * 2 for row in bars]
        data.append(
            Bar(
                x=[plain_text(_lane_title(row["lane"])) for row in bars], y=[row["speedup"] for row in bars],
                name=f"temperature {temperature:g}",
                marker={"color": _hue(place, dark), "pattern": {"shape": PATTERNS[place % len(PATTERNS)]}},
                error_y={
                    "array": [high - row["speedup"] for row, (_, high) in zip(bars, bounds, strict=True)],
                    "arrayminus": [row["speedup"] - low for row, (low, _) in zip(bars, bounds, strict=True)],
                    "color": _style(dark)["colours"]["ink"],
                },
                hovertemplate="%{x}: %{y:.2f}<extra></extra>",
            )
        )  # fmt: skip
    figure = styled(data, "Speedup over plain decoding", "", "times as fast", dark, barmode="group")
    return figure.add_hline(1, line=line_style("plain", dark)) if data else figure


def training(log: str, dark: bool = False) -> Figure:
    """Return the validation numbers of a training log, one line for each: the text that `train` writes."""
    values: dict[str, list[tuple[int, float]]] = {}
    for step, numbers in re.findall(r"step (\d+) validation: (.+)", log):
        for name, value in re.findall(r"(\S+) (-?[\d.]+)", numbers):
            values.setdefault(name, []).append((int(step), float(value)))
    data = []
    for place, (name, points) in enumerate(values.items()):
        role, colour = role_of(place), _hue(place, dark)
        steps, numbers = zip(*points, strict=True)
        line = line_style(role, dark) | {"color": colour}
        marker = marker_style(role, dark) | {"color": colour, "line": {"color": colour}}
        data.append(Scatter(x=steps, y=numbers, mode="lines+markers", name=name, line=line, marker=marker))
    return styled(data, "Validation during training", "step", "share of held-out tokens", dark)
