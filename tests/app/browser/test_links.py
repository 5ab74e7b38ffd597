"""Links: the content of a copied link, the effect of an opened one, and the refusal of a bad one."""

from unittest import mock
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from app.page import web
from app.words import page as words
from tests.app.conftest import FORM_DRAWN, ask_to_end, served, wait_until_finished
from tests.app.fake import FakeGenerator
from tests.marks import often

pytestmark = pytest.mark.browser

QUESTION = "Why is 1 + 1 = 2 & not <b>3</b>? 100 % sure, “naïve” 🌍 #tab=race"


@pytest.fixture(scope="module")
def other_address():
    with served(lambda: FakeGenerator(target="Other-1B"), max_new_tokens=300) as (_, address):
        yield address


def press_copy(tab) -> None:
    tab.evaluate("document.querySelector('.page-menu').open = true")
    tab.click('[data-action="copy_link"]:visible')


def copied(tab) -> str:
    """Return the link that "Copy link" of the visible tab puts on the clipboard."""
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    # Remove the status of an earlier copy
    tab.evaluate("document.querySelectorAll('.copy-status').forEach((line) => line.replaceChildren())")
    press_copy(tab)
    tab.wait_for_function("() => [...document.querySelectorAll('.copy-status')].some(line => line.textContent)")
    return tab.evaluate("navigator.clipboard.readText()")


def said(tab) -> str:
    return tab.inner_text(".copy-status:visible")


def settle(tab) -> None:
    tab.wait_for_selector("#jk-chip.ready")
    tab.wait_for_selector("svg.tree")
    tab.wait_for_function(FORM_DRAWN)


def opened(open_tab, address: str, link: str, **options):
    """Open a link of another address on this page; return the tab and the bodies of its answer requests."""
    tab = open_tab(None, **options)
    requests = []
    tab.on("request", lambda request: requests.append(request.post_data) if "queue/join" in request.url else None)
    parts = urlsplit(link)
    tab.goto(f"{address}{'?' + parts.query if parts.query else ''}{'#' + parts.fragment if parts.fragment else ''}")
    return tab, requests


@pytest.mark.rare
def test_a_copied_link_fills_the_same_form_elsewhere_and_asks_nothing_by_itself(open_tab, fake_address, other_address):
    tab = open_tab(fake_address)
    settle(tab)
    tab.click("#jk-settings")
    numbers = {"temperature": "0.7", "top-p": "0.9", "top-k": "40", "seed": "7", "length": "12", "min-p": "0.05"}
    numbers |= {"repetition-penalty": "1.1", "no-repeat-ngram-size": "4", "system-prompt": "Be brief.\nBe kind."}
    for name, value in (numbers | {"template-arguments": '{"enable_thinking":false,"note":"& = #"}'}).items():
        tab.fill(f"#{name} :is(input, textarea)", value)
    tab.click("#answer-as input")
    tab.get_by_role("option", name="One of these texts").click()
    tab.fill("#answer-form textarea", "yes\nno & never")
    tab.get_by_label(words.BIAS).fill("7=2.5,42=-5")
    tab.get_by_label(words.SUPPRESSED).fill("3,9")
    tab.get_by_label("Fixed").check()
    tab.wait_for_selector("#candidates input:enabled")
    tab.fill("#candidates input", "9")
    tab.fill("#levels input", "3")
    tab.get_by_label("Fast", exact=True).check()
    tab.click("#close-settings")
    ask_to_end(tab, QUESTION)
    tab.click('[data-tab="race"]')
    link = copied(tab)
    assert said(tab) == words.BROWSER["link_copied_question"]
    form = tab.evaluate("Jakiro.formNow()")
    assert (form["temperature"], form["suppress-tokens"]) == (0.7, "3,9")

    linked, requests = opened(open_tab, other_address, link)
    linked.wait_for_selector("#jk-chip.ready")
    linked.wait_for_function(FORM_DRAWN)
    filled = "question => document.querySelector('#question textarea')?.value === question"
    linked.wait_for_function(filled, arg=QUESTION)
    holds = "form => Object.entries(Jakiro.formNow()).every(([name, value]) => `${value}` === `${form[name]}`)"
    linked.wait_for_function(holds, arg=form)
    linked.wait_for_selector('.jk-view[data-tab="race"]')
    linked.wait_for_selector("#jk-notice:visible")
    notice = linked.inner_text("#jk-notice")
    assert words.BROWSER["link_ready"] in notice and "Other-1B" in notice and "Fake-135M" in notice
    linked.wait_for_function("location.hash === '#tab=race'")
    assert not any("Be brief" in (body or "") for body in requests)
    linked.click("#ask")
    linked.wait_for_selector('.jk-view[data-run]:not([data-run^="recording"])')
    wait_until_finished(linked)
    assert sum("Be brief" in (body or "") for body in requests) == 1
    headers = [page.evaluate("Jakiro.moves.state.run.main.header") for page in (tab, linked)]
    for name in ("messages", "sampling", "tree", "method", "numerics"):
        assert headers[0][name] == headers[1][name]
    lanes = [page.evaluate("Object.keys(Jakiro.moves.state.run.lanes)") for page in (tab, linked)]
    assert lanes[0] == lanes[1]
    assert headers[0]["sampling"]["grammar"] == {"kind": "choice", "source": ["yes", "no & never"]}
    assert "presence" not in link and "frequency" not in link
    # The card of a candidate names the grammar that rejected it
    linked.click('[data-tab="watch"]')
    forbidden = linked.evaluate("Jakiro.state.run.main.steps[Jakiro.state.index].nodes.map(one => one.forbidden_by)")
    assert None in forbidden
    linked.dispatch_event(f'svg.tree [data-node="{forbidden.index("grammar")}"]', "click")
    assert words.BROWSER["why_grammar"] in linked.inner_text(".jk-card")


