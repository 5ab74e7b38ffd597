"""Races, texts that differ, verdicts, and leaving the queue."""

import copy
import json

import pytest

from app.words import page as words
from jakiro.loading.registry import DEFAULT_HEAD, DEFAULT_TARGET
from tests.app.conftest import (
    ask,
    ask_to_end,
    number_of,
    saved,
    send,
    served,
    served_slow,
    show,
    wait_for_frames,
    wait_until_finished,
)
from tests.app.fake import FakeGenerator, traces_of

pytestmark = pytest.mark.browser


def parted(at: int) -> dict:
    """Return a race whose plain lane has another token at position `at`, chosen by a margin of 0.004."""
    traces = traces_of()
    step = traces["autoregressive"]["steps"][at - 1]
    assert len(step["committed_ids"]) == 1
    step["committed_ids"], step["bonus_token_id"] = [7], 7
    step["nodes"][0]["margin"] = 0.004
    return traces


def test_texts_are_compared_up_to_the_shorter_one(modules):
    traces = traces_of()
    traces["autoregressive"] |= {"steps": traces["autoregressive"]["steps"][:19], "end_reason": "stopped"}
    show(modules, traces, source="opened")
    said = "document.querySelector('[data-fact=\"same\"] span').textContent"
    assert modules.evaluate(said) == "Same 20 tokens as plain decoding, which stopped there"
    for change, end in (("run.finished = false", "as plain decoding so far"), ("time = 0.1", "as plain decoding")):
        modules.evaluate(f"Jakiro.state.{change}; Jakiro.redrawNow()")
        wait_for_frames(modules)
        assert modules.evaluate(said).endswith(end)


def test_texts_that_differ_name_the_token_and_the_link_shows_that_step(modules):
    show(modules, parted(30), source="opened")
    modules.wait_for_selector('[data-fact="same"][data-state="different"]')
    said = words.BROWSER["same_no"].format(token=31)
    assert number_of(modules, "same") == (said, words.BROWSER["same_no_note"].format(margin="0.0040"))
    assert modules.text_content('[data-fact="same"] span >> nth=0') == said
    step = modules.evaluate("Jakiro.lane().tokens[30].step")
    speedup, to_there = modules.evaluate(
        """(({ main, plain }) => [Jakiro.metrics.speedup(main, plain), plain.secondsTo(30) / main.secondsTo(30)])(
           Jakiro.state.run)"""
    )
    assert speedup == to_there, "only to where they part"
    modules.evaluate("Jakiro.setTab('race')")
    modules.wait_for_selector(".race .verdict", state="attached")
    assert modules.inner_text(".lead").startswith("The texts differ from token 31 on; up to there ")
    modules.evaluate("Jakiro.setTab('watch')")
    modules.click(".headline .link-button")
    modules.wait_for_selector(f'svg.tree[data-step="{step}"]')


OTHER_HEAD = f"{DEFAULT_TARGET}-eagle2"


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ({"jakiro": DEFAULT_HEAD, "eagle2": OTHER_HEAD, "prompt_lookup": None}, True),
        ({"jakiro": DEFAULT_HEAD, "jakiro+prompt_lookup": DEFAULT_HEAD, "eagle2": "__proto__"}, False),
    ],
    ids=["unequal", "equal and unknown"],
)
def test_a_race_of_heads_with_unequal_training_minutes_has_a_note(modules, heads, said):
    traces = traces_of()
    drafted = traces.pop("jakiro")
    for method, head in heads.items():
        traces[method] = copy.deepcopy(drafted)
        traces[method]["header"] |= {"method": method, "drafter": head and {"name": head}}
    show(modules, traces, source="opened")
    modules.evaluate("Jakiro.setTab('race')")
    modules.wait_for_selector(f".lanes[data-count='{len(traces)}']")
    assert modules.is_visible(".unequal-heads") == said
    if said:
        minutes = modules.evaluate("Jakiro.headMinutes")
        listed = f"Jakiro {round(minutes[DEFAULT_HEAD])} min, EAGLE-2 {round(minutes[OTHER_HEAD])} min"
        assert modules.inner_text(".unequal-heads") == words.BROWSER["unequal_heads"].format(heads=listed)


def test_a_recording_waits_at_the_start_line_of_the_race_and_ends_with_its_result(modules):
    show(modules, traces_of())
    modules.evaluate("Jakiro.setTab('race')")
    modules.wait_for_selector('.start-race:text-is("Start race")')
    assert modules.evaluate("[...document.querySelectorAll('.own-clock')].map(c => c.textContent)") == ["0.0 s"] * 2
    assert modules.locator(".result-card .verdict").count() == 0
    modules.click(".start-race")
    modules.wait_for_function("() => document.querySelectorAll('.lane-main [data-token]').length > 8")
    counts = modules.evaluate(
        """() => { const time = Jakiro.raceTime(Jakiro.moment());
           return Object.values(Jakiro.state.run.lanes).map(lane => [lane.method, lane.countAt(time)]); }"""
    )
    assert dict(counts)["jakiro"] >= dict(counts)["autoregressive"]
    modules.evaluate("if (Jakiro.moves.state.playing) Jakiro.moves.state.time = 1e9")
    modules.click(".race-more summary")
    modules.wait_for_selector(".result-card .verdict")
    assert modules.inner_text(".start-race") == words.BROWSER["replay_race"]
    assert modules.inner_text(".result-card .verdict").startswith("Jakiro finished ")


