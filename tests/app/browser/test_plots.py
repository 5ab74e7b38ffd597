"""Plots: drawn by Plotly, read and clicked with a pointer, saved; text stays text in them."""

import copy
import csv
import gzip
import hashlib
import io
import re

import pytest

from app.page import web
from app.words.plots import BROWSER as words
from tests.app.conftest import load_scripts, plotted, show
from tests.app.fake import traces_of

pytestmark = pytest.mark.browser
WATCH = ".columns .plot-host"
HOSTILE = "<a href='javascript:window.ran=1'>x</a><b>&lt;img src=x onerror='window.ran=2'&gt;\u202e\n%{meta[0]}$x$"


def opened(tab, traces: dict) -> None:
    show(tab, traces, step=0)
    tab.wait_for_function("() => document.querySelector('.columns .plot')?.data?.length")


@pytest.fixture
def traces() -> dict:
    return traces_of()


@pytest.fixture
def shown(modules, traces):
    opened(modules, traces)
    return modules


def hover(tab) -> str:
    """What Plotly says at the pointer."""
    tab.wait_for_selector(".columns .hoverlayer text")
    return " ".join(tab.locator(".columns .hoverlayer text").all_text_contents())


def over(tab, part: float) -> float:
    """Moves the pointer over the plot at a part of its x axis; returns the value there."""
    box = tab.locator(f"{WATCH} .plot").bounding_box()
    left, right, (low, high) = tab.evaluate(
        "(({ margin, xaxis }) => [margin.l, margin.r, xaxis.range])(document.querySelector('.columns .plot').layout)"
    )
    tab.mouse.move(box["x"] + left + part * (box["width"] - left - right), box["y"] + box["height"] / 2)
    return low + part * (high - low)


def ends(trace: dict) -> list[float]:
    """Own seconds at the end of each step."""
    found, total = [], 0.0
    for step in trace["steps"]:
        total += (step["draft_ms"] + step["verify_ms"] + step["other_ms"]) / 1000
        found.append(total)
    return found


def test_the_library_is_the_one_that_its_readme_names_and_python_has():
    text = gzip.decompress(web.PLOT_LIBRARY.read_bytes())
    readme = (web.PLOT_LIBRARY.parent / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(text).hexdigest() in readme
    version = re.search(rb"plotly\.js \(basic - minified\) v([\d.]+)", text[:200])[1].decode()
    assert version in web.PLOT_LIBRARY.name and f"plotly.js-basic-dist-min {version}" in readme
    assert "MIT License" in (web.PLOT_LIBRARY.parent / "LICENSE").read_text(encoding="utf-8")


def test_a_page_without_the_library_shows_its_numbers_and_says_why(open_tab, fake_address):
    tab = open_tab(None)
    tab.route(f"**/{web.PLOT_LIBRARY.name}", lambda route: route.abort())
    tab.goto(fake_address)
    tab.wait_for_selector(f"{WATCH} table")
    assert "could not be loaded" in tab.inner_text(WATCH)


def test_lines_go_through_every_step(shown, traces):
    plain, drafted = plotted(shown, ".columns")
    assert (plain["name"], drafted["name"]) == ("Plain decoding", "Jakiro")
    assert drafted["x"][1:] == pytest.approx(ends(traces["jakiro"]))
    counts = [1]
    for step in traces["jakiro"]["steps"]:
        counts.append(counts[-1] + len(step["committed_ids"]))
    assert drafted["y"] == counts


def test_the_readout_says_what_every_lane_had_written(shown, traces):
    """Of each lane the step that ends next to the pointer."""
    seconds = over(shown, 0.5)
    said = hover(shown)
    for name, title in (("jakiro", "Jakiro"), ("autoregressive", "Plain decoding")):
        steps = traces[name]["steps"]
        nearest = min(range(len(steps)), key=lambda i: abs(ends(traces[name])[i] - seconds))
        tokens = 1 + sum(len(step["committed_ids"]) for step in steps[: nearest + 1])
        assert f"{title}: {tokens} tokens" in said
    shown.mouse.move(5, 5)
    shown.wait_for_selector(".columns .hoverlayer text", state="detached")


def test_a_click_goes_to_the_step_and_the_plot_is_saved_as_picture_and_numbers(shown, traces):
    seconds = over(shown, 0.1)
    shown.mouse.down()
    shown.mouse.up()
    shown.wait_for_selector(f'svg.tree[data-step="{sum(end <= seconds for end in ends(traces["jakiro"]))}"]')
    files = []
    for title in ("Download plot as a PNG", "Download the numbers"):
        shown.hover(".columns .plot")
        with shown.expect_download() as download:
            shown.click(f'.columns .modebar-btn[aria-label^="{title}"]')
        files.append(download.value.path().read_bytes())
    assert files[0].startswith(b"\x89PNG")
    rows = list(csv.DictReader(io.StringIO(files[1].decode("utf-8-sig"))))
    mine = [row for row in rows if row["method"] == "Jakiro"]
    assert [float(row[words["plot_x"]]) for row in mine] == pytest.approx(ends(traces["jakiro"]))


def test_hostile_names_stay_text_in_plot_and_readout(modules):
    traces = traces_of()
    traces["jakiro"]["header"]["method"] = HOSTILE
    traces["jakiro"]["header"]["messages"][-1]["content"] = HOSTILE
    third = copy.deepcopy(traces["jakiro"])
    third["header"]["method"] = "eagle2"
    opened(modules, traces | {"eagle2": third})
    over(modules, 0.5)
    start = "<a href='javascript:window.ran=1'"
    assert start in hover(modules)
    assert start in " ".join(modules.locator(".columns .plot > .plot-container .legend text").all_text_contents())
    assert modules.locator(".plot-host :is(a, img, script, foreignObject)").count() == 0
    attributes = "[...document.querySelectorAll('.plot-host .legend *, .plot-host .hoverlayer *')].flatMap((one) =>"
    names = f"{attributes} [...one.attributes].map(({{ name, value }}) => [name, value])).filter(([name]) => "
    assert modules.evaluate(names + "/^on|href/.test(name))") == []
    assert modules.evaluate("window.ran") is None


def test_an_idle_page_asks_for_no_frame(open_tab):
    """A page that asks for every frame while it waits takes time from a model on the same cores."""
    tab = open_tab(None, clock=True)
    load_scripts(tab)
    opened(tab, traces_of())
    tab.clock.run_for(1000)
    drawn = tab.get_attribute(WATCH, "data-drawn")
    tab.evaluate(
        "() => { const real = requestAnimationFrame; window.frames = 0;"
        " window.requestAnimationFrame = (call) => { window.frames += 1; return real(call); }; }"
    )
    tab.clock.run_for(10_000)
    assert tab.evaluate("window.frames") == 0 and tab.get_attribute(WATCH, "data-drawn") == drawn