@pytest.mark.rare
def test_the_chat_is_not_in_a_link_and_a_linked_question_starts_a_new_one(open_tab, fake_address):
    tab = open_tab(fake_address)
    for question in ("First secret?", "Second?"):
        ask_to_end(tab, question)
    link = copied(tab)
    assert said(tab) == words.BROWSER["link_copied_last"]
    assert parse_qs(urlsplit(link).fragment)["question"] == ["Second?"] and "secret" not in link
    assert not urlsplit(link).query
    tab.evaluate("link => { location.hash = new URL(link).hash }", link.replace("Second", "Third"))
    tab.wait_for_function("() => document.querySelector('#question textarea')?.value === 'Third?'")
    tab.wait_for_selector(f'#jk-chat:has-text("{words.BROWSER["chat_put_away"]}")')
    assert tab.evaluate("Jakiro.sentTurns(Jakiro.parentOfNext(Jakiro.state)).length") == 0


@pytest.mark.rare
def test_tabs_stops_and_steps_of_recordings_have_links_and_back_returns_to_the_tab_of_before(open_tab, fake_address):
    tab = open_tab(fake_address)
    settle(tab)
    for name in ("race", "recordings", "benchmark"):
        tab.click(f'[role="tab"][data-tab="{name}"]')
        tab.wait_for_function("hash => location.hash === hash", arg=f"#tab={name}")
    address = tab.url
    for name in ("recordings", "race", "watch"):
        tab.go_back()
        tab.wait_for_function("name => document.body.dataset.jakiroTab === name", arg=name)
    again, _ = opened(open_tab, fake_address, address)
    for name in ("benchmark", "race", "recordings"):
        # The first link opens the page, the others change its fragment
        if name != "benchmark":
            again.evaluate("name => { location.hash = `tab=${name}`; }", name)
        again.wait_for_function("name => document.body.dataset.jakiroTab === name", arg=name)
    again.close()
    tab.click('[role="tab"][data-tab="lesson"]')
    tab.click('.stop-title[data-stop="5"]')
    link = copied(tab)
    assert urlsplit(link).fragment == "stop-5" and said(tab) == words.BROWSER["link_copied_stop"].format(n=5)
    for address in (link, "http://x/?stop=5"):
        again, _ = opened(open_tab, fake_address, address)
        again.wait_for_selector('.stop[data-stop="5"]')
        again.close()

    name = web.recording_names()[1]
    tab.click('[role="tab"][data-tab="recordings"]')
    tab.locator(".recording-card").nth(1).get_by_role("button", name=words.BROWSER["play"]).click()
    # A recording starts to play shortly after it is shown, which would undo an earlier seek
    tab.wait_for_selector(f'.jk-view[data-run="recording-{name}"] svg.tree')
    tab.wait_for_function("() => Jakiro.moves.state.playing")
    tab.evaluate("Jakiro.moves.seek(2)")
    tab.wait_for_selector('svg.tree[data-step="2"]')
    link = copied(tab)
    assert parse_qs(urlsplit(link).query) == {"recording": [name], "step": ["3"]}
    again, _ = opened(open_tab, fake_address, link)
    again.wait_for_selector('svg.tree[data-step="2"]')
    assert again.get_attribute(".jk-view", "data-run") == f"recording-{name}"


# A changed fragment keeps the page open; a changed query loads it
BAD = [
    ("?#" + urlencode({"question": "Why?", "temperature": "3"}), "Temperature must be between 0 and 2; got 3."),
    ("#" + urlencode({"question": "Why?", "length": "301"}), "300"),
    ("#" + urlencode({"question": "Why?", "further-lanes": "medusa,__proto__"}), "__proto__"),
    ("#" + urlencode({"question": "Why?", "alongside": "1", "numerics": "<img src=x onerror=window.ran=1>"}), "<img"),
    ("#" + urlencode({"question": " "}), words.EMPTY_QUESTION),
    ("#seed=3", "It has settings but no question."),
    ("#" + urlencode({"question": "Why?", "__proto__": "x", "constructor": "y"}), "“\u2068__proto__\u2069”"),
    (
        "#" + urlencode({"question": "Why?", "<script>window.ran=2</script>\u202e": "x"}),
        "<script>window.ran=2</script>�",
    ),
    ("#" + urlencode({"question": "w" * 8000}), "It has 8,009 characters; the limit is 8,000."),
    ("#tab=<svg onload=window.ran=3>", "There is no tab"),
    ("#stop-77", "There is no stop"),
    ("?stop=0", "There is no stop"),
    ("?recording=../../etc/passwd", "There is no recording"),
    ("?recording=1-opening&step=x", "Steps must be whole numbers"),
    ("?recording=1-opening&step=99999", "It names step 99999"),
]


