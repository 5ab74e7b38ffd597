"""The page works with the keyboard only: from the question to the answer, the tree, a card, the list and a file."""

import json

import pytest

from tests.app.conftest import wait_until_finished

pytestmark = pytest.mark.browser
MOST_TABS = 90
FOCUS = """() => {
  const focused = document.activeElement, style = getComputedStyle(focused), box = focused.getBoundingClientRect();
  const places = { question: "#question", numbers: ".headline", answer: ".answer-pane", steps: ".scrubber",
    tree: ".tree-pane" };
  return { place: Object.keys(places).find(name => focused.closest(places[name])) || "",
    name: `${focused.tagName} ${focused.className} ${focused.textContent.slice(0, 30)}`,
    ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
    seen: box.width > 0 && box.height > 0 && box.right > 0 && box.left < innerWidth };
}"""


def tab_to(tab, selector: str, key: str = "Tab") -> list[dict]:
    """Press Tab until the element has the focus; return the data of every element on the way."""
    passed = []
    for _ in range(MOST_TABS):
        tab.keyboard.press(key)
        passed.append(tab.evaluate(FOCUS))
        if tab.evaluate("selector => document.activeElement.matches(selector)", selector):
            return passed
    raise AssertionError(f"{selector} was not reached: {[element['name'] for element in passed]}")


@pytest.mark.rare
def test_from_question_to_export_without_a_mouse(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.wait_for_selector("#jk-chip.ready")
    passed = tab_to(tab, "#question textarea")
    tab.keyboard.type("Why is the sky blue?")
    tab.keyboard.press("Enter")
    tab.wait_for_function("() => /^[0-9a-f]{32}$/.test(document.querySelector('.jk-view')?.dataset.run)")
    wait_until_finished(tab)

    passed += tab_to(tab, "#jk-step")
    for key, step in (("Home", "0"), ("ArrowRight", "1"), ("ArrowRight", "2"), ("ArrowLeft", "1")):
        tab.keyboard.press(key)
        tab.wait_for_selector(f'svg.tree[data-step="{step}"]')
    passed += tab_to(tab, ".tree-host")
    tab.keyboard.press("ArrowRight")
    tab.locator(".node.focused").wait_for(state="attached")
    card = tab.inner_text(".jk-card")
    tab.keyboard.press("Enter")

    passed += tab_to(tab, ".page-menu > summary")
    tab.keyboard.press("Enter")
    passed += tab_to(tab, '[data-toggle="read_as_list"]')
    assert tab.inner_text(".jk-card").removeprefix("×\n") == card, "a pinned card stays when the focus goes on"
    tab.keyboard.press("Space")
    tab.wait_for_selector(".tree-list")
    tab_to(tab, ".list-host", "Shift+Tab")
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".jk-card", state="hidden")

    passed += tab_to(tab, ".page-menu > summary")
    tab.keyboard.press("Enter")
    passed += tab_to(tab, ".save-menu summary")
    tab.keyboard.press("Enter")
    passed += tab_to(tab, '[data-save="save_json"]')
    with tab.expect_download() as download:
        tab.keyboard.press("Enter")
    saved = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert set(saved["traces"]) == {"autoregressive", "jakiro"}

    order = list(dict.fromkeys(element["place"] for element in passed if element["place"]))
    assert order == ["answer", "numbers", "question", "tree", "steps"], "the order on screen"
    # The body has the focus between the last and the first element
    passed = [element for element in passed if not element["name"].startswith("BODY")]
    assert all(element["seen"] for element in passed), [element["name"] for element in passed if not element["seen"]]
    assert all(element["ring"] for element in passed), [element["name"] for element in passed if not element["ring"]]


@pytest.mark.rare
def test_the_skip_link_comes_first_and_keys_move_through_tabs_and_stops(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.wait_for_selector("#jk-chip.ready")
    tab.wait_for_selector(".answer-text .token")
    (stop,) = tab_to(tab, ".skip")
    assert stop["seen"] and stop["ring"]
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#jk-answer:focus")
    tab_to(tab, '[role="tab"][data-tab="watch"]', "Shift+Tab")
    names = []
    for _ in range(5):
        names.append(tab.evaluate("document.body.dataset.jakiroTab"))
        tab.keyboard.press("ArrowRight")
    assert names == ["watch", "race", "lesson", "recordings", "benchmark"]
    tab.keyboard.press("ArrowLeft")
    tab.wait_for_selector("#benchmark .bench-results h2")
    passed = tab_to(tab, ".bench-form > summary")
    tab.keyboard.press("Enter")
    passed += tab_to(tab, '[data-control="bench-run"]')
    tab.evaluate("document.querySelector('[role=tab][data-tab=lesson]').focus()")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#lesson .stop")
    passed += tab_to(tab, '[data-control="next"]')
    tab.keyboard.press("Enter")
    tab.wait_for_selector('#lesson .stop[data-stop="2"]')
    passed += tab_to(tab, '[data-control="more"]')
    tab.keyboard.press("Space")
    tab.locator(".chain-link").nth(1).wait_for()
    assert tab.locator(".chain-link").count() == 2
    assert all(element["seen"] and element["ring"] for element in passed), passed


def test_escape_closes_a_list_before_its_drawer_and_returns_the_focus(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.click("#jk-settings")
    choices = tab.locator("#settings input[role=listbox]:visible, #settings input[role=combobox]:visible").first
    choices.click()
    tab.wait_for_selector("#settings [role=option]")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#settings [role=option]", state="detached")
    assert tab.is_visible("#settings")
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#settings", state="hidden")
    tab.wait_for_selector("#jk-settings:focus")
