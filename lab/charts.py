"""The lab's charts, in the page's look: one html file each, made with Python's plotly, whose own script it carries."""

import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jakiro.system import assets_folder

_ROLES = ("main", "plain", "other-0", "other-1", "other-2")


class Look:
    """The page's colours and line styles in its light scheme."""

    def __init__(self) -> None:
        given = json.loads((assets_folder() / "plots" / "template.json").read_text(encoding="utf-8"))
        self._colours: dict[str, str] = given["colours"]["light"]
        self._looks: dict[str, dict] = given["looks"]
        text = json.dumps(given["layout"])
        for name, colour in self._colours.items():
            text = text.replace(f'"${name}"', f'"{colour}"')
        self._layout = json.loads(text)

    def line(self, place: int) -> dict:
        """How the line of the `place`-th series looks; after the last look the first one comes again."""
        look = self._of(place)
        return {"color": self._colours[look["colour"]], "width": look["width"], "dash": look["dash"]}

    def marker(self, place: int) -> dict:
        look = self._of(place)
        colour = self._colours[look["colour"]]
        return {"color": colour, "symbol": look["symbol"], "size": 9, "line": {"width": 1.75, "color": colour}}

    def layout(self, title: str, x: str, y: str = "", height: int = 360) -> dict:
        """A figure's layout with axis titles."""
        return {
            "template": {"layout": self._layout},
            "title": {"text": plain(title)},
            "xaxis": {"title": {"text": plain(x)}, "automargin": True},
            "yaxis": {"title": {"text": plain(y)}, "automargin": True},
            "height": height,
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
            "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
        }

    def _of(self, place: int) -> dict:
        return self._looks[_ROLES[place % len(_ROLES)]]


def plain(text: str) -> str:
    """Text in which Plotly finds no tags."""
    return html.escape(text, quote=False)


def write_charts(path: Path, title: str, figures: Sequence[Any]) -> None:
    """Writes Plotly figures below one another, into a file that opens without a network."""
    drawn = [figure.to_html(full_html=False, include_plotlyjs=not place) for place, figure in enumerate(figures)]
    path.write_text(f'<!doctype html><meta charset="utf-8"><title>{plain(title)}</title>{"".join(drawn)}', "utf-8")


def share_lines(title: str, x_title: str, y_title: str, x: Sequence, series: Mapping[str, Sequence[float]]):
    """A figure with a line for each series of shares, on an axis from 0 to 100 %."""
    from plotly.graph_objects import Figure, Scatter

    look = Look()
    lines = [
        Scatter(
            x=x, y=values, mode="lines+markers", name=plain(name), line=look.line(place), marker=look.marker(place),
            hovertemplate="%{y:.0%}",
        )
        for place, (name, values) in enumerate(series.items())
    ]  # fmt: skip
    return Figure(lines, look.layout(title, x_title, y_title)).update_yaxes(range=[0, 1], tickformat=".0%")
