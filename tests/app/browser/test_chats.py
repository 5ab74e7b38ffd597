"""Chats that lose nothing: a random walk over all actions, restarts of the browser, full disks, old chats."""

import json
import os
import random
import shutil
from itertools import pairwise

import pytest

from app.words import page as words
from tests.app.conftest import (
    BROWSERS,
    FLAGS,
    FORM_DRAWN,
    ask,
    ask_to_end,
    send,
    served,
    wait_for_frames,
    wait_until_finished,
)
from tests.app.fake import FakeGenerator, default_answer, traces_of
from tests.marks import rarely
from tests.server.served import PATIENCE, wait_until

pytestmark = pytest.mark.browser

UNLIMITED = {"answers_per_minute": 10**6, "answers_per_minute_address": 10**6, "requests_per_minute_address": 10**6}
# A complete check has 50 walks
NUM_WALKS = int(os.environ.get("JAKIRO_TEST_WALKS", "1"))
PATH = "Jakiro.state.turns.map(({ id }) => id)"
# All answers that the browser's database holds, by id
STORED = """async () => { await Jakiro.whenStored(); const all = {};
  for (const { id } of await Jakiro.storedChats())
    for (const turn of await Jakiro.storedTurns(id)) all[turn.id] = turn.answer;
  return all; }"""
# The finished answers in the open chat with the messages that lead to them, by id
SHOWN = """() => Object.fromEntries(Jakiro.turnsBelow(Jakiro.state.chat).filter((run) => run.finished).map((run) =>
  [run.id, { answer: run.answer, path: Jakiro.turnsUpTo(run).map((turn) => [turn.question, turn.answer]) }]))"""


