"""A chart that several reports of the lab share, in the page's look."""

from collections.abc import Mapping, Sequence

from jakiro.plots import Look, plain


def share_lines(look: Look, title: str, x_title: str, y_title: str, x: Sequence, series: Mapping[str, Sequence[float]]):
    """A figure with a line for each series of shares, on an axis from 0 to 100 %."""
    from plotly.graph_objects import Figure, Scatter

    lines = [
        Scatter(
            x=x, y=values, mode="lines+markers", name=plain(name), line=look.line(place), marker=look.marker(place),
            hovertemplate="%{y:.0%}",
        )
        for place, (name, values) in enumerate(series.items())
    ]  # fmt: skip
    return Figure(lines, look.layout(title, x_title, y_title)).update_yaxes(range=[0, 1], tickformat=".0%")