def test_the_fastest_lane_is_first_at_the_end_and_the_bars_have_an_axis_of_seconds(modules):
    traces = traces_of()
    fast = copy.deepcopy(traces["jakiro"])
    fast["header"]["method"] = "eagle2"
    for step in traces["jakiro"]["steps"]:
        step["verify_ms"] *= 4
    show(modules, traces | {"eagle2": fast}, source="opened")
    names = """() => [...document.querySelectorAll('.race-bar')]
      .toSorted((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
      .map((bar) => bar.querySelector('.race-name').textContent)"""
    modules.evaluate("Jakiro.setTab('race'); Jakiro.moves.seek(0)")
    modules.wait_for_selector(".race-bar")
    assert modules.evaluate(names) == ["Jakiro", "Plain decoding", "EAGLE-2"], "the result waits for the end"
    modules.evaluate("Jakiro.moves.seek(Infinity)")
    modules.wait_for_selector(".race.over")
    assert modules.evaluate(names) == ["EAGLE-2", "Plain decoding", "Jakiro"]
    heard = modules.get_attribute(".race-bars", "aria-label")
    assert heard.startswith("EAGLE-2") and heard.endswith(words.BROWSER["plot_seconds"])
    modules.wait_for_timeout(700)  # the bars change once, in 600 ms
    assert modules.inner_text(".race-axis").endswith(words.BROWSER["plot_seconds"])
    clocks = modules.evaluate("Object.values(Jakiro.state.run.lanes).map((lane) => lane.clock)")
    bars = modules.evaluate(
        "[...document.querySelectorAll('.race-fill')].map((bar) =>"
        " (({ left, width }) => [left, width])(bar.getBoundingClientRect()))"
    )
    ticks = modules.evaluate(
        "[...document.querySelectorAll('.race-axis i')].map((tick) =>"
        " [Number(tick.textContent), tick.getBoundingClientRect().left])"
    )
    assert 3 <= len(ticks) <= 6 and ticks[0] == [0, pytest.approx(bars[0][0], abs=1)]
    start, width = max(bars, key=lambda bar: bar[1])
    for value, left in ticks:
        assert left == pytest.approx(start + width * value / max(clocks), abs=1)


@pytest.mark.parametrize(
    ("plain_ms", "sentence"),
    [
        (50, "Jakiro finished 5.0\u00a0s earlier."),
        (10, "Plain decoding finished 3.0\u00a0s earlier: drafting made this text slower."),
        (25.2, "Equal: less than 2 % difference."),
    ],
)
def test_the_verdict_names_the_faster_lane_or_a_draw(functions, plain_ms, sentence):
    traces = traces_of([b"a"] * 200)
    for name, total in (("autoregressive", plain_ms * 200), ("jakiro", 25.0 * 200)):
        steps = traces[name]["steps"]
        for step in steps:
            step.update(draft_ms=0, other_ms=0, verify_ms=total / len(steps))
    said = functions.evaluate("traces => Jakiro.verdict(Jakiro.runFromTraces('x', 'opened', traces))", traces)
    assert said == sentence


@pytest.mark.rare
def test_a_waiting_visitor_keeps_the_answer_on_screen_and_can_leave(open_tab):
    with served_slow() as (_, _, address):
        first, second = open_tab(address), open_tab(address)
        second.wait_for_selector("svg.tree")
        run = second.get_attribute(".jk-view", "data-run")
        ask(first, "First?")
        send(second, "Second?")
        second.locator(".answer-pane .waiting:visible", has_text="number").wait_for()
        assert second.get_attribute(".jk-view", "data-run") == run
        second.click('.answer-pane [data-action="leave"]')
        second.wait_for_selector(".answer-pane .waiting", state="hidden")
        first.click("#stop")
        wait_until_finished(first)
        assert second.get_attribute(".jk-view", "data-run") == run
        assert second.evaluate("Jakiro.moves.state.turns.length") == 0


@pytest.mark.rare
def test_a_saved_answer_is_the_trace_of_the_library_to_the_last_digit(open_tab, fake_address, connect):
    tab = open_tab(fake_address)
    ask_to_end(tab, "Why is the sky blue?")
    traces = connect(fake_address).predict(tab.get_attribute(".jk-view", "data-run"), api_name="/trace")
    file = saved(tab, "save_json")
    assert json.loads(file.path().read_text()) == {"title": "Why is the sky blue?", "why": "", "traces": traces}
    assert file.suggested_filename.startswith("jakiro-why-is-the-seed0-")


@pytest.mark.rare
def test_an_answer_that_was_to_be_replaced_stays_when_the_new_question_is_refused(open_tab, monkeypatch):
    monkeypatch.setattr("app.serving.pace.MINUTE", 6000)
    with served(lambda: FakeGenerator(), answers_per_minute=1) as (_, address):
        tab = open_tab(address)
        ask_to_end(tab, "Why?")
        for button in ("ask_again", "edit"):
            tab.evaluate("Jakiro.notify(null)")
            tab.locator(f'[data-action="{button}"]').last.click()
            if button == "edit":
                assert tab.input_value("#question textarea") == "Why?"
                tab.click("#ask")
            tab.wait_for_selector("#jk-notice:visible")
            assert tab.evaluate("Jakiro.moves.state.turns.map(run => run.question)") == ["Why?"]
