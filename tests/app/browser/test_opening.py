"""The first seconds, and small things: a bigger tree, marks on marks, two tokens, large text."""

import pytest

from app.words import page as words
from jakiro.config import SamplingParams, TreeConfig
from tests.app.conftest import ask, run_until, wait_for_frames, wait_until_finished
from tests.app.fake import FakeGenerator

pytestmark = pytest.mark.browser


def traces_of(pieces=None, length=60, nodes=24) -> dict:
    messages = [{"role": "user", "content": "Why?"}]
    race = FakeGenerator(pieces).race(messages, SamplingParams(max_new_tokens=length), tree=TreeConfig(nodes=nodes))
    list(race)
    return {method: trace.to_dict() for method, trace in race.traces.items()}


def opening(tab, **options) -> None:
    tab.evaluate(
        "([traces, options]) => { Jakiro.mountView(document.querySelector('#host'), {}, null, null);"
        " Jakiro.showRecording('test', {title: 'Test', traces}, {playNow: true, opening: true, ...options}); }",
        [traces_of(), options],
    )


def test_it_opens_slowly_on_a_step_of_both_experts_and_waits_there(timed):
    opening(timed)
    while not timed.evaluate("Jakiro.moves.state.playing"):
        timed.clock.run_for(100)
    timed.clock.run_for(100)
    before = timed.evaluate("Jakiro.moves.state.time")
    timed.clock.run_for(160)
    assert timed.evaluate("Jakiro.moves.state.time") - before == pytest.approx(0.25 * 0.160, abs=0.01)
    run_until(timed, "svg.tree.phase-1")
    for phase in (1, 2, 3):
        assert timed.locator(f'.phase[data-phase="{phase}"][aria-checked="true"]').count() == 1
        assert timed.locator(f"svg.tree.phase-{phase}").count() == 1
        timed.clock.run_for(2500)
    step = timed.evaluate(
        """() => { const { state } = Jakiro.moves; const step = state.run.main.steps[state.index];
             return {at: state.index === state.run.rest, early: state.index < 10, playing: state.playing,
                     speakers: new Set(Jakiro.deliveredPath(step).map(i => step.nodes[i].proposer)).size}; }"""
    )
    assert step == {"at": True, "early": True, "playing": False, "speakers": 2}


def test_whoever_moves_ends_the_opening(timed):
    opening(timed)
    run_until(timed, "svg.tree.phase-1")
    timed.evaluate("Jakiro.moves.seek(7)")
    timed.clock.run_for(6000)
    assert timed.get_attribute("svg.tree", "data-step") == "7"
    state = "[Jakiro.moves.state.index, Jakiro.moves.state.playing, Jakiro.moves.state.phase]"
    assert timed.evaluate(state) == [7, False, 1], "no further phase is shown"


def test_small_trees_of_a_processor_are_explained_and_a_big_one_is_a_click_away(open_tab, fake_address):
    tab = open_tab(fake_address, reduced_motion="reduce")
    ask(tab, "Why?")
    wait_until_finished(tab)
    assert tab.is_hidden(".small-trees"), "23 candidates are no small tree"
    tab.evaluate(
        "([traces]) => { const run = Jakiro.runFromTraces('live', 'live', traces);"
        " run.main.header.tree.policy = 'auto'; Jakiro.screen.state.run = run; Jakiro.redraw(); }",
        [traces_of(nodes=5)],
    )
    tab.wait_for_selector(".small-trees:visible")
    assert words.BROWSER["small_trees"] in tab.inner_text(".small-trees")
    tab.click('[data-action="big_tree"]')
    tab.wait_for_function("() => Jakiro.moves.state.run.main.header.tree.nodes === 41")


def test_two_tokens_are_not_judged_and_marks_stay_in_their_line(functions):
    short = "traces => Jakiro.resultOf(Jakiro.runFromTraces('x', 'opened', traces)).verdict"
    assert functions.evaluate(short, traces_of(length=2)) == words.BROWSER["verdict_short"]
    piled = ("a" + "\u0301" * 30).encode()
    assert functions.evaluate("hex => Jakiro.label(Jakiro.fromHex(hex))", piled.hex()) == "a" + "\u0301" * 3
    high = functions.evaluate(
        """piece => { const host = document.querySelector('#host'); const view = new Jakiro.AnswerView(host, {});
             const token_of = (text, step) => ({bytes: Jakiro.fromText(text), step, special: null,
               proposer: Jakiro.TARGET});
             const lane = {tokens: ['plain ', piece].map(token_of)};
             view.draw(lane, 2, {live: false, selected: -1});
             const token = host.querySelector('[data-token="1"]'), style = getComputedStyle(token);
             return [style.overflow, token.getBoundingClientRect().height <= 30.5]; }""",
        piled.decode(),
    )
    assert high == ["hidden", True]


def test_text_at_200_per_cent_does_not_overflow(open_tab, fake_address):
    tab = open_tab(fake_address, viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    tab.wait_for_selector("svg.tree")
    tab.add_style_tag(content="html { font-size: 32px !important; }")
    for name in ("watch", "race", "lesson", "recordings", "benchmark"):
        tab.click(f'[data-tab="{name}"]')
        wait_for_frames(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1280, name
