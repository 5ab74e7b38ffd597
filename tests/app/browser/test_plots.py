"""Plots: drawn by Plotly after the first paint, read with pointer and keys, zoomed, saved; text stays text in them."""

import copy
import csv
import gzip
import hashlib
import io
import json
import re
import struct

import pytest

from app.page import web
from app.tools import replay
from app.words.plots import BROWSER as words
from tests.app.conftest import load_scripts, outside, plotted, show
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


def drawing(tab) -> dict:
    """What Plotly was given last, less its template."""
    return tab.evaluate(
        """() => { const { data, layout } = document.querySelector('.columns .plot');
           return JSON.parse(JSON.stringify({ data, layout })); }"""
    )


def button(title: str) -> str:
    return f'.columns .modebar-btn[aria-label^="{title}"]'


def axis(tab) -> list[float]:
    return tab.evaluate("document.querySelector('.columns .plot').layout.xaxis.range")


def hover(tab) -> str:
    """What Plotly says at the pointer."""
    tab.wait_for_selector(".columns .hoverlayer text")
    return " ".join(tab.locator(".columns .hoverlayer text").all_text_contents())


def over(tab, part: float) -> float:
    """Moves the pointer over the plot at a part of its x axis; returns the value there."""
    box, layout = tab.locator(f"{WATCH} .plot").bounding_box(), drawing(tab)["layout"]
    left, right = layout["margin"]["l"], layout["margin"]["r"]
    low, high = layout["xaxis"]["range"]
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


def test_plots_have_the_colours_of_the_page():
    css = (web.ASSETS / "web/base/base.css").read_text(encoding="utf-8")
    light, dark = (css.split(start, 1)[1].split("}")[0] for start in (":root {", ".dark {"))
    colours = json.loads(web.PLOT_TEMPLATE.read_text(encoding="utf-8"))["colours"]
    for named, block in zip((colours["light"], colours["dark"]), (light, dark), strict=True):
        assert {name: re.search(rf"--{name}: (#\w+);", block)[1] for name in named} == named


def test_the_library_comes_after_the_first_paint_from_here_alone(open_tab, fake_address):
    tab = open_tab(None)
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(fake_address)
    plotted(tab, ".columns")
    (at,) = [url for url in asked if web.PLOT_LIBRARY.name in url]
    assert at == f"{fake_address}{web.PLOT_LIBRARY.name}"
    tab.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
    painted, started = tab.evaluate(
        """name => [performance.getEntriesByName('first-contentful-paint')[0].startTime,
                    performance.getEntriesByType('resource').find((one) => one.name.includes(name)).startTime]""",
        web.PLOT_LIBRARY.name,
    )
    assert painted < started
    answer = tab.request.get(at)
    assert answer.body() == web.PLOT_LIBRARY.read_bytes() and "immutable" in answer.headers["cache-control"]
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_a_page_without_the_library_shows_its_numbers_and_says_why(open_tab, fake_address):
    tab = open_tab(None)
    tab.route(f"**/{web.PLOT_LIBRARY.name}", lambda route: route.abort())
    tab.goto(fake_address)
    tab.wait_for_selector(f"{WATCH} table")
    assert "could not be loaded" in tab.inner_text(WATCH)


def test_lines_go_through_every_step(shown, traces):
    names = [line["name"] for line in plotted(shown, ".columns")]
    assert names == ["Plain decoding", "Jakiro"]
    drafted = plotted(shown, ".columns")[-1]
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


def test_a_click_goes_to_the_step_and_a_drag_zooms(shown, traces):
    seconds = over(shown, 0.1)
    shown.mouse.down()
    shown.mouse.up()
    step = sum(end <= seconds for end in ends(traces["jakiro"]))
    shown.wait_for_selector(f'svg.tree[data-step="{step}"]')
    first, last = over(shown, 0.25), 0
    shown.mouse.down()
    for part in (0.3, 0.4, 0.5):
        last = over(shown, part)
    shown.mouse.up()
    shown.wait_for_function("() => document.querySelector('.columns .plot').layout.xaxis.range[0] > 0")
    assert axis(shown) == pytest.approx([first, last], rel=0.02)
    assert shown.get_attribute("svg.tree", "data-step") == str(step)


def test_tokens_or_speed_is_one_choice_for_both_tabs(shown):
    shown.click('.watch-only [data-plot-mode="speed"]')
    shown.evaluate("Jakiro.setTab('race')")
    shown.wait_for_selector('.race [data-plot-mode="speed"][aria-pressed="true"]')
    notes = "() => document.querySelector('.race .plot')?.layout?.annotations.map(one => one.text).join()"
    shown.wait_for_function(f"() => ({notes})()?.includes('tokens a second')")


def saved(tab, title: str):
    tab.hover(".columns .plot")
    with tab.expect_download() as download:
        tab.click(button(title))
    return download.value.path()


def test_the_plot_is_saved_as_picture_and_numbers(shown, traces):
    picture = saved(shown, "Download plot as a PNG").read_bytes()
    assert picture.startswith(b"\x89PNG") and struct.unpack(">II", picture[16:24]) == (1920, 1080)
    rows = list(csv.DictReader(io.StringIO(saved(shown, "Download the numbers").read_text(encoding="utf-8-sig"))))
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


def test_a_handout_draws_its_plots_from_disk_and_is_small(open_tab, tmp_path):
    name = web.recording_names()[0]
    text = replay.replay_page(web.recording(name), "Handout")
    assert len(text.encode()) <= 2_000_000
    page = tmp_path / "handout.html"
    page.write_text(text, encoding="utf-8")
    tab = open_tab(None, offline=True)
    asked = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page.as_uri())
    assert len(plotted(tab, ".columns")) == 2
    tab.click('[data-tab="race"]')
    assert len(plotted(tab, ".race")) == 2
    for width in (1440, 390):
        tab.set_viewport_size({"width": width, "height": 844})
        fits = "width => document.querySelector('.race .plot').clientWidth <= width"
        tab.wait_for_function(fits, arg=width)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [page.as_uri()]
    again = tab.evaluate("async () => await Jakiro.plotly.asElement()")
    assert again == web.plotly_element()


def test_an_idle_plot_asks_for_nothing(open_tab):
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
    assert not [
        url for url in tab.evaluate("performance.getEntriesByType('resource').map(one => one.name)") if outside(url)
    ]
