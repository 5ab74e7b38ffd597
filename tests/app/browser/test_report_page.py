"""bench.html in a browser: offline, light and dark, whatever a lane or a model is called."""

from dataclasses import replace

import pytest

from jakiro.bench.plots import figures
from jakiro.bench.report import summarise
from jakiro.bench.runner import Lane
from jakiro.plots import Look, write_report
from tests.bench.test_plots import drawn
from tests.bench.test_report import runs  # noqa: F401 - a fixture

HOSTILE = "</script><img src=x onerror='window.ran=1'><a href='javascript:1'>x</a>"


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_report_opens_without_a_network_and_names_stay_text(runs, tmp_path, browser, scheme):  # noqa: F811
    named = [replace(run, lane=Lane(HOSTILE, 24)) if run.lane.method == "jakiro" else run for run in runs]
    groups = summarise(named)
    path = write_report(tmp_path / "bench.html", HOSTILE, [HOSTILE], lambda look: figures(groups, look))
    context = browser.new_context(color_scheme=scheme, offline=True)
    tab = context.new_page()
    asked, problems = [], []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.goto(path.as_uri())
    count = len(drawn(path)["light"])
    tab.wait_for_function("count => document.querySelectorAll('.plot svg.main-svg').length >= 3 * count", arg=count)
    assert not problems and [url for url in asked if not url.startswith(("data:", "blob:"))] == [path.as_uri()]
    assert tab.evaluate("window.ran") is None and tab.locator(".plot :is(a[href^=javascript], img[src=x])").count() == 0
    assert HOSTILE[:20] in tab.inner_text("h1") and "<img src=x" in tab.text_content("#plot-0 .legend")
    paper = tab.evaluate("document.querySelector('#plot-0').layout.template.layout.paper_bgcolor")
    assert paper == Look(scheme).colours["surface"]
    context.close()
