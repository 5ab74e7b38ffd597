"""The first seconds, and small things: a bigger tree, marks on marks, two tokens, large text."""

import pytest

from app.words import page as words
from tests.app.browser.test_faithful import DRAWN
from tests.app.conftest import ask, run_until, wait_for_frames, wait_until_finished
from tests.app.fake import traces_of

pytestmark = pytest.mark.browser


def opening(tab) -> None:
    tab.evaluate(
        "traces => { Jakiro.mountView(document.querySelector('#host'), {}, null, null);"
        " Jakiro.showRecording('test', {title: 'Test', traces}, {playNow: true}); }",
        traces_of(length=60),
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
        [traces_of(length=60, nodes=5)],
    )
    tab.wait_for_selector(".small-trees:visible")
    assert words.BROWSER["small_trees"] in tab.inner_text(".small-trees")
    tab.click('[data-action="big_tree"]')
    tab.wait_for_function("() => Jakiro.moves.state.run.main.header.tree.nodes === 41")


def test_text_at_200_per_cent_does_not_overflow(open_tab, fake_address):
    tab = open_tab(fake_address, viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    tab.wait_for_selector("svg.tree")
    tab.add_style_tag(content="html { font-size: 32px !important; }")
    for name in ("watch", "race", "lesson", "recordings", "benchmark"):
        tab.click(f'[data-tab="{name}"]')
        wait_for_frames(tab)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1280, name
