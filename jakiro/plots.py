"""Reports with plots: one html file each, which opens without a network and looks like the page, light and dark.

Figures are made with the Python package plotly (extra `[train]`); the file carries the library of `assets/plots/`.
"""

import base64
import html
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jakiro.system import assets_folder

# Draws the plots of page and reports. Its name holds its version, so that browsers may keep it
LIBRARY = assets_folder() / "plots" / "plotly-basic-4.1.1.min.js.gz"
SCHEMES = ("light", "dark")
ROLES = ("main", "plain", "other-0", "other-1", "other-2")
MISSING = "No plots: plotly is not installed (it comes with the extra [train])."
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
_CSS = """
body { margin: 0 auto; max-width: 60rem; padding: 1rem; background: LIGHT_PAGE; color: LIGHT_INK;
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.25rem; }
h2 { font-size: 1rem; margin: 2rem 0 0.5rem; } p { font-size: 0.875rem; overflow-wrap: anywhere; }
@media (prefers-color-scheme: dark) { body { background: DARK_PAGE; color: DARK_INK; } }
"""
_SCRIPT = """
(async () => {
  const text = (id) => document.getElementById(id).textContent;
  const packed = Uint8Array.from(atob(text("plotly")), (sign) => sign.charCodeAt(0));
  const code = document.createElement("script");
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  code.textContent = await new Response(stream).text();
  document.head.append(code);
  const figures = JSON.parse(text("figures"));
  const config = { responsive: true, displaylogo: false, toImageButtonOptions: { format: "svg" } };
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const draw = () => figures[dark.matches ? "dark" : "light"].forEach(({ data, layout }, i) =>
    Plotly.react(`plot-${i}`, data, layout, config));
  dark.addEventListener("change", draw);
  draw();
})();
"""


class Look:
    """The page's colours and line styles in one scheme, "light" or "dark"."""

    def __init__(self, scheme: str) -> None:
        given = json.loads((assets_folder() / "plots" / "template.json").read_text(encoding="utf-8"))
        self.colours: dict[str, str] = given["colours"][scheme]
        self._looks: dict[str, dict] = given["looks"]
        text = json.dumps(given["layout"])
        for name, colour in self.colours.items():
            text = text.replace(f'"${name}"', f'"{colour}"')
        self._layout = json.loads(text)

    def line(self, place: int) -> dict:
        """How the line of the `place`-th series looks; after the last look the first one comes again."""
        look = self._of(place)
        return {"color": self.colours[look["colour"]], "width": look["width"], "dash": look["dash"]}

    def marker(self, place: int, size: float = 9) -> dict:
        look = self._of(place)
        colour = self.colours[look["colour"]]
        return {"color": colour, "symbol": look["symbol"], "size": size, "line": {"width": 1.75, "color": colour}}

    def layout(self, title: str, x: str, y: str = "", height: int = 360, **more: Any) -> dict:
        """A figure's layout with axis titles; `more` is Plotly's."""
        return {
            "template": {"layout": self._layout},
            "title": {"text": plain(title)},
            "xaxis": {"title": {"text": plain(x)}, "automargin": True},
            "yaxis": {"title": {"text": plain(y)}, "automargin": True},
            "height": height,
            "hovermode": "closest",
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
            "margin": {"l": 60, "r": 20, "t": 50, "b": 50},
        } | more

    def _of(self, place: int) -> dict:
        return self._looks[ROLES[place % len(ROLES)]]


def plain(text: str) -> str:
    """Text in which Plotly finds no tags."""
    return html.escape(text, quote=False)


def opening(title: str) -> str:
    """A page of one file up to its title; it may load nothing from elsewhere."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>{plain(title)}</title>'
    )


def packed_library() -> str:
    """The library as a file carries it: compressed, in base64."""
    return base64.b64encode(LIBRARY.read_bytes()).decode()


def write_report(path: Path, title: str, notes: Sequence[str], figures: Callable[[Look], Sequence]) -> Path:
    """Writes a report; returns its path.

    Args:
        notes: paragraphs under the title.
        figures: makes the figures (`plotly.graph_objects.Figure`) in the look it is given.

    Raises:
        ModuleNotFoundError: plotly is not installed.
    """
    drawn = {scheme: [json.loads(figure.to_json()) for figure in figures(Look(scheme))] for scheme in SCHEMES}
    # Titles stand over the plots, where narrow screens break their lines
    titles, _ = ([figure["layout"].pop("title")["text"] for figure in drawn[scheme]] for scheme in SCHEMES)
    colours = {scheme: Look(scheme).colours for scheme in SCHEMES}
    css = _CSS
    for scheme, name in ((scheme, name) for scheme in SCHEMES for name in ("page", "ink")):
        css = css.replace(f"{scheme}_{name}".upper(), colours[scheme][name])
    data = json.dumps(drawn, ensure_ascii=False).replace("<", "\\u003c")
    path.write_text(
        f"{opening(title)}<style>{css}</style></head><body><h1>{html.escape(title)}</h1>"
        + "".join(f"<p>{html.escape(note)}</p>" for note in notes)
        + "".join(f'<h2>{title}</h2><div class="plot" id="plot-{place}"></div>' for place, title in enumerate(titles))
        + f'<script type="application/json" id="figures">{data}</script>'
        f'<script type="text/plain" id="plotly">{packed_library()}</script><script>{_SCRIPT}</script></body></html>',
        encoding="utf-8",
    )
    return path
