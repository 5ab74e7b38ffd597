"""Reading an answer: tour of the first one, folded thoughts, code colours, replay links, title and style of a host."""

import json
from itertools import pairwise

import pytest

from app.page.offered import Appearance
from app.page.web import head
from app.words import page as words
from tests.app.conftest import (
    FORM_DRAWN,
    ask_to_end,
    served,
    set_option,
    show,
    wait_for_frames,
    wait_until_finished,
)
from tests.app.fake import FakeGenerator, traces_of
from tests.server.served import PATIENCE

pytestmark = pytest.mark.browser

THINKING = "<think>\nThe user greets me.\n\n- I greet back.\n</think>\n\nHello there! How are you?"
CODE = 'Run this:\n\n```python\ndef twice(text):\n    return text * 2  # "again"\n```\n\nDone.'
TEXT = "document.querySelector('.answer-text').textContent"


def pieces_of(text: str) -> list[bytes]:
    """Return tokens of three characters, which do not end at word boundaries."""
    return [text[i : i + 3].encode() for i in range(0, len(text), 3)]


@pytest.mark.rare
def test_the_first_answer_of_a_visit_plays_its_three_best_steps_once(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.evaluate(
        """() => { window.moments = [];
        const look = () => { const { state } = Jakiro;
          if (state.tour && state.playing) window.moments.push([state.index, state.phase, performance.now(),
            document.querySelectorAll('.answer-text .later').length]);
          requestAnimationFrame(look); };
        look(); }"""
    )
    ask_to_end(tab, "Why?")
    tab.wait_for_function("Jakiro.state.tour")
    tab.wait_for_function("!Jakiro.state.tour", timeout=1000 * PATIENCE)
    moments = tab.evaluate("window.moments")
    steps = list(dict.fromkeys(index for index, *_ in moments))
    assert len(steps) == 3 and steps == sorted(steps)
    assert [phase for phase in dict.fromkeys((index, phase) for index, phase, *_ in moments)] == [
        (step, phase) for step in steps for phase in (1, 2, 3)
    ]
    first = {}
    for index, phase, now, _ in moments:
        first.setdefault((index, phase), now)
    assert min(later - earlier for earlier, later in pairwise(first.values())) > 600, "slow"
    later = [count for index, _, _, count in moments if index == steps[0]]
    assert min(later[1:]) > 0, "words to come are grey"
    tab.wait_for_function("!document.querySelector('.answer-text .later')")
    tab.evaluate("window.moments = []")
    ask_to_end(tab, "And now?")
    tab.wait_for_timeout(1500)
    assert tab.evaluate("window.moments") == []


@pytest.mark.parametrize("count", [14, None])
def test_thoughts_of_a_model_are_open_while_they_grow_and_then_folded(modules, count):
    traces = traces_of(pieces_of(THINKING))
    show(modules, {"jakiro": traces["jakiro"]}, step=0)
    wait_for_frames(modules)
    draw = """count => { const view = Jakiro.screen.parts.answer, lane = Jakiro.lane();
      view.draw(lane, count ?? lane.tokens.length, { live: count !== null, formatted: true }); }"""
    for num_tokens in (5, 10, count):
        modules.evaluate(draw, num_tokens)
    assert modules.locator(".thoughts").count() == 1
    assert modules.evaluate("document.querySelector('.thoughts').open") == (count is not None)
    assert modules.evaluate(TEXT) == THINKING[: 3 * count if count else None]
    if count is None:
        assert modules.is_visible(".answer-text > p:has-text('Hello there!')")
        assert modules.is_hidden(".thoughts li")
        modules.click(".thoughts summary")
        assert modules.is_visible(".thoughts li:has-text('I greet back.')")


def test_code_has_colours_and_every_character(modules):
    show(modules, {"jakiro": traces_of(pieces_of(CODE))["jakiro"]}, step=0)
    modules.wait_for_selector(".code-box")
    modules.evaluate("Jakiro.moves.seek(Infinity)")
    coloured = "(kind) => [...document.querySelectorAll(`.syntax-${kind}`)].map((one) => one.textContent).join('|')"
    for kind, text in {"keyword": "def|return", "number": "2", "comment": '# "again"'}.items():
        assert modules.evaluate(coloured, kind) == text
    assert modules.inner_text(".code-box pre").strip() == 'def twice(text):\n    return text * 2  # "again"'
    assert modules.evaluate(TEXT) == CODE
    colours = modules.evaluate(
        "['keyword', 'comment'].map((kind) => getComputedStyle(document.querySelector(`.syntax-${kind}`)).color)"
    )
    assert len(set(colours)) == 2


def test_marks_can_be_hidden(modules):
    show(modules, traces_of(), step=0)
    lines = "[...document.querySelectorAll('.answer-text u')].map((one) => getComputedStyle(one).textDecorationLine)"
    assert "underline" in modules.evaluate(lines)
    set_option(modules, "no_marks")
    wait_for_frames(modules)
    assert set(modules.evaluate(lines)) == {"none"}


@pytest.mark.rare
def test_a_link_plays_this_answer_here_and_for_a_while_elsewhere(open_tab, fake_address):
    tab = open_tab(fake_address, reduced_motion="reduce")
    ask_to_end(tab, "Why?")
    link = tab.evaluate("Jakiro.replayLink(Jakiro.state).link")
    text, run = tab.evaluate(f"[{TEXT}, Jakiro.state.run.id]")
    assert link.endswith(f"#answer={run}")
    elsewhere = open_tab(link, reduced_motion="reduce")
    elsewhere.wait_for_selector(f'.jk-view[data-run="answer-{run}"]')
    assert elsewhere.evaluate(TEXT) == text and elsewhere.is_hidden("#jk-notice")
    unknown = open_tab(link.replace(run, "f" * 32), reduced_motion="reduce")
    unknown.wait_for_selector(f"#jk-notice:has-text('{words.BROWSER['link_gone']}')")
    unknown.wait_for_selector('.jk-view[data-run^="recording-"]')


@pytest.mark.rare
def test_recommended_settings_are_a_press_away_and_the_notice_does_not_return(open_tab):
    class Recommending(FakeGenerator):
        @property
        def status(self):
            return super().status | {
                "notices": ["The model recommends temperature 0.7."],
                "makers_settings": {"temperature": 0.7, "repetition_penalty": 1.1},
            }

    with served(Recommending) as (_, address):
        tab = open_tab(address)
        tab.wait_for_selector('#jk-notice [data-action="recommended"]')
        tab.click('#jk-notice [data-action="recommended"]')
        tab.wait_for_function("Jakiro.formNow().temperature === 0.7 && Jakiro.formNow()['repetition-penalty'] === 1.1")
        assert tab.is_hidden("#jk-notice")
        tab.click("#jk-settings")
        tab.wait_for_selector("#reset-settings:has-text('2 changed')")
        tab.click("#reset-settings")
        tab.wait_for_function("Jakiro.formNow().temperature === 0 && Jakiro.formNow()['repetition-penalty'] === 1")
        tab.reload()
        tab.wait_for_function(FORM_DRAWN)
        tab.wait_for_selector("#jk-chip.ready")
        wait_for_frames(tab)
        assert tab.is_hidden("#jk-notice")
        tab.evaluate("localStorage.clear()")


@pytest.mark.rare
def test_the_page_has_one_set_of_preview_tags_and_its_own_language(open_tab, fake_address):
    tab = open_tab(fake_address, locale="de-DE")
    response = tab.request.get(fake_address).text()
    assert response.count('property="og:title"') == 1 and 'content="Jakiro"' in response
    assert "Gradio" not in response.split("<script", 1)[0] and "og:image" not in response
    assert tab.evaluate("document.documentElement.lang") == "en"


def test_a_title_is_never_empty_and_no_joined_emoji_is_cut(modules):
    title = "question => Jakiro.titleOf({ title: '', children: [{ question }] })"
    assert modules.evaluate(title, "\u200b") == words.BROWSER["untitled"]
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    cut = modules.evaluate(title, family * 100)
    assert cut == family * 79 + "…"


def test_a_host_gives_the_page_its_title_questions_and_style(open_tab, tmp_path):
    (tmp_path / "questions.txt").write_text("What is art?\n\nWhat is time?\n", encoding="utf-8")
    (tmp_path / "own.css").write_text(".jk-header { background: rgb(1, 2, 3) }", encoding="utf-8")
    appearance = Appearance.read("Our demo", tmp_path / "questions.txt", tmp_path / "own.css")
    with served(FakeGenerator, appearance=appearance) as (_, address):
        tab = open_tab(address)
        assert tab.inner_text(".jk-header h1") == "Our demo" == tab.title()
        assert tab.locator("#examples button").all_text_contents() == ["What is art?", "What is time?"]
        colour = "getComputedStyle(document.querySelector('.jk-header')).backgroundColor"
        assert tab.evaluate(colour) == "rgb(1, 2, 3)"


def test_title_questions_and_style_of_a_host_are_checked_and_stay_in_their_elements(tmp_path):
    (tmp_path / "empty.txt").write_text("\n", encoding="utf-8")
    with pytest.raises(ValueError, match="one question a line"):
        Appearance.read(None, tmp_path / "empty.txt", None)
    with pytest.raises(ValueError, match="--title"):
        Appearance.read(" ", None, None)
    style = "</style><script>alert(1)</script>"
    assert head(host_style=style).count("</style>") == head().count("</style>")


@pytest.mark.rare
def test_a_chat_can_be_exported_where_it_is_read(open_tab, fake_address):
    tab = open_tab(fake_address, reduced_motion="reduce")
    ask_to_end(tab, "Why?")
    wait_until_finished(tab)
    tab.click("#jk-show-chats")
    tab.click(".chats-entry >> nth=0 >> summary")
    with tab.expect_download() as download:
        tab.click('.chats-entry >> nth=0 >> [data-action="export_json"]')
    exported = json.loads(download.value.path().read_text(encoding="utf-8"))
    assert exported["turns"][0]["question"] == "Why?"


def test_the_menu_leads_to_the_api(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.evaluate("document.querySelector('.page-menu').open = true")
    tab.click('.page-menu [data-action="api"]')
    tab.wait_for_selector(":text('/generate')")
