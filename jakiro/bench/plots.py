"""A benchmark's plots: speedup by category, tokens per second, acceptance by depth, milliseconds of a step."""

from collections.abc import Sequence

from jakiro.bench.report import OVERALL, Group
from jakiro.plots import Look, plain

_LANE = 0.22  # how far apart lanes of one category stand
_ROW_PIXELS = 34


def figures(groups: Sequence[Group], look: Look) -> list:
    """Plotly figures of a benchmark: the first for each temperature, the others over all prompts."""
    overall = [group for group in groups if group.category == OVERALL]
    temperatures = list(dict.fromkeys(group.temperature for group in groups))
    drawn = [_speedups(groups, temperature, look) for temperature in temperatures]
    return [
        figure
        for figure in (*drawn, _speeds(overall, look), _acceptance(overall, look), _steps(overall, look))
        if figure
    ]


def _speedups(groups: Sequence[Group], temperature: float, look: Look):
    """Speedup by category with its interval, single prompts as faint points behind it; None where nothing drafts."""
    from plotly.graph_objects import Figure, Scatter

    here = [
        group for group in groups if group.temperature == temperature and group.lane != group.baseline and group.speedup
    ]
    if not here:
        return None
    lanes = list(dict.fromkeys(group.lane for group in here))
    categories = list(dict.fromkeys(group.category for group in here))
    figure = Figure()
    for place, lane in enumerate(lanes):
        own = [group for group in here if group.lane == lane]
        rows = [categories.index(group.category) + (place - (len(lanes) - 1) / 2) * _LANE for group in own]
        single = [(value, row) for group, row in zip(own, rows, strict=True) for value in group.prompt_speedups]
        figure.add_trace(
            Scatter(
                x=[value for value, _ in single], y=[row for _, row in single], mode="markers", name=plain(lane),
                legendgroup=lane, showlegend=False, hovertemplate="one prompt: %{x:.2f}×<extra></extra>",
                marker={"color": look.marker(place)["color"], "size": 5, "opacity": 0.4},
            )
        )  # fmt: skip
        ends = [group.speedup_interval or (group.speedup, group.speedup) for group in own]
        figure.add_trace(
            Scatter(
                x=[group.speedup for group in own], y=rows, mode="markers", name=plain(lane), legendgroup=lane,
                marker=look.marker(place, 11), hovertemplate="%{x:.2f}×",
                error_x={
                    "type": "data", "symmetric": False, "color": look.colours["control"], "thickness": 2,
                    "array": [high - group.speedup for group, (_, high) in zip(own, ends, strict=True)],
                    "arrayminus": [group.speedup - low for group, (low, _) in zip(own, ends, strict=True)],
                },
            )
        )  # fmt: skip
    figure.add_vline(x=1, line={"color": look.colours["ink"], "width": 2, "dash": "6px,4px"})
    title = f"Speedup by category at temperature {temperature:g}, with 95 % intervals; faint points are single prompts"
    figure.update_layout(
        look.layout(title, "times as fast as plain decoding", height=130 + _ROW_PIXELS * len(categories))
    )
    names = [plain("all prompts" if category == OVERALL else category) for category in categories]
    figure.update_yaxes(tickvals=list(range(len(names))), ticktext=names, autorange="reversed", showgrid=False)
    return figure


def _speeds(groups: Sequence[Group], look: Look):
    from plotly.graph_objects import Bar, Figure

    groups = [group for group in groups if group.tokens_per_second]
    middle = [group.tokens_per_second[1] for group in groups]
    spread = {
        "type": "data", "symmetric": False, "color": look.colours["ink"],
        "array": [group.tokens_per_second[2] - group.tokens_per_second[1] for group in groups],
        "arrayminus": [group.tokens_per_second[1] - group.tokens_per_second[0] for group in groups],
    }  # fmt: skip
    bars = Bar(
        x=middle, y=[plain(group.label) for group in groups], orientation="h", error_x=spread,
        marker={"color": look.colours["plain-line"]}, hovertemplate="%{x:.1f} tokens/s<extra></extra>",
    )  # fmt: skip
    layout = look.layout("Tokens per second: median and middle half of the answers", "tokens per second",
                         height=130 + _ROW_PIXELS * len(groups))  # fmt: skip
    return Figure(bars, layout).update_yaxes(autorange="reversed")


def _acceptance(groups: Sequence[Group], look: Look):
    """Accepted ÷ tested by depth; None where no lane of ours drafts."""
    from plotly.graph_objects import Figure, Scatter

    drawn = [group for group in groups if group.acceptance_by_depth]
    if not drawn:
        return None
    lines = []
    for place, group in enumerate(drawn):
        rates = [kept / tested if tested else None for kept, tested in group.acceptance_by_depth]
        lines.append(
            Scatter(
                x=list(range(1, len(rates) + 1)), y=rates, mode="lines+markers", name=plain(group.label),
                line=look.line(place), marker=look.marker(place), hovertemplate="depth %{x}: %{y:.0%}",
            )
        )  # fmt: skip
    layout = look.layout("How many guesses are kept, by depth", "depth: tokens ahead", "accepted ÷ tested")
    figure = Figure(lines, layout)
    return figure.update_yaxes(range=[0, 1], tickformat=".0%").update_xaxes(dtick=1)


def _steps(groups: Sequence[Group], look: Look):
    """Where a step's time goes; None where no lane is ours."""
    from plotly.graph_objects import Bar, Figure

    groups = [group for group in groups if group.verify_ms is not None]
    if not groups:
        return None
    labels = [plain(group.label) for group in groups]
    parts = (("draft", "plain-line", ""), ("verify", "ink", ""), ("other", "hairline", "/"))
    bars = [
        Bar(
            x=[getattr(group, f"{name}_ms") for group in groups], y=labels, orientation="h", name=name,
            marker={"color": look.colours[colour], "pattern": {"shape": pattern, "fgcolor": look.colours["control"]}},
            hovertemplate="%{x:.2f} ms",
        )
        for name, colour, pattern in parts
    ]  # fmt: skip
    height = 150 + _ROW_PIXELS * len(groups)
    layout = look.layout("Where a step's time goes", "mean milliseconds of a step", height=height, barmode="stack")
    return Figure(bars, layout).update_yaxes(autorange="reversed")
