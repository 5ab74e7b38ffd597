"""The plot of a recording on the page, in its saved picture and in `jakiro.figures.speed` is the same."""

import json

import pytest

from jakiro import figures
from jakiro.cli.plot import HEIGHT, WIDTH
from jakiro.system import assets_folder
from jakiro.trace import Trace
from tests.app.conftest import show

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def traces() -> dict[str, dict]:
    return json.loads((assets_folder() / "traces" / "1-opening.json").read_text(encoding="utf-8"))["traces"]


def python_figure(traces: dict[str, dict]):
    return figures.speed(*(Trace.from_dict(traces[name]) for name in ("jakiro", "autoregressive")))


def as_css(colour: str) -> str:
    """Return a colour as a browser computes it."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgb({red}, {green}, {blue})"


def test_the_plot_of_a_recording_has_the_points_of_the_python_figure(modules, traces):
    show(modules, traces, step=0)
    modules.wait_for_function("() => document.querySelector('.columns .plot')?.data?.[1]?.x.length > 40")
    drawn_lines = modules.evaluate(
        "document.querySelector('.columns .plot').data.map(({ x, y, line, name }) => ({ x, y, line, name }))"
    )
    lines = python_figure(traces).data
    assert len(drawn_lines) == len(lines) == 2
    for page, python in zip(drawn_lines, lines, strict=True):
        assert page["y"] == list(python.y)
        assert page["x"] == pytest.approx(list(python.x), abs=1e-9)
        assert page["line"]["dash"] == python.line.dash and page["line"]["shape"] == python.line.shape
        assert page["line"]["color"] == as_css(python.line.color)
        assert python.name.startswith(f"{page['name']}  ")


def test_the_saved_plot_is_the_python_figure(modules, traces):
    show(modules, traces, step=0)
    modules.wait_for_function("() => window.Plotly")
    saved_plot = modules.evaluate("JSON.parse(JSON.stringify(Jakiro.speedFigure(Jakiro.state.run)))")
    figure = json.loads(python_figure(traces).to_json())
    for line in figure["data"]:
        assert line.pop("type") == "scatter" and line.pop("hovertemplate")
        line["line"]["color"] = as_css(line["line"]["color"])
        line["x"] = pytest.approx(line["x"], abs=1e-9)
    assert saved_plot["data"] == figure["data"]
    layouts = [saved_plot["layout"], figure["layout"]]
    sizes = [{name: layout.pop(name, None) for name in ("template", "width", "height")} for layout in layouts]
    for name in ("paper_bgcolor", "plot_bgcolor"):
        layouts[1][name] = as_css(layouts[1][name])
    assert layouts[0] == layouts[1]
    assert (sizes[0]["width"], sizes[0]["height"]) == (WIDTH, HEIGHT)
    picture = modules.evaluate("Jakiro.speedPicture(Jakiro.state.run)")
    assert picture.startswith("<svg") and figure["layout"]["title"]["text"] in picture
