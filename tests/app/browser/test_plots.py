"""Plots by Plotly: lines, readout, click and saved files; hostile text stays text."""

import copy
import csv
import gzip
import hashlib
import io
import re

import pytest

from app.page import web
from app.words.plots import BROWSER as words
from tests.app.conftest import call_with, load_scripts, plotted, seek, show, wait_for_frames
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
def plot_tab(modules, traces):
    opened(modules, traces)
    return modules


def hover(tab) -> str:
    """Return the text of Plotly's readout at the pointer."""
    tab.wait_for_selector(".columns .hoverlayer text")
    return " ".join(tab.locator(".columns .hoverlayer text").all_text_contents())


def over(tab, part: float) -> float:
    """Move the pointer to a fraction of the plot's x axis; return the value at this position."""
    box = tab.locator(f"{WATCH} .plot").bounding_box()
    left, right, (low, high) = tab.evaluate(
        "(({ margin, xaxis }) => [margin.l, margin.r, xaxis.range])(document.querySelector('.columns .plot').layout)"
    )
    tab.mouse.move(box["x"] + left + part * (box["width"] - left - right), box["y"] + box["height"] / 2)
    return low + part * (high - low)


def ends(trace: dict) -> list[float]:
    """Return the lane's seconds at the end of each step."""
    ends_of_steps, total = [], 0.0
    for step in trace["steps"]:
        total += (step["draft_ms"] + step["verify_ms"] + step["other_ms"]) / 1000
        ends_of_steps.append(total)
    return ends_of_steps


def test_the_library_is_the_one_that_its_readme_names_and_python_has():
    text = gzip.decompress(web.PLOT_LIBRARY.read_bytes())
    readme = (web.PLOT_LIBRARY.parent / "README.md").read_text(encoding="utf-8")
    assert hashlib.sha256(text).hexdigest() in readme
    version = re.search(rb"plotly\.js \(basic - minified\) v([\d.]+)", text[:200])[1].decode()
    assert version in web.PLOT_LIBRARY.name and f"plotly.js-basic-dist-min {version}" in readme
    assert "MIT License" in (web.PLOT_LIBRARY.parent / "LICENSE").read_text(encoding="utf-8")


@pytest.mark.rare
def test_a_page_without_the_library_shows_its_numbers_and_says_why(open_tab, fake_address):
    tab = open_tab(None)
    tab.route(f"**/{web.PLOT_LIBRARY.name}", lambda route: route.abort())
    tab.goto(fake_address)
    tab.wait_for_selector(f"{WATCH} table")
    assert "could not be loaded" in tab.inner_text(WATCH)


def test_lines_go_through_every_step(plot_tab, traces):
    plain, drafted = plotted(plot_tab, ".columns")
    assert (plain["name"], drafted["name"]) == ("Plain decoding", "Jakiro")
    assert drafted["x"][1:] == pytest.approx(ends(traces["jakiro"]))
    counts = [1]
    for step in traces["jakiro"]["steps"]:
        counts.append(counts[-1] + len(step["committed_ids"]))
    assert drafted["y"] == counts


def test_the_readout_has_the_tokens_of_every_lane(plot_tab, traces):
    """For each lane, the readout shows the step with the end nearest to the pointer."""
    seconds = over(plot_tab, 0.5)
    said = hover(plot_tab)
    for name, title in (("jakiro", "Jakiro"), ("autoregressive", "Plain decoding")):
        steps = traces[name]["steps"]
        nearest = min(range(len(steps)), key=lambda i: abs(ends(traces[name])[i] - seconds))
        tokens = 1 + sum(len(step["committed_ids"]) for step in steps[: nearest + 1])
        assert f"{title}: {tokens} tokens" in said
    plot_tab.mouse.move(5, 5)
    plot_tab.wait_for_selector(".columns .hoverlayer text", state="detached")


def test_a_click_goes_to_the_step_and_the_plot_is_saved_as_picture_and_numbers(plot_tab, traces):
    seconds = over(plot_tab, 0.1)
    plot_tab.mouse.down()
    plot_tab.mouse.up()
    plot_tab.wait_for_selector(f'svg.tree[data-step="{sum(end <= seconds for end in ends(traces["jakiro"]))}"]')
    files = []
    for title in ("Download plot as a PNG", "Download the numbers"):
        plot_tab.hover(".columns .plot")
        with plot_tab.expect_download() as download:
            plot_tab.click(f'.columns .modebar-btn[aria-label^="{title}"]')
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
    """An idle page that draws every frame would take time from a model on the same cores."""
    tab = open_tab(None, clock=True)
    load_scripts(tab)
    opened(tab, traces_of())
    tab.clock.run_for(1000)
    draw_count = tab.get_attribute(WATCH, "data-drawn")
    tab.evaluate(
        "() => { const real = requestAnimationFrame; window.frames = 0;"
        " window.requestAnimationFrame = (call) => { window.frames += 1; return real(call); }; }"
    )
    tab.clock.run_for(10_000)
    assert tab.evaluate("window.frames") == 0 and tab.get_attribute(WATCH, "data-drawn") == draw_count


