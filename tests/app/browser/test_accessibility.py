"""Automatic accessibility checks: axe, sizes of touch targets, zoom and reduced motion."""

import pytest

from tests.app import lesson_tab as of
from tests.app.conftest import DESKTOP, ask_to_end, wait_for_frames
from tests.faults import ROOT
from tests.marks import rarely

pytestmark = pytest.mark.browser
AXE = ROOT / "tests" / "app" / "vendor" / "axe.min.js"
TABS = {"watch": "#view", "race": "#view", "lesson": "#lesson", "recordings": "#view", "benchmark": "#benchmark"}
SMALLEST_FIELD = """() => Math.min(...[...document.querySelectorAll("#question, #settings, .jk-view")].flatMap((part) =>
  [...part.querySelectorAll("textarea, select, input:not([type=radio], [type=checkbox], [type=range])")]
    .map((field) => parseFloat(getComputedStyle(field).fontSize))))"""
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
TABLET = PHONE | {"viewport": {"width": 1180, "height": 820}}
CONTROLS = (
    ":is(#top, #question-row, #view, #lesson, #benchmark) :is(button, select, summary, input, label.plain-button)"
)
# Elements that fade in have too little contrast before the animation ends
FADED_IN = """() => Promise.allSettled(document.getAnimations()
    .filter(one => one.effect.getComputedTiming().endTime < Infinity).map(one => one.finished))"""
SPILLING_WORDS = """() => [...document.querySelectorAll(".jk-view :is(button, label.plain-button)")]
    .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"""
SMALL_CONTROLS = """([selector, least]) => [...document.querySelectorAll(selector)]
  .filter(e => e.checkVisibility({ visibilityProperty: true }) && !e.matches(".file-input, [type=radio]"))
  .map(e => [e, e.getBoundingClientRect()])
  .filter(([, box]) => box.width && (box.height < least - 0.5 || box.width < least - 0.5))
  .map(([e, box]) => `${e.tagName} ${e.className} “${e.textContent.slice(0, 20)}” ${box.width}×${box.height}`)"""


def serious(tab, within: str, dark: bool = False) -> list[str]:
    """Return the serious and critical findings of axe below a selector; dark mode differs in its colours only."""
    if not tab.evaluate("Boolean(window.axe)"):
        tab.add_script_tag(path=AXE)
    options = {"resultTypes": ["violations"]} | ({"runOnly": ["color-contrast"]} if dark else {})
    tab.evaluate(FADED_IN)
    report = tab.evaluate("([within, options]) => axe.run(within, options)", [within, options])
    return [
        f"{finding['id']}: {node['target']} {node['failureSummary'].splitlines()[-1].strip()}"
        for finding in report["violations"]
        if finding["impact"] in ("serious", "critical")
        for node in finding["nodes"]
    ]


@pytest.mark.rare
def test_no_stop_has_a_serious_finding_in_light_and_in_dark_and_a_phone_has_large_targets(open_tab):
    tab = open_tab(None, has_touch=True)
    of.mount(tab)
    findings = []
    for dark in (False, True):
        tab.evaluate("dark => document.body.classList.toggle('dark', dark)", dark)
        tab.set_viewport_size(PHONE["viewport"] if dark else DESKTOP)
        for stop in range(1, 11):
            of.go(tab, stop)
            findings += [f"stop {stop} {finding}" for finding in serious(tab, "#lesson", dark)]
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), stop
            assert not tab.evaluate(SMALL_CONTROLS, [CONTROLS, 44 if dark else 24]), stop
    assert not findings, "\n".join(findings)


def show(tab, name: str) -> None:
    tab.click(f'[role="tab"][data-tab="{name}"]')
    if name in ("lesson", "benchmark"):
        tab.wait_for_selector("#lesson .stop" if name == "lesson" else "#benchmark .bench-results h2")
    wait_for_frames(tab)


