"""What a browser can check of accessibility by itself: axe over every tab and stop, touch targets, narrow screens."""

from pathlib import Path

import pytest

from tests.app import lesson_tab as of
from tests.app.conftest import ask, wait_until_finished

pytestmark = pytest.mark.browser
AXE = Path(__file__).parent / "vendor" / "axe.min.js"


def serious(tab, within: str) -> list[str]:
    """Serious and critical findings of axe below a selector, as short lines."""
    if not tab.evaluate("Boolean(window.axe)"):
        tab.add_script_tag(path=AXE)
    found = tab.evaluate("within => axe.run(within, { resultTypes: ['violations'] })", within)
    return [
        f"{finding['id']}: {node['target']} {node['failureSummary'].splitlines()[-1].strip()}"
        for finding in found["violations"]
        if finding["impact"] in ("serious", "critical")
        for node in finding["nodes"]
    ]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_no_stop_has_a_serious_finding(open_tab, dark):
    tab = open_tab(None)
    of.mount(tab, dark)
    findings = []
    for stop in range(1, 10):
        of.go(tab, stop)
        findings += [f"stop {stop} {finding}" for finding in serious(tab, "#lesson")]
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_tab_has_a_serious_finding(open_tab, fake_address, scheme):
    tab = open_tab(fake_address, color_scheme=scheme)
    ask(tab, "Why?")
    wait_until_finished(tab)
    findings = []
    for name in ("watch", "race", "recordings"):
        tab.click(f'[data-tab="{name}"]')
        tab.wait_for_timeout(300)
        findings += [f"{name} {finding}" for part in ("#top", "#view") for finding in serious(tab, part)]
    assert not findings, "\n".join(findings)


def test_on_a_phone_nothing_is_wider_than_the_screen_and_targets_are_large(open_tab):
    tab = open_tab(None, viewport={"width": 390, "height": 844}, has_touch=True)
    of.mount(tab, dark=True)
    for stop in range(1, 10):
        of.go(tab, stop)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390, stop
        small = tab.evaluate(
            "[...document.querySelectorAll('#lesson :is(button, select, input[type=range], .option)')]"
            ".filter(e => e.offsetParent && (e.offsetHeight < 44 || e.offsetWidth < 44))"
            ".map(e => `${e.className} ${e.dataset.control || ''} ${e.offsetWidth}×${e.offsetHeight}`)"
        )
        assert not small, (stop, small)


def test_at_double_zoom_nothing_is_cut(open_tab):
    tab = open_tab(None, viewport={"width": 640, "height": 450})
    of.mount(tab)
    for stop in range(1, 10):
        of.go(tab, stop)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 640, stop
