"""The page's plot and `jakiro.figures.speed` draw the same points, names, colours and dashes for a recording."""

import json

import pytest

from jakiro import figures
from jakiro.system import assets_folder
from jakiro.trace import Trace
from tests.app.conftest import show

pytestmark = pytest.mark.browser


def test_the_plot_of_a_recording_has_the_points_of_the_python_figure(modules):
    values = json.loads((assets_folder() / "traces" / "1-opening.json").read_text(encoding="utf-8"))["traces"]
    show(modules, values, step=0)
    modules.wait_for_function("() => document.querySelector('.columns .plot')?.data?.[1]?.x.length > 40")
    drawn = modules.evaluate(
        "document.querySelector('.columns .plot').data.map(({ x, y, line, name }) => ({ x, y, line, name }))"
    )
    drafted, plain = Trace.from_dict(values["jakiro"]), Trace.from_dict(values["autoregressive"])
    lines = figures.speed(drafted, plain).data
    assert len(drawn) == len(lines) == 2
    for page, python in zip(drawn, lines, strict=True):
        assert page["y"] == list(python.y)
        assert page["x"] == pytest.approx(list(python.x), abs=1e-9)
        assert page["line"]["dash"] == python.line.dash and page["line"]["shape"] == python.line.shape
        red, green, blue = (int(python.line.color[at : at + 2], 16) for at in (1, 3, 5))
        assert page["line"]["color"] == f"rgb({red}, {green}, {blue})"
        assert python.name.startswith(page["name"].split("  ")[0])