@pytest.mark.rare
def test_no_tab_has_a_serious_finding_in_light_and_in_dark(open_tab, fake_address):
    tab = open_tab(fake_address, color_scheme="light")
    ask_to_end(tab, "Why?")
    findings = []
    for scheme in ("light", "dark"):
        tab.emulate_media(color_scheme=scheme)
        tab.wait_for_function("dark => document.body.classList.contains('dark') === dark", arg=scheme == "dark")
        findings += serious(tab, "#top", scheme == "dark")
        for name, part in TABS.items():
            show(tab, name)
            findings += [f"{scheme} {name} {finding}" for finding in serious(tab, part, scheme == "dark")]
    assert not findings, "\n".join(findings)


@pytest.mark.rare
def test_a_group_of_settings_is_a_press_away_and_the_drawer_has_no_serious_finding(open_tab, fake_address):
    tab = open_tab(fake_address, viewport={"width": 1280, "height": 720})
    tab.click("#jk-settings")
    tab.wait_for_selector("#makers-settings:visible")
    button, block, length = (
        tab.locator(part).bounding_box() for part in ("#makers-settings", "#recommended", "#length")
    )
    assert button["y"] + button["height"] <= block["y"] + block["height"] <= length["y"]
    for group, field in (("drafting", "#method"), ("answer", "#length"), ("model", "#template-arguments")):
        tab.focus(f"#to-{group}")
        tab.keyboard.press("Enter")
        tab.wait_for_function("group => document.activeElement.closest(`#group-${group}`)", arg=group)
        heading, head = (tab.locator(part).bounding_box() for part in (f"#group-{group} h3", "#settings-head"))
        assert head["y"] + head["height"] <= heading["y"] + 1 and heading["y"] + heading["height"] <= 720
        tab.keyboard.press("Tab")
        tab.wait_for_function("field => document.activeElement.closest(field)", arg=field)
    assert not serious(tab, "#settings")


@pytest.mark.parametrize(("least", "options"), [(44, PHONE), rarely(44, TABLET), (24, {})])
@pytest.mark.rare
def test_targets_are_large_enough_on_every_tab(open_tab, fake_address, least, options):
    tab = open_tab(fake_address, **options)
    ask_to_end(tab, "Why?")
    small = {}
    for name in TABS:
        show(tab, name)
        small[name] = tab.evaluate(SMALL_CONTROLS, [CONTROLS, least])
        assert not tab.evaluate(SPILLING_WORDS), name
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    assert not any(small.values()), small


@pytest.mark.rare
def test_with_reduced_motion_nothing_plays_or_fades(open_tab, fake_address):
    tab = open_tab(fake_address, reduced_motion="reduce", clock=True)
    tab.wait_for_selector("svg.tree")
    step = tab.get_attribute("svg.tree", "data-step")
    tab.clock.run_for(5000)
    assert tab.get_attribute("svg.tree", "data-step") == step
    tab.hover('svg.tree [data-node="1"]', force=True)
    tab.wait_for_selector(".jk-card:not([hidden])")
    moving = tab.evaluate("document.getAnimations().filter(one => one.playState === 'running').length")
    assert moving == 0


@pytest.mark.rare
def test_a_phone_does_not_zoom_into_a_field_and_a_question_runs_in_its_own_direction(open_tab, fake_address):
    tab = open_tab(fake_address, **PHONE)
    tab.wait_for_selector("#question textarea")
    assert tab.evaluate(SMALLEST_FIELD) >= 16
    for field in ("#question", "#system-prompt"):
        look = "field => (({ unicodeBidi, textAlign }) => [unicodeBidi, textAlign])(getComputedStyle(field))"
        assert tab.locator(f"{field} textarea").evaluate(look) == ["plaintext", "start"]


@pytest.mark.rare
def test_text_at_200_per_cent_does_not_overflow(open_tab, fake_address):
    tab = open_tab(fake_address, viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    tab.wait_for_selector("svg.tree")
    tab.add_style_tag(content="html { font-size: 32px !important; }")
    for name in TABS:
        show(tab, name)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1280, name
