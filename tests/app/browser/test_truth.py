"""The page shows the true state: the last step of an answer, the chat that is sent, reloads.

All tests share one tab and show recordings in it like the page itself.
"""

import pytest

from app.page.offered import offered_questions
from app.words import page as words
from jakiro.trace import Trace
from tests.app.conftest import ask_to_end, call_with, number_of, seek, send, wait_until_finished
from tests.app.fake import finished_race

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("no_problems")]
SHOW = "traces => Jakiro.showRecording('test', {title: 'Test', traces}, {playNow: false, step: 0})"


def cut_race(by: int) -> dict[str, Trace]:
    """Return a race whose length limit cuts the last `by` tokens of a step off the answer."""
    for length in range(12, 90):
        traces = finished_race(length=length).traces
        last = traces["jakiro"].steps[-1]
        if len(last.accepted_path) + 1 - len(last.committed_ids) == by and len(last.committed_ids) > 1:
            return traces
    raise AssertionError("no length cuts so much")


@pytest.fixture(scope="module")
def tab(tabs, fake_address):
    tab = tabs.open(fake_address, [], reduced_motion="reduce")
    tab.wait_for_selector("#jk-chip.ready")
    tab.wait_for_selector("svg.tree")
    yield tab
    tab.close()


@pytest.mark.rare
@pytest.mark.parametrize("by", [1, 2])
def test_the_last_step_shows_the_delivered_tokens(tab, by):
    traces = cut_race(by)
    drafted = traces["jakiro"]
    last = drafted.steps[-1]
    num_delivered = len(last.committed_ids)
    call_with(tab, SHOW, {method: trace.to_dict() for method, trace in traces.items()})
    seek(tab, len(drafted.steps) - 1)
    node_ids_of = "state => [...document.querySelectorAll(`svg.tree .node.${state}`)].map(node => node.dataset.node)"
    assert tab.evaluate(node_ids_of, "accepted") == [str(node) for node in last.accepted_path[:num_delivered]]
    assert tab.evaluate(node_ids_of, "cut") == [*(str(node) for node in last.accepted_path[num_delivered:]), "bonus"]
    assert words.BROWSER["cut_here"] in tab.text_content("svg.tree .verdict")
    candidates = len(last.nodes) - 1
    right, tokens = len(last.accepted_path), f"{num_delivered} token{'s' * (num_delivered != 1)}"
    line = words.BROWSER["sum_cut"].format(guesses=candidates, right=right, tokens=tokens, cut=by).replace("**", "")
    assert tab.inner_text(".tree-line") == line
    # Shares and τ count the delivered tokens; the drafted τ is next to it
    counts = {}
    for step in drafted.steps:
        for node in step.accepted_path[: len(step.committed_ids)]:
            counts[step.nodes[node].proposer] = counts.get(step.nodes[node].proposer, 0) + 1
    total = sum(counts.values())
    for proposer, count in counts.items():
        share = tab.inner_text(f'.legend-entry[data-proposer="{proposer}"] b')
        assert abs(int(share.split()[0]) - 100 * count / total) < 1
    assert number_of(tab, "tau")[0] == f"{drafted.delivered_tau:.2f}"
    assert f"{drafted.tau:.2f} if tokens after the end" in number_of(tab, "tau")[1]


def sent(tab) -> list[str]:
    """Return the roles of all messages in the header of the answer on screen."""
    return tab.evaluate("Jakiro.moves.state.run.main.header.messages.map(message => message.role)")


@pytest.mark.rare
def test_a_chat_is_remembered_in_sight_and_any_turn_can_be_asked_again(tab):
    tab.evaluate("document.querySelector('#clear').click()")
    ask_to_end(tab, "First?")
    assert tab.input_value("#question textarea") == "", "a question leaves the box"
    assert tab.is_hidden(".earlier") and tab.is_hidden(".sent-with")
    tab.wait_for_selector("#jk-chat:has-text('Your next question includes 1 earlier turn.')")
    ask_to_end(tab, "Second?")
    ask_to_end(tab, "Third?")
    assert sent(tab) == ["user", "assistant"] * 2 + ["user"]
    assert tab.inner_text(".sent-with") == "sent with 2 earlier turns"
    assert tab.locator(".turn-question").all_inner_texts() == ["First?", "Second?"]
    # The page's limits count the whole chat, and the message explains this
    send(tab, "word " * 4001)
    tab.wait_for_selector("#jk-notice.error")
    assert words.CHAT_COUNTS.strip() in tab.inner_text("#jk-notice")
    assert tab.inner_text(".turn-text >> nth=0").startswith("The sky is blue")
    tab.click('.turn [data-action="edit"] >> nth=0')
    assert tab.input_value("#question textarea") == "First?"
    tab.wait_for_selector(f'#jk-chat:has-text("{words.BROWSER["chat_fresh"]}")')
    ask_to_end(tab, "Other?")
    assert sent(tab) == ["user"]
    assert tab.evaluate("Jakiro.moves.state.turns.map(run => run.question)") == ["Other?"]
    # One press returns to the first question and its later turns
    tab.click('[data-action="branch_before"]')
    tab.wait_for_function("() => Jakiro.moves.state.turns.length === 3")