class Recorder(FakeGenerator):
    """A fake generator that remembers the messages of every request."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.requests: list[list[str]] = []

    def race(self, messages, *arguments, **options):
        self.requests.append([message["content"] for message in messages])
        return super().race(messages, *arguments, **options)


class Walk:
    """A visitor that performs random actions; `check` compares page, database and server after each."""

    ACTIONS = (
        "ask", "ask", "ask", "empty", "rejected", "ask_again", "edit", "fork", "stop", "go_on", "reload", "new_chat",
        "wait",
    )  # fmt: skip

    def __init__(self, tab, blocks, generator, seed: int) -> None:
        self.tab, self.runs, self.generator = tab, blocks.runs, generator
        self.chance, self.count, self.seen = random.Random(seed), 0, {}
        self.log: list[str] = []

    def step(self) -> None:
        action = self.chance.choice(self.ACTIONS)
        self.log.append(action)
        getattr(self, action)()
        self.check(action)

    def pick(self) -> bool:
        """Choose a finished turn on screen as `window.turn`; return whether there is one."""
        script = """(place) => { const all = Jakiro.state.turns.filter((run) => run.finished);
          window.turn = all[Math.floor(place * all.length)]; return Boolean(window.turn); }"""
        return self.tab.evaluate(script, self.chance.random())

    def ask(self) -> None:
        self.count += 1
        send(self.tab, f"Question {self.count}?")

    def empty(self) -> None:
        self.tab.fill("#question textarea", "")
        self.tab.press("#question textarea", "Enter")

    def rejected(self) -> None:
        self.tab.evaluate("Jakiro.fillForm({ temperature: 5 })")
        self.tab.wait_for_function("Jakiro.formNow().temperature === 5")
        send(self.tab, "Too hot?")
        self.tab.wait_for_function("document.querySelector('#jk-notice.error')")
        self.tab.evaluate("Jakiro.fillForm({ temperature: 0 })")
        self.tab.wait_for_function("Jakiro.formNow().temperature === 0")

    def ask_again(self) -> None:
        if self.pick():
            self.tab.evaluate("void Jakiro.askAgain(turn)")

    def edit(self) -> None:
        if self.pick():
            self.tab.evaluate("Jakiro.edit(turn)")
            self.ask()

    def fork(self) -> None:
        if self.pick():
            place = self.chance.randrange(1, 8)
            fork = """async (place) => { const known = await Jakiro.loadSteps(turn);
              if (known && turn.main.tokens.length > place) Jakiro.goOnFrom(turn, place, 2000); }"""
            self.tab.evaluate(fork, place)

    def stop(self) -> None:
        if self.tab.is_visible("#stop"):
            self.tab.evaluate("document.querySelector('#stop').click()")

    def go_on(self) -> None:
        """Continue a cut or stopped answer, and check that the new text starts with the old one."""
        go = """async () => {
          if (!['length', 'stopped'].includes(turn.endReason) || !(await Jakiro.loadSteps(turn))) return null;
          await Jakiro.goOn(turn);
          await Jakiro.whenSent();
          return turn.answer; }"""
        if not self.pick() or (answer := self.tab.evaluate(go)) is None:
            return
        longer = """answer => turn.branches.some((run) => run !== turn && run.form['answer-prefix']
          && run.main && run.answer.startsWith(answer.replace(/\ufffd+$/, '')))"""
        self.tab.wait_for_function(longer, arg=answer)

    def reload(self) -> None:
        before = self.tab.evaluate(PATH)
        self.tab.reload()
        self.tab.wait_for_function(FORM_DRAWN)
        restored = f"before => {{ const now = {PATH}; return before.every((id, i) => now[i] === id); }}"
        self.tab.wait_for_function(restored, arg=before)

    def new_chat(self) -> None:
        self.tab.click("#clear")

    def wait(self) -> None:
        self.tab.wait_for_function("!Jakiro.state.open.size")

    def check(self, action: str) -> None:
        self.tab.evaluate("Jakiro.whenSent()")
        computing = lambda: any(not run.finished.is_set() for run in self.runs._of(None))  # noqa: E731

        def agree() -> bool:
            before = computing()
            return before == self.tab.is_visible("#stop") == computing()

        wait_until(agree)
        answers = self.tab.evaluate(SHOWN)
        for turn in answers.values():
            *earlier, (question, _) = turn["path"]
            messages = [text for pair in earlier for text in pair] + [question]
            assert messages in self.generator.requests, (action, self.log, messages)
        chat = self.tab.evaluate("Jakiro.state.chat.id")
        self.seen |= {run_id: (turn["answer"], chat) for run_id, turn in answers.items()}
        stored = self.tab.evaluate(STORED)
        for run_id, (answer, home) in self.seen.items():
            assert stored.get(run_id) == answer, (action, self.log)
            assert home != chat or run_id in answers, (action, self.log)


@pytest.fixture(scope="module")
def place():
    """Yield (generator, Blocks, address) of a page with a fast model and no rate limits."""
    generator = Recorder(pace=0.1)
    with served(lambda: generator, **UNLIMITED) as (blocks, address):
        yield generator, blocks, address


@pytest.fixture(scope="module")
def short_place():
    """Yield the same page with a small token limit: most answers are cut and can be continued."""
    generator = Recorder(pace=0.1)
    with served(lambda: generator, max_new_tokens=24, **UNLIMITED) as (blocks, address):
        yield generator, blocks, address


def walk(open_tab, place, seed: int, num_actions: int) -> Walk:
    generator, blocks, address = place
    tab = open_tab(address, reduced_motion="reduce")
    tab.wait_for_selector("#jk-chip.ready")
    tab.evaluate("Jakiro.deleteEverything()")
    visitor = Walk(tab, blocks, generator, seed)
    for _ in range(num_actions):
        visitor.step()
    return visitor


@pytest.mark.parametrize("seed", [0, rarely(1)])
def test_no_answer_is_lost_whatever_a_visitor_does(open_tab, short_place, seed):
    assert walk(open_tab, short_place, seed, 30).seen


@pytest.mark.rare
@pytest.mark.parametrize("seed", range(100, 100 + NUM_WALKS))
def test_no_answer_is_lost_in_200_actions(open_tab, short_place, seed):
    assert walk(open_tab, short_place, seed, 200).seen


@pytest.fixture
def tab(open_tab, place):
    tab = open_tab(place[2], reduced_motion="reduce")
    tab.wait_for_selector("#jk-chip.ready")
    return tab


def test_an_empty_or_rejected_question_does_not_end_the_answer_before_it(open_tab):
    with served(lambda: FakeGenerator(default_answer() * 8, pace=3), **UNLIMITED) as (blocks, address):
        tab = open_tab(address)
        tab.evaluate("Jakiro.fillForm({ length: 400 })")
        ask(tab, "Long?")
        (run,) = blocks.runs._of(None)
        tab.press("#question textarea", "Enter")
        assert tab.inner_text("#jk-notice").endswith(words.EMPTY_QUESTION)
        tab.evaluate("Jakiro.fillForm({ top_p: 7, 'top-p': 7 })")
        tab.wait_for_function("Jakiro.formNow()['top-p'] === 7")
        send(tab, "Rejected?")
        tab.wait_for_function("document.querySelector('#jk-notice')?.textContent.includes('7')")
        assert tab.input_value("#question textarea") == "Rejected?"
        assert tab.is_visible("#stop") and not run.finished.is_set()
        assert not tab.evaluate("Jakiro.state.run.finished") and not tab.text_content(".answer-end")
        tab.click("#stop")
        wait_until_finished(tab)
        assert run.finished.wait(PATIENCE) and tab.is_hidden("#stop")


def test_a_question_is_sent_although_the_browser_calls_itself_offline(tab):
    tab.evaluate("Object.defineProperty(navigator, 'onLine', { get: () => false })")
    tab.evaluate("dispatchEvent(new Event('offline'))")
    ask_to_end(tab, "Without Wi-Fi?")
    assert tab.is_hidden("#jk-notice")


def test_a_cut_and_a_stopped_answer_continue_beyond_the_servers_length(open_tab):
    generator = FakeGenerator()
    with served(lambda: generator, max_new_tokens=16, **UNLIMITED) as (_, address):
        tab = open_tab(address)
        tab.wait_for_function("Jakiro.formNow()?.length === 16")
        ask_to_end(tab, "Cut?")
        first = tab.evaluate("Jakiro.state.run.answer")
        generator.pace = 20
        tab.click('.shown [data-action="go_on"]')
        tab.wait_for_function("Jakiro.state.run.branches.length === 2")
        tab.click("#stop")
        generator.pace = 0
        wait_until_finished(tab)
        longer = tab.evaluate("Jakiro.state.run.answer")
        assert longer.startswith(first) and tab.is_hidden("#jk-notice")
        tab.click('.shown [data-action="go_on"]')
        tab.wait_for_function("Jakiro.state.run.branches.length === 3")
        wait_until_finished(tab)
        assert tab.evaluate("Jakiro.state.run.answer").startswith(longer)
        assert len(tab.evaluate("Jakiro.state.run.answer")) > len(longer)


def test_another_answer_and_an_edit_keep_what_was_there(tab):
    for question in ("First?", "Second?"):
        ask_to_end(tab, question)
    before = tab.evaluate(PATH)
    tab.click('.turn [data-action="ask_again"] >> nth=0')
    tab.wait_for_function("Jakiro.state.turns[0].branches.length === 2 && Jakiro.state.turns[0].finished")
    assert tab.evaluate("Jakiro.state.turns.length") == 1
    tab.click('[data-action="edit"]')
    ask_to_end(tab, "First, edited?")
    assert tab.evaluate("Jakiro.state.turns[0].branches.map((run) => run.question)") == [
        "First?", "First?", "First, edited?",
    ]  # fmt: skip
    for _ in range(2):
        tab.click('[data-action="branch_before"]:visible')
        wait_for_frames(tab)
    tab.wait_for_function(f"before => JSON.stringify({PATH}) === JSON.stringify(before)", arg=before)


def test_the_drawer_lists_chats_and_renames_and_deletes_them(tab):
    tab.evaluate("Jakiro.deleteEverything()")
    tab.click("#clear")
    for question in ("Apples?", "Pears?"):
        ask_to_end(tab, question)
        tab.click("#clear")
    tab.click("#jk-show-chats")
    names = tab.locator(".chats-open")
    tab.wait_for_function("document.querySelectorAll('.chats-open').length === 2")
    assert names.all_inner_texts() == ["Pears?", "Apples?"]
    # Escape closes the menu of a chat, not the drawer
    tab.click(".chats-entry >> nth=1 >> summary")
    box = tab.locator(".chats-entry").last.bounding_box()
    assert box["height"] <= 64, "two lines"
    assert tab.locator(".chats-menu[open] button").all_inner_texts() == ["Rename", "Markdown", "JSON", "Delete"]
    tab.keyboard.press("Escape")
    tab.wait_for_selector(".chats-menu[open]", state="detached")
    assert tab.is_visible(".chats") and tab.evaluate("document.activeElement.matches('.chats-menu summary')")
    tab.click(".chats-entry >> nth=0 >> summary")
    tab.click('.chats-entry >> nth=0 >> [data-action="rename"]')
    tab.fill(".chats-entry input", "Fruit")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".chats-open:has-text('Fruit')")
    tab.click(".chats-entry >> nth=0 >> summary")
    with tab.expect_download() as download:
        tab.click('.chats-entry >> nth=0 >> [data-action="export_markdown"]')
    text = download.value.path().read_text(encoding="utf-8")
    assert text.startswith("# Fruit\n\n**You:** Pears?\n\nThe sky is blue")
    with tab.expect_download() as download:
        tab.click('.chats-entry >> nth=0 >> [data-action="export_json"]')
    exported = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert exported["version"] == 1 and exported["turns"][0]["traces"]["jakiro"]["steps"]
    tab.keyboard.press("Escape")
    tab.click(".chats-entry >> nth=1 >> summary")
    tab.click('.chats-entry >> nth=1 >> [data-action="delete_chat"]')
    tab.click('.chats-entry >> nth=1 >> [data-action="delete_chat"]')
    tab.wait_for_function("document.querySelectorAll('.chats-open').length === 1")
    tab.click(".chats-open")
    tab.wait_for_function("Jakiro.state.turns[0]?.question === 'Pears?'")
    tab.wait_for_selector(".chat-title:text-is('Fruit')")


@pytest.mark.rare
def test_sixty_turns_survive_a_restart_of_the_browser(browser, place, tmp_path):
    path = next(executable for name in BROWSERS if (executable := shutil.which(name)))
    options = {"executable_path": path, "args": FLAGS.split()}
    fill = """async ([traces, count]) => { const chat = Jakiro.state.chat;
      for (let i = 0; i < count; i += 1) {
        const run = Jakiro.runFromTraces(Jakiro.newId(), 'live', structuredClone(traces));
        run.created = i + 1; run.main.header.messages[0].content = `Question ${i}?`;
        Jakiro.addTurn(chat.leaf, run); Jakiro.saveTurn(run); }
      await Jakiro.whenStored();
      return chat.path.map((run) => [run.question, run.answer]); }"""

    def browse(work):
        context = browser.browser_type.launch_persistent_context(tmp_path, **options)
        tab = context.pages[0]
        tab.goto(place[2])
        tab.wait_for_function(FORM_DRAWN)
        result = work(tab)
        context.close()
        return result

    def read(tab):
        tab.click("#jk-show-chats")
        tab.click(".chats-open")
        tab.wait_for_function("Jakiro.state.turns.length === 60 && Jakiro.state.run?.main?.steps.length")
        assert tab.evaluate("Jakiro.state.run.main.steps[0].nodes.length") == 24
        tab.click('[data-action="show_turn"] >> nth=3')
        tab.wait_for_function("Jakiro.state.run === Jakiro.state.turns[3] && Jakiro.state.run.main")
        return tab.evaluate("Jakiro.state.turns.map((run) => [run.question, run.answer])")

    traces = traces_of(nodes=24)
    written = browse(lambda tab: tab.evaluate(fill, [traces, 60]))
    assert len(written) == 60 and browse(read) == written


def test_a_full_disk_drops_steps_and_keeps_every_text(tab):
    tab.evaluate(
        """() => { const put = IDBObjectStore.prototype.put;
      IDBObjectStore.prototype.put = function (record, ...rest) {
        if (this.name === 'traces') throw new DOMException('full', 'QuotaExceededError');
        return put.call(this, record, ...rest); }; }"""
    )
    tab.click("#clear")
    ask_to_end(tab, "Full?")
    tab.wait_for_selector(f"#jk-notice:has-text('{words.BROWSER['traces_dropped'][:40]}')")
    tab.reload()
    tab.wait_for_selector('.turn-question:has-text("Full?")')
    assert tab.inner_text(".turn-text").startswith("The sky is blue")


def test_without_a_database_chats_stay_in_memory_and_the_page_says_so(open_tab, place):
    tab = open_tab(None)
    tab.add_init_script("indexedDB.open = () => { throw new DOMException('private', 'SecurityError'); }")
    tab.goto(place[2])
    tab.wait_for_function(FORM_DRAWN)
    ask_to_end(tab, "Private?")
    tab.wait_for_selector(f"#jk-notice:has-text('{words.BROWSER['chats_in_memory'][:30]}')")
    tab.click("#clear")
    tab.click("#jk-show-chats")
    tab.click(".chats-open")
    tab.wait_for_function("Jakiro.state.turns[0]?.question === 'Private?'")


@pytest.mark.rare
def test_a_chat_of_release_0_10_is_imported(open_tab, place):
    tab = open_tab(place[2])
    traces = traces_of()
    turn = lambda name, tail=(): {"id": name * 32, "form": {"seed": 0}, "traces": traces, "tail": list(tail)}  # noqa: E731
    later = {"branches": [turn("c")], "shown": 0}
    old = {"runs": [{"branches": [turn("a", [later]), turn("b")], "shown": 1}], "left": 0, "writing": None}
    tab.evaluate("old => sessionStorage.setItem('jakiro-chat', old)", json.dumps(old))
    tab.evaluate("sessionStorage.removeItem('jakiro-visit')")
    tab.reload()
    tab.wait_for_function(f"JSON.stringify({PATH}) === '[\"{'b' * 32}\"]'")
    tab.click('[data-action="branch_before"]:visible')
    tab.wait_for_function(f"{PATH}.length === 2")
    assert set(tab.evaluate(STORED)) >= {name * 32 for name in "abc"}


@pytest.mark.rare
def test_a_text_that_is_scrolled_up_stays_and_a_button_leads_to_its_end(open_tab):
    with served(lambda: FakeGenerator(default_answer() * 8, pace=1.0), **UNLIMITED) as (_, address):
        tab = open_tab(address, viewport={"width": 1200, "height": 700})
        tab.evaluate("Jakiro.fillForm({ length: 500 })")
        tab.wait_for_function("Jakiro.formNow().length === 500")
        ask(tab, "Long?")
        scrolls = "((box) => box.scrollHeight - box.clientHeight)(document.querySelector('#jk-answer'))"
        tab.wait_for_function(f"{scrolls} > 200")
        tab.evaluate("document.querySelector('#jk-answer').scrollTop = 20")
        tab.wait_for_selector(".newest:visible")
        height = tab.evaluate(scrolls)
        tab.wait_for_function(f"height => {scrolls} > height + 40", arg=height)
        assert tab.evaluate("document.querySelector('#jk-answer').scrollTop") == 20
        tab.click(".newest")
        tab.wait_for_selector(".newest", state="hidden")
        tab.wait_for_function("document.querySelector('#jk-answer').scrollTop > 100")
        tab.evaluate("document.querySelector('#jk-answer').scrollTop = 20")
        wait_for_frames(tab)
        tab.click("#stop")
        wait_until_finished(tab)
        assert tab.evaluate("document.querySelector('#jk-answer').scrollTop") == 20, "nothing scrolls at the end"


def test_only_a_single_click_on_a_finished_answer_opens_the_card_of_a_word(tab):
    tab.click("#clear")
    ask_to_end(tab, "Why?")
    word = '#jk-answer .answer-host [data-token="3"]'
    tab.dblclick(word)
    tab.wait_for_timeout(400)
    assert not tab.locator(".alternatives:popover-open").count()
    tab.evaluate("getSelection().removeAllRanges()")
    tab.click(word)
    tab.wait_for_selector(".alternatives:popover-open")


@pytest.mark.rare
def test_a_chat_that_is_too_long_leaves_out_its_oldest_turns_on_request(open_tab):
    with served(lambda: FakeGenerator(), max_prompt_characters=1200, max_prompt_tokens=200, **UNLIMITED) as (
        _,
        address,
    ):
        tab = open_tab(address, reduced_motion="reduce")
        for question in ("First?", "Second?", "Third?"):
            ask_to_end(tab, question)
        assert tab.inner_text(".meter").startswith("109 of 200 tokens")
        tab.wait_for_selector("#jk-chip.ready")
        send(tab, "Fourth? " + "word " * 20)
        tab.wait_for_selector('#jk-notice [data-action="leave_out"]')
        assert tab.input_value("#question textarea").startswith("Fourth?")
        tab.click('#jk-notice [data-action="leave_out"]')
        tab.wait_for_function("Jakiro.state.turns.length === 4")
        wait_until_finished(tab)
        sent = tab.evaluate("Jakiro.state.run.main.header.messages.map((message) => message.content)")
        assert sent[0] in ("Second?", "Third?") and sent[-1].startswith("Fourth?")
        assert "Your next question leaves out" in tab.inner_text("#jk-chat")


@pytest.mark.rare
def test_copy_says_whether_it_worked(open_tab, place):
    tab = open_tab(place[2])
    ask_to_end(tab, "Why?")
    # `void` because Playwright calls an expression's value if it is a function
    tab.evaluate("document.execCommand = () => false; void (navigator.clipboard.writeText = () => Promise.reject())")
    tab.click('.shown [data-action="copy_answer"]')
    tab.wait_for_selector(f".shown :text-is('{words.BROWSER['copy_failed']}')")
    tab.evaluate("void (navigator.clipboard.writeText = async (text) => { window.copiedText = text; })")
    tab.wait_for_selector(f".shown :text-is('{words.BROWSER['copy_answer']}')")
    tab.click('.shown [data-action="copy_answer"]')
    tab.wait_for_selector(f".shown :text-is('{words.BROWSER['copy_done']}')")
    assert tab.evaluate("window.copiedText").startswith("The sky is blue")


@pytest.mark.rare
def test_the_pace_does_not_resume_what_is_paused_and_slow_stays_slow(tab):
    tab.click("#clear")
    ask_to_end(tab, "Why?")
    tab.evaluate("Jakiro.moves.seek(2)")
    tab.evaluate("Jakiro.moves.setPace('normal')")
    assert not tab.evaluate("Jakiro.state.playing")
    tab.evaluate("Jakiro.moves.setPace('slow'); Jakiro.moves.seek(0); Jakiro.moves.play(true)")
    times = """async () => { const at = []; let last = -1;
      while (at.length < 7) { await new Promise(requestAnimationFrame);
        if (Jakiro.state.index !== last) { last = Jakiro.state.index; at.push(performance.now()); } }
      return at; }"""
    at = tab.evaluate(times)
    assert min(later - earlier for earlier, later in pairwise(at[1:])) > 2500


@pytest.mark.rare
def test_stop_keeps_its_place_while_a_question_is_typed(open_tab):
    with served(lambda: FakeGenerator(default_answer() * 8, pace=3), **UNLIMITED) as (_, address):
        tab = open_tab(address)
        tab.evaluate("Jakiro.fillForm({ length: 400 })")
        ask(tab, "Long?")
        place = tab.locator("#stop").bounding_box()
        tab.fill("#question textarea", "And then?")
        wait_for_frames(tab)
        assert tab.locator("#stop").bounding_box() == place and tab.is_visible("#ask")
        tab.click("#ask")
        tab.wait_for_function("Jakiro.state.turns.length === 2 && Jakiro.state.turns[0].finished")
        assert tab.evaluate("Jakiro.state.turns[0].endReason") == "stopped", "the first answer is kept as far as it got"


@pytest.mark.rare
def test_no_folder_of_the_server_is_shown_or_shared(open_tab):
    with served(lambda: FakeGenerator(target="/srv/secret/models/Model-7B"), **UNLIMITED) as (_, address):
        tab = open_tab(address, reduced_motion="reduce")
        ask_to_end(tab, "Why?")
        tab.click("#jk-settings")
        tab.evaluate("document.querySelector('.jk-pairs details').open = true")
        assert tab.inner_text("#jk-chip").startswith("Model-7B")
        link = tab.evaluate("Jakiro.linkTo(Jakiro.state).link")
        text = tab.evaluate("document.documentElement.outerHTML + JSON.stringify(Jakiro.state.run.main.header)")
        assert "secret" not in text and "secret" not in link and "Model-7B" in link
