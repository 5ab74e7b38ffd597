"""Plots: drawn by Plotly after the first paint, read with pointer and keys, zoomed, saved; text stays text in them."""

import copy
import csv
import gzip
import hashlib
import io
import json
import re
import struct
from xml.etree import ElementTree

import pytest

from app.page import web
from app.tools import replay
from jakiro.plots import LIBRARY
from tests.app import lesson_tab
from tests.app.browser.test_modules import traces_of
from tests.app.conftest import given, load_scripts, outside, plotted

pytestmark = pytest.mark.browser
WATCH = ".columns .plot-host"
OPEN = """traces => { Jakiro.mountView(document.querySelector('#host'), {}, null, null);
  Jakiro.showRecording('test', {title: 'Test', traces}, {playNow: false, step: 0}); }"""
HOSTILE = "<a href='javascript:window.ran=1'>x</a><b>&lt;img src=x onerror='window.ran=2'&gt;\u202e\n%{meta[0]}$x$"


def opened(tab, traces: dict) -> None:
    given(tab, OPEN, traces)
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


def press(tab, key: str) -> None:
    drawn = tab.get_attribute(WATCH, "data-drawn")
    tab.click(f'.watch-only [data-plot="{key}"]')
    tab.wait_for_function(f"before => document.querySelector('{WATCH}').dataset.drawn > before", arg=drawn)


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
    text = gzip.decompress(LIBRARY.read_bytes())
    readme = (LIBRARY.parent / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(text).hexdigest() in readme
    version = re.search(rb"plotly\.js \(basic - minified\) v([\d.]+)", text[:200])[1].decode()
    assert version in LIBRARY.name and f"plotly.js-basic-dist-min {version}" in readme
    assert "MIT License" in (LIBRARY.parent / "LICENSE").read_text(encoding="utf-8")


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
    (at,) = [url for url in asked if LIBRARY.name in url]
    assert at == f"{fake_address}{LIBRARY.name}"
    tab.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length")
    painted, started = tab.evaluate(
        """name => [performance.getEntriesByName('first-contentful-paint')[0].startTime,
                    performance.getEntriesByType('resource').find((one) => one.name.includes(name)).startTime]""",
        LIBRARY.name,
    )
    assert painted < started
    answer = tab.request.get(at)
    assert answer.body() == LIBRARY.read_bytes() and "immutable" in answer.headers["cache-control"]
    assert "default-src 'self'" in answer.headers["content-security-policy"]


def test_a_page_without_the_library_shows_its_numbers_and_says_why(open_tab, fake_address):
    tab = open_tab(None)
    tab.route(f"**/{LIBRARY.name}", lambda route: route.abort())
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
    seconds = over(shown, 0.5)
    shown.wait_for_selector(".plot-readout:not([hidden])")
    done = {name: sum(end <= seconds + 1e-9 for end in ends(trace)) for name, trace in traces.items()}
    tokens = {
        name: 1 + sum(len(step["committed_ids"]) for step in traces[name]["steps"][: done[name]]) for name in done
    }
    said = shown.inner_text(".columns .plot-readout")
    assert f"{tokens['jakiro']} tokens" in said and f"{tokens['autoregressive']} token" in said
    assert f"step {done['jakiro'] + 1}" in said
    shown.mouse.move(5, 5)
    shown.wait_for_selector(".columns .plot-readout", state="hidden")


def test_who_walks_with_keys_reads_the_step_on_screen(shown, traces):
    shown.focus('.watch-only [data-plot="plot_all"]')
    shown.keyboard.press("Tab")
    shown.keyboard.press("Tab")
    assert shown.evaluate("document.activeElement.className") == "plot-room"
    shown.keyboard.press("ArrowRight")
    end = ends(traces["jakiro"])[1]
    shown.wait_for_function(
        "words => document.querySelector('.columns .plot-readout').textContent.startsWith(words)", arg=f"{end:.2f} s"
    )


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
    shown.wait_for_selector(f'{WATCH}[data-zoomed="1"]')
    shown.wait_for_function("() => document.querySelector('.columns .plot').layout.xaxis.range[0] > 0")
    assert drawing(shown)["layout"]["xaxis"]["range"] == pytest.approx([first, last], rel=0.02)
    assert shown.get_attribute("svg.tree", "data-step") == str(step)
    press(shown, "plot_all")
    shown.wait_for_function("() => document.querySelector('.columns .plot').layout.xaxis.range[0] === 0")


def test_zoom_follows_the_step_and_ends_at_the_whole_axis(shown):
    full = drawing(shown)["layout"]["xaxis"]["range"]
    for _ in range(3):
        press(shown, "plot_closer")
    low, high = drawing(shown)["layout"]["xaxis"]["range"]
    assert high - low == pytest.approx((full[1] - full[0]) / 8)
    shown.keyboard.press("End")
    shown.wait_for_function(
        "low => document.querySelector('.columns .plot').layout.xaxis.range[0] > low", arg=low + 1e-9
    )
    low, high = drawing(shown)["layout"]["xaxis"]["range"]
    (playhead,) = [shape["x0"] for shape in drawing(shown)["layout"]["shapes"]]
    assert low <= playhead <= high + 1e-9
    bottom, top = drawing(shown)["layout"]["yaxis"]["range"]
    assert bottom > 0 and all(value <= top for line in plotted(shown, ".columns") for value in line["y"])
    for _ in range(3):
        press(shown, "plot_farther")
    assert drawing(shown)["layout"]["xaxis"]["range"] == full


def test_a_hidden_line_of_three_leaves_plot_readout_and_files(modules, traces):
    third = copy.deepcopy(traces["jakiro"])
    third["header"]["method"] = "mcsd"
    opened(modules, traces | {"mcsd": third})
    chip = modules.locator('.columns [data-series="autoregressive"]')
    chip.press("Enter")
    modules.wait_for_function("() => document.querySelector('.columns .plot').data.length === 2")
    assert modules.locator('.columns [data-series="autoregressive"]').get_attribute("aria-pressed") == "false"
    assert modules.evaluate("document.activeElement.dataset.series") == "autoregressive"
    over(modules, 0.5)
    modules.wait_for_selector(".columns .plot-readout:not([hidden])")
    assert "Plain" not in modules.inner_text(".columns .plot-readout")
    rows = list(csv.reader(io.StringIO(saved(modules, "csv").read_text(encoding="utf-8-sig"))))
    assert {row[0] for row in rows[1:]} == {"jakiro", "mcsd"}


def test_two_lines_are_named_at_their_ends_and_need_no_legend(shown):
    notes = " ".join(one["text"] for one in drawing(shown)["layout"]["annotations"])
    assert "Plain decoding" in notes and "Jakiro" in notes and "tokens/s" in notes
    assert shown.is_hidden(".columns .plot-legend")
    # In mid-race, too, the name of the lane that leads stands above its line, whichever wrote last; no name leaves the
    # plot, not even where lines have just begun
    shown.evaluate("Jakiro.setTab('race')")
    where = """time => new Promise((tell) => { Jakiro.moves.state.time = time; Jakiro.redrawNow();
      requestAnimationFrame(() => requestAnimationFrame(() => {
        const plot = document.querySelector(".race .plot");
        const area = plot.querySelector(".nsewdrag").getBoundingClientRect();
        const names = [...plot.querySelectorAll(".annotation")].filter((one) => one.textContent.includes("tokens/s"));
        const boxes = names.map((one) => one.querySelector(".annotation-text").getBoundingClientRect());
        tell([plot.layout.annotations.filter(({ text }) => text.includes("tokens/s")).map((one) => one.yanchor),
          boxes.every((box) => box.left >= area.left && box.bottom <= area.bottom + 4)]);
      })); })"""
    shown.wait_for_selector(".race .plot .main-svg")
    clock = shown.evaluate("Jakiro.lane().clock")
    seen = [shown.evaluate(where, clock * part / 9) for part in range(1, 9)]
    # Too few tokens for a speed have no name yet
    named = [places for places, _ in seen if places]
    assert len(named) >= 6 and all(leader == "bottom" != plain for plain, leader in named)
    assert all(inside for _, inside in seen)


def test_tokens_or_speed_is_one_choice_for_both_tabs(shown):
    shown.click('.watch-only [data-plot-mode="speed"]')
    shown.evaluate("Jakiro.setTab('race')")
    shown.wait_for_selector('.race [data-plot-mode="speed"][aria-pressed="true"]')
    notes = "() => document.querySelector('.race .plot')?.layout?.annotations.map(one => one.text).join()"
    shown.wait_for_function(f"() => ({notes})()?.includes('tokens a second')")


def saved(tab, ending: str):
    tab.click(".watch-only .plot-save summary")
    with tab.expect_download() as download:
        tab.click(f'.watch-only [data-plot="{ending}"]')
    return download.value.path()


def test_the_plot_is_saved_as_drawing_picture_and_numbers(shown, traces):
    drawn = ElementTree.fromstring(saved(shown, "svg").read_text(encoding="utf-8"))
    words = " ".join(drawn.itertext())
    assert "Jakiro" in words and "Plain decoding" in words and "computing time, seconds" in words
    picture = saved(shown, "png").read_bytes()
    assert picture.startswith(b"\x89PNG") and struct.unpack(">II", picture[16:24]) == (1920, 1080)
    rows = list(csv.DictReader(io.StringIO(saved(shown, "csv").read_text(encoding="utf-8-sig"))))
    mine = [row for row in rows if row["method"] == "jakiro"]
    assert [float(row["seconds"]) for row in mine] == pytest.approx(ends(traces["jakiro"]))


def test_hostile_names_stay_text_in_plot_readout_and_files(modules):
    traces = traces_of()
    traces["jakiro"]["header"]["method"] = HOSTILE
    traces["jakiro"]["header"]["messages"][-1]["content"] = HOSTILE
    opened(modules, traces)
    over(modules, 0.5)
    modules.wait_for_selector(".columns .plot-readout:not([hidden])")
    start = "<a href='javascript:window.ran=1'"
    assert start in modules.inner_text(".columns .plot-readout")
    assert start in modules.inner_text(".columns .plot-legend")
    drawn = ElementTree.fromstring(saved(modules, "svg").read_text(encoding="utf-8"))
    assert start in " ".join(drawn.itertext())
    assert not [one.tag for one in drawn.iter() if one.tag.rsplit("}")[-1] in ("a", "img", "script", "foreignObject")]
    assert "javascript" not in json.dumps([one.attrib for one in drawn.iter()])
    assert modules.locator(".plot-host :is(a, img, script)").count() == 0
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


def test_a_live_page_saves_the_library_with_its_replay(open_tab, fake_address):
    tab = open_tab(fake_address)
    plotted(tab, ".columns")
    assert tab.evaluate("async () => await Jakiro.plotly.asElement()") == web.plotly_element()


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


def test_in_a_hall_every_word_of_a_plot_is_larger(modules):
    lesson_tab.mount(modules)
    plotted(modules, ".chart-host")
    text = "[...document.querySelectorAll('.chart-host .plot text')]"
    sizes = f"{text}.map(one => parseFloat(getComputedStyle(one).fontSize))"
    assert set(modules.evaluate(sizes)) == {12}
    modules.evaluate("document.documentElement.classList.add('projector')")
    lesson_tab.go(modules, 1)
    modules.wait_for_function(f"() => {sizes}.every((size) => size >= 18)")
