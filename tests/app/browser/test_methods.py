"""Methods and proposers are data: an unknown one is drawn in every view with the words of its header."""

import copy
import itertools
import json

import pytest

from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN
from tests.app.conftest import plotted, set_option, show
from tests.app.fake import traces_of

pytestmark = pytest.mark.browser
PLACES = """[...document.querySelectorAll('svg.tree .node:not(.root, .bonus)')].map(node => [node.dataset.node,
            node.querySelector('.marker').classList[1], node.querySelector('.marker-number')?.textContent || ''])"""
LABELS = ("First", "Second", "Third", "Fourth <b>", "Fifth & last")


def race_of(method: str, proposers: int, experts: int) -> dict:
    """Return a race of plain decoding against an invented method, whose proposers take turns for the candidates."""
    traces = traces_of(length=60)
    plain, drafted = traces[PLAIN.name], traces[DEFAULT.name]
    ids = [f"source-{number}" for number in range(proposers)]
    drafted["header"] |= {
        "method": method,
        "proposers": [
            {"id": name, "label": label, "sentence": f"Told of {label}."}
            for name, label in zip(ids, LABELS[:proposers], strict=True)
        ],
    }
    turn = itertools.cycle(ids)
    for step in drafted["steps"]:
        for node in step["nodes"][1:]:
            node["proposer"], node["also_proposed_by"] = next(turn), [ids[-1]]
            weights = [(place + 1) / sum(range(1, experts + 1)) for place in range(experts)]
            node["evidence"] = {
                "router_weights": weights,
                "expert_contributions": weights,
                "match_length": [3.0],
                "twin": [1.0],
            }
    return {PLAIN.name: plain, method: drafted}


@pytest.fixture
def five(modules):
    """Show an unknown method with five proposers and three experts."""
    traces = race_of("magic+mirror", 5, 3)
    show(modules, traces, source="opened", step=0)
    return modules, traces


def test_legend_tree_list_and_answer_name_every_proposer(five):
    tab, traces = five
    assert tab.locator(".legend-entry .token").all_text_contents() == [*LABELS]
    titles = [entry.get_attribute("title") for entry in tab.query_selector_all(".legend-entry")]
    assert titles[:5] == [f"Told of {label}." for label in LABELS]
    # After four hues they repeat with a number
    nodes = traces["magic+mirror"]["steps"][0]["nodes"]
    for index, hue, number in tab.evaluate(PLACES):
        place = int(nodes[int(index)]["proposer"].removeprefix("source-"))
        assert (hue, number) == (f"hue-{place % 4}", "5" if place == 4 else "")
    set_option(tab, "read_as_list")
    tab.wait_for_selector(".tree-list")
    said = tab.locator(".list-line .muted").all_text_contents()
    assert all(any(label in line for line in said) for label in LABELS)
    tokens = tab.evaluate("""[...document.querySelectorAll('.answer-text .token')].map(one =>
                             [one.className, one.dataset.number || ''])""")
    assert {number for name, number in tokens if "by-4" in name} == {"5"}


def test_card_and_router_have_a_value_for_every_expert(five):
    tab, _ = five
    tab.hover('.tree .node[data-node="2"] .reach')
    card = tab.inner_text(".jk-card")
    assert "router: First 16.7\u00a0%, Second 33.3\u00a0%, Third 50.0\u00a0%" in card
    assert "contribution to the score: First +0.2, Second +0.3, Third +0.5" in card
    assert "also guessed by Fifth & last" in card and "match length: 3" in card
    tab.click('[data-action="about"]')
    tab.click(".panel-router summary")
    tab.wait_for_selector(".router-row")
    assert set(tab.locator(".router-row .tabular").all_text_contents()) == {"16.7\u00a0% · 33.3\u00a0% · 50.0\u00a0%"}


def test_an_unknown_method_is_titled_by_its_name_in_plot_table_and_files(five):
    tab, traces = five
    tab.click('.columns [data-toggle="read_as_table"]')
    tab.wait_for_selector(".columns .plot-host table")
    assert "magic+mirror" in tab.inner_text(".columns .plot-host table")
    rows = tab.evaluate("Jakiro.asCsv(Jakiro.moves.state.run)").split("\r\n")[1:]
    assert {row.split(",")[0] for row in rows} == {"magic+mirror"}
    assert json.loads(tab.evaluate("Jakiro.asJson(Jakiro.moves.state.run)"))["traces"] == traces


def test_many_lanes_race_side_by_side_each_with_its_name_and_its_line(modules):
    two = race_of("magic", 2, 2)
    copies = {name: copy.deepcopy(two["magic"]) for name in (*METHODS, "__proto__") if name != PLAIN.name}
    for name, trace in copies.items():
        trace["header"]["method"] = name
    modules.evaluate(
        """text => { Jakiro.mountView(document.querySelector('#host'), {}, null, null);
           Jakiro.showRecording('test', Jakiro.readTraceFile(text), {playNow: false, source: 'opened'}); }""",
        json.dumps({"traces": two | copies}),
    )
    modules.wait_for_selector("svg.tree")
    modules.evaluate("Jakiro.setTab('race'); Jakiro.moves.seek(Infinity)")
    modules.wait_for_selector(".result-card .verdict", state="attached")
    titles = ["magic", PLAIN.title, *(method.title for method in METHODS.values() if method is not PLAIN), "__proto__"]
    assert modules.locator(".lane .pane-head b").all_text_contents() == titles
    assert len(plotted(modules, ".race")) == len(titles)
    # Plotly draws a name beside its line, or in the legend if there is no room beside the line
    named = """titles => {
      const texts = [...document.querySelectorAll('.race .plot :is(.legendtext, .annotation-text)')];
      return titles.every((title) => texts.some(({ textContent }) => textContent.includes(title))); }"""
    modules.wait_for_function(named, arg=titles)


def test_before_the_first_answer_the_legend_shows_the_usual_methods_proposers(modules):
    modules.evaluate("Jakiro.mountView(document.querySelector('#host'), {}, null, null)")
    modules.wait_for_selector(".legend-entry", state="attached")
    labels = [proposer.label for proposer in DEFAULT.proposers]
    assert modules.locator(".legend-entry .token").all_text_contents() == labels