@pytest.fixture(scope="module")
def one_page(tabs, other_address):
    """Yield the tab that is shared by the tests of bad links."""
    tab = tabs.open(other_address, [], reduced_motion="reduce")
    settle(tab)
    yield tab
    tab.close()


@pytest.mark.parametrize(("link", "sentence"), often(BAD[::4], BAD), ids=[link[:60] for link, _ in BAD])
def test_a_bad_link_is_refused_in_one_sentence_and_changes_nothing(one_page, other_address, link, sentence):
    if link.startswith("?"):
        one_page.goto("about:blank")
        one_page.goto(other_address + link)
        settle(one_page)
    else:
        one_page.evaluate("hash => { Jakiro.notify(null); location.hash = hash; }", link)
    one_page.wait_for_selector("#jk-notice:not([hidden])")
    notice = one_page.inner_text("#jk-notice")
    assert notice.startswith("⚠") and "This link was not used." in notice and sentence in notice
    assert one_page.locator("#jk-notice *").count() == 1 and one_page.evaluate("window.ran") is None
    form = one_page.evaluate("Jakiro.formNow()")
    assert one_page.input_value("#question textarea") == ""
    assert (form["temperature"], form["tree"]) == (0, words.AUTOMATIC)
    assert one_page.get_attribute("body", "data-jakiro-tab") == "watch"
    one_page.wait_for_selector('.jk-view[data-run^="recording-"]')


@pytest.mark.rare
def test_without_a_clipboard_the_link_is_in_a_box_and_a_long_question_has_a_message(open_tab, fake_address):
    tab = open_tab(fake_address)
    settle(tab)
    # The browser also refuses the old command
    tab.evaluate(
        "Object.defineProperty(navigator, 'clipboard', { value: undefined }); document.execCommand = () => false;"
    )
    tab.evaluate("Jakiro.setTab('race')")
    press_copy(tab)
    tab.wait_for_selector(".copy-box:focus")
    assert "step=" in tab.input_value(".copy-box") and "tab=race" in tab.input_value(".copy-box")
    assert tab.evaluate("getSelection().toString()") == tab.input_value(".copy-box")
    tab.evaluate("Jakiro.setTab('watch')")
    ask_to_end(tab, "w" * 10_000)
    press_copy(tab)
    tab.wait_for_selector('.copy-status:visible:text-matches("^Too long for a link: 10,")')
    assert said(tab).endswith("Save… keeps the answer in a file.")


@pytest.mark.rare
def test_a_reload_keeps_the_form_and_does_not_apply_the_link_again(open_tab, fake_address):
    tab, _ = opened(open_tab, fake_address, "http://x/#" + urlencode({"question": "Old?", "seed": "5"}))
    tab.wait_for_function("() => document.querySelector('#question textarea')?.value === 'Old?'")
    tab.fill("#question textarea", "New?")
    tab.reload()
    settle(tab)
    tab.wait_for_function("() => document.querySelector('#question textarea')?.value === 'New?'")
    assert tab.input_value("#seed input") == "5"


@pytest.mark.rare
def test_a_private_space_s_files_are_found_below_its_path_and_signed_and_links_do_not_hand_the_signature_out(open_tab):
    """The proxy of a private Space accepts only requests that carry the signature of the page's address."""
    tab, requests = open_tab(None), []
    tab.on("request", lambda request: requests.append(urlsplit(request.url)[2:4]))
    with mock.patch.dict("os.environ", GRADIO_ROOT_PATH="/jakiro"), served(FakeGenerator) as (_, address):
        tab.goto(f"{address}jakiro/?__sign=secret#stop-2")
        tab.wait_for_selector('.stop[data-stop="2"]')
        tab.wait_for_selector("#jk-chip.ready")
        links = tab.evaluate(
            """() => [{ tab: "lesson" }, { tab: "recordings" }, { tab: "watch", run: Jakiro.state.run, index: 0 }]
              .map((shown) => Jakiro.linkTo(shown).link)"""
        )
        assert links[0] == f"{address}jakiro/#stop-2"
        assert not [link for link in links if "secret" in link]
        tab.click('[data-tab="benchmark"]')
        tab.wait_for_selector(".jk-benchmark button:visible")
    ours = [(path, query) for path, query in requests if path == "/jakiro/status" or path.endswith(".gz")]
    assert len({path for path, _ in ours}) >= 2
    assert {query for _, query in ours} == {"__sign=secret"}
