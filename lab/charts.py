"""Charts of the lab: html files in the style of `jakiro.figures`, which carry Plotly's script."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from plotly.graph_objects import Figure, Scatter

from jakiro.figures import line_style, marker_style, plain_text, role_of, styled


def write_charts(path: Path, title: str, figures: Sequence[Figure]) -> None:
    """Write Plotly figures below one another, into a file that opens without a network."""
    drawn = [figure.to_html(full_html=False, include_plotlyjs=not place) for place, figure in enumerate(figures)]
    path.write_text(f'<!doctype html><meta charset="utf-8"><title>{plain_text(title)}</title>{"".join(drawn)}', "utf-8")


def share_lines(title: str, x_title: str, y_title: str, x: Sequence, series: Mapping[str, Sequence[float]]) -> Figure:
    """Return a figure with a line for each series of shares, on an axis from 0 to 100 %."""
    lines = [
        Scatter(
            x=x, y=values, mode="lines+markers", name=plain_text(name), line=line_style(role_of(place)),
            marker=marker_style(role_of(place)), hovertemplate="%{y:.0%}",
        )
        for place, (name, values) in enumerate(series.items())
    ]  # fmt: skip
    return styled(lines, title, x_title, y_title).update_yaxes(range=[0, 1], tickformat=".0%")
