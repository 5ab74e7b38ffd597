"""The first seconds, and small things: a bigger tree, marks on marks, two tokens, large text."""

import pytest

from app.words import page as words
from jakiro.config import SamplingParams, TreeConfig
from tests.app.browser.test_faithful import DRAWN
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
        " Jakiro.showRecording('test', {title: 'Test', traces}, {playNow: true, ...options}); }",
        [traces_of(), options],
    )


STATE = "(({index, phase, playing}) => [index, phase, playing])(Jakiro.moves.state)"


def test_it_opens_slowly_phase_by_phase_and_goes_on_at_the_normal_pace(timed):
    opening(timed)
    while not timed.evaluate("Jakiro.moves.state.playing"):
        timed.clock.run_for(50)
    counts = timed.evaluate("Jakiro.lane().counts")
    seen, now, clock = [], None, 0
    while timed.evaluate("Jakiro.moves.state.playing"):
        timed.clock.run_for(50)
        clock += 50
        state = timed.evaluate(STATE)
        if state != now and state[2]:
            now = state
            seen.append((clock, *state[:2]))
            timed.clock.run_for(40)
            clock += 40
            index, phase = state[:2]
            written = counts[index] if phase == 3 else counts[index - 1] if index else 1
            assert timed.evaluate(DRAWN)[:3] == [index, index, written], "one moment everywhere"
    starts = [at for at, _, phase in seen if phase == 1]
    slow, normal = starts[2] - starts[1], starts[8] - starts[7]
    assert slow == pytest.approx(2500, abs=200) and normal == pytest.approx(660, abs=200)
    assert [phase for _, step, phase in seen if step in (0, 1)] == [1, 2, 3, 1, 2, 3]
    rest = timed.evaluate(
        """() => { const { state } = Jakiro.moves; const step = state.run.main.steps[state.index];
             const kept = Jakiro.deliveredPath(step).length;
             return [state.phase, kept > 0, step.nodes.length - 1 > kept,
                     state.index < state.run.main.steps.length - 1]; }"""
    )
    assert rest == [3, True, True, True], "it rests where some were kept and some refused"


def test_whoever_moves_ends_the_replay(timed):
    opening(timed)
    run_until(timed, "svg.tree.phase-1")
    timed.evaluate("Jakiro.moves.seek(7)")
    timed.clock.run_for(6000)
    assert timed.get_attribute("svg.tree", "data-step") == "7"
    assert timed.evaluate(STATE) == [7, 3, False], "no further phase is shown"


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
    short = "traces => Jakiro.verdict(Jakiro.runFromTraces('x', 'opened', traces))"
    assert functions.evaluate(short, traces_of(length=2)) == words.BROWSER["verdict_short"]
    piled = ("a" + "\u0301" * 30).encode()
    assert functions.evaluate("hex => Jakiro.label(Jakiro.fromHex(hex))", piled.hex()) == "a" + "\u0301" * 3
    high = functions.evaluate(
        """piece => { const host = document.querySelector('#host').appendChild(document.createElement('div'));
             const view = new Jakiro.AnswerView(host, {});
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