# Returns the boxes of the plot's names and numbers, and points of its lines about every pixel
DRAWN = """() => {
  const plot = document.querySelector('.columns .plot'), { left, top, right } = plot.getBoundingClientRect();
  const { xaxis, yaxis } = plot._fullLayout;
  const boxes = Object.fromEntries([...plot.querySelectorAll('.annotation')].map((note) => {
    const box = note.querySelector('text').getBoundingClientRect();
    return [note.textContent, [box.left, box.top, box.right, box.bottom]];
  }));
  const points = plot.data.flatMap(({ x, y, line }) => x.slice(1).flatMap((end, i) =>
    Array.from({ length: 64 }, (_, k) => {
      const across = x[i] + (end - x[i]) * k / 63, up = y[i] + (line.shape === 'hv' ? 0 : (y[i + 1] - y[i]) * k / 63);
      return [left + xaxis._offset + xaxis.d2p(across), top + yaxis._offset + yaxis.d2p(up)];
    })));
  return { boxes, points, start: left + xaxis._offset, end: right };
}"""


def race_at(speedup: float) -> dict:
    """Return the traces of a race in which all steps of a lane take the same time."""
    traces = traces_of(length=60, nodes=8)
    plain, steps = traces["autoregressive"]["steps"], traces["jakiro"]["steps"]
    for step in plain:
        step |= {"draft_ms": 0, "verify_ms": 20, "other_ms": 0}
    for step in steps:
        step |= {"draft_ms": 0, "verify_ms": 20 * len(plain) / len(steps) / speedup, "other_ms": 0}
    return traces


@pytest.mark.parametrize("width", [1366, 390])
@pytest.mark.parametrize("speedup", [0.8, 1.04, 1.2, 2.5])
def test_the_factor_covers_no_line(modules, speedup, width):
    modules.set_viewport_size({"width": width, "height": 844})
    opened(modules, race_at(speedup))
    drawn = modules.evaluate(DRAWN)
    (name,) = [name for name in drawn["boxes"] if name.endswith("×")]
    left, top, right, bottom = drawn["boxes"][name]
    assert right < drawn["end"]
    # Digits are lower than their line
    assert not [(x, y) for x, y in drawn["points"] if left < x < right and top + 8 < y < bottom - 8]


@pytest.mark.parametrize("speedup", [0.6, 2.5])
def test_the_names_of_lines_cover_no_line(modules, speedup):
    traces = race_at(speedup)
    further = copy.deepcopy(traces["jakiro"])
    further["header"]["method"] = "eagle2"
    for step in further["steps"]:
        step["verify_ms"] *= 1.25
    modules.set_viewport_size({"width": 1280, "height": 720})
    show(modules, traces | {"eagle2": further}, step=5)
    modules.wait_for_function("() => document.querySelectorAll('.columns .plot .annotation').length > 4")
    drawn = modules.evaluate(DRAWN)
    names = [name for name in drawn["boxes"] if name.startswith(("Jakiro", "Plain", "EAGLE"))]
    assert len(names) == 3
    for name in names:
        left, top, right, bottom = drawn["boxes"][name]
        # A line's name is three pixels away from it
        assert not [(x, y) for x, y in drawn["points"] if left < x < right and top + 2 < y < bottom - 2], name


def test_while_lines_grow_only_the_name_of_the_tree_s_lane_is_bold(modules):
    call_with(
        modules,
        """(traces) => {
          Jakiro.mountView(document.querySelector("#host"), {}, null, null);
          const run = Jakiro.runFromTraces("growing", "live", traces, "Test");
          Object.assign(run, { finished: false });
          Jakiro.show(run);
        }""",
        traces_of(),
    )
    modules.wait_for_selector(".columns .plot-grown text")
    look = "(all) => Object.fromEntries(all.map((name) => [name.textContent, getComputedStyle(name).fontWeight]))"
    weights = modules.locator(".columns .plot-grown text").evaluate_all(look)
    assert weights == {"Jakiro": "700", "Plain decoding": "400"}


def test_the_numbers_of_the_first_and_the_last_step_are_inside_the_plot(modules):
    opened(modules, traces := race_at(2))
    for step in (0, len(traces["jakiro"]["steps"]) - 1):
        modules.evaluate("step => Jakiro.moves.seek(step)", step)
        modules.wait_for_selector(f'svg.tree[data-step="{step}"]')
        drawn = modules.evaluate(DRAWN)
        numbers = [box for name, box in drawn["boxes"].items() if name.isdigit()]
        assert numbers and all(drawn["start"] <= box[0] and box[2] <= drawn["end"] for box in numbers)


@pytest.mark.parametrize("speedup", [0.85, 2.5])
def test_the_numbers_of_a_step_cover_no_line(modules, speedup):
    opened(modules, traces := race_at(speedup))
    for step in range(3, len(traces["jakiro"]["steps"]) - 2, 4):
        seek(modules, step)
        wait_for_frames(modules)
        drawn = modules.evaluate(DRAWN)
        numbers = [box for name, box in drawn["boxes"].items() if name.isdigit()]
        assert numbers  # equal ones have one name
        for left, top, right, bottom in numbers:
            assert not [(x, y) for x, y in drawn["points"] if left < x < right and top + 4 < y < bottom - 4], step