def test_new_chat_sends_no_earlier_turns_and_brings_the_examples_back(tab):
    ask_to_end(tab, "Before?")
    assert tab.is_hidden("#example-1")
    for again in (True, False):
        tab.click("#clear")
        tab.wait_for_selector(".answer-pane .empty:visible")
        if again:
            tab.click('[data-action="chat_undo"]')
            tab.wait_for_selector(".answer-pane .answer-text .token")
            assert tab.inner_text(".asked") == "Before?"
    tab.click("#example-1")
    tab.wait_for_function("() => /^[0-9a-f]{32}$/.test(document.querySelector('.jk-view')?.dataset.run)")
    wait_until_finished(tab)
    assert tab.text_content(".asked") == offered_questions()[1]
    assert sent(tab) == ["user"]
    assert tab.is_hidden(".earlier") and tab.evaluate("Jakiro.moves.state.turns.length") == 1


def test_a_cut_answer_says_so_and_goes_on_with_the_same_words(tab):
    tab.evaluate("document.querySelector('#clear').click()")
    tab.evaluate("Jakiro.fillForm({ length: 20 })")
    tab.wait_for_function("Jakiro.formNow().length === 20")
    ask_to_end(tab, "Long?")
    tab.evaluate("Jakiro.fillForm({ length: 128 })")
    tab.wait_for_function("Jakiro.formNow().length === 128")
    first = tab.evaluate("document.querySelector('.answer-text').textContent")
    length = tab.evaluate("Jakiro.lane().header.sampling.max_new_tokens")
    assert tab.inner_text(".answer-end") == words.BROWSER["ended_length"].format(tokens=f"{length} tokens")
    tab.click('[data-action="go_on"]')
    tab.wait_for_function("most => Jakiro.lane().header.sampling.max_new_tokens === most", arg=length + 128)
    wait_until_finished(tab)
    full_text = tab.evaluate("document.querySelector('.answer-text').textContent")
    assert full_text.startswith(first) and len(full_text) > len(first)
    assert tab.evaluate("Jakiro.moves.state.turns.length") == 1


@pytest.mark.rare
def test_a_reload_keeps_answers_question_and_settings(tab, fake_address):
    tab.goto(fake_address)
    tab.wait_for_selector("#jk-chip.ready")
    tab.evaluate("Jakiro.newChat()")
    for question in ("First?", "Second?"):
        ask_to_end(tab, question)
    text = tab.inner_text(".answer-text")
    run = tab.get_attribute(".jk-view", "data-run")
    tab.evaluate("document.querySelector('#jk-settings').click()")
    tab.fill("#seed input", "7")
    tab.wait_for_function("Jakiro.formNow().seed === 7")
    tab.fill("#question textarea", "Not asked yet")
    tab.reload()
    tab.wait_for_function("run => document.querySelector('.jk-view')?.dataset.run === run", arg=run)
    assert tab.inner_text(".answer-text") == text
    assert tab.locator(".turn-question").all_inner_texts() == ["First?"]
    tab.wait_for_function("() => document.querySelector('#question textarea')?.value === 'Not asked yet'")
    tab.wait_for_function("() => document.querySelector('#seed input')?.value === '7'")
    tab.wait_for_selector("#jk-chip.ready")
    assert tab.is_hidden("#jk-notice"), "nothing was lost, and nothing is said to be"
    ask_to_end(tab, "Third?")
    assert sent(tab) == ["user", "assistant"] * 2 + ["user"]
    assert tab.evaluate("Jakiro.moves.state.run.main.header.sampling.seed") == 7
