"""Text with code in it stays text: in questions, answers, titles and files, on every tab and in every export.

Each piece would set `window.ran` or send a request if it ran; tabs fail on any request to another machine.
"""

import codecs
import csv
import io
import json
import re
from dataclasses import replace

import pytest

from app.page import web
from app.tools import record
from tests.app.conftest import ask_to_end, opened_alone, outside, saved, served, set_option, wait_for_frames
from tests.app.fake import FakeGenerator

pytestmark = pytest.mark.browser

FAR = "http://198.51.100.7"  # an address kept for documentation; nothing may try to reach it
HOSTILE = [
    "<script>window.ran = 1</script>",
    f"<img src={FAR}/x.png onerror='window.ran = 2'>",
    "${window.ran = 3}",
    "{{window.ran = 4}}{{{window.ran = 5}}}",
    "`${window.ran = 6}`",
    "</script></style><svg onload='window.ran = 7'>",
    f"![picture]({FAR}/y.png) [link](javascript:window.ran=8) <{FAR}/z>",
    f"**bold** `code` # heading\n```html\n<iframe src={FAR}></iframe>\n```\n",
    "مرحبا بالعالم \u202etxt.exe\u202c \u2066x\u2069 ",
    "=cmd|' /C calc'!A0",
    "@SUM(1+1)",
    "\t=1+1",
    "\u0000\u0007\u200b\ufeff\u2028\u2029",
    '"quoted", with comma\r\n',
]
WHOLE = "🌍👩‍🚀é".encode()
PIECES = [text.encode() for text in HOSTILE] + [WHOLE[:2], WHOLE[2:7], WHOLE[7:], b"\xff\xfe", b"\xf0\x9f"]
QUESTION = " ".join(HOSTILE[:9])
TEXT = b"".join(PIECES).decode("utf-8", "replace")
SCENARIO = replace(record.scenarios({"overall": 1.0})[0], rule=lambda figures: True)
CODE = ".jk-view :is(script, img, iframe, style, a[href^='javascript'], [onload], [onerror])"


def shown_as_text(tab) -> None:
    """Check that no script ran and that no text of visitors or models became an element."""
    assert tab.evaluate("window.ran") is None
    assert tab.locator(CODE).count() == 0


def walk_through(tab) -> None:
    """Open every view of an answer: formatted and plain text, tree, card, list, mask and plot as tables, race."""
    tab.evaluate("Jakiro.setTab('watch'); Jakiro.moves.seek(1)")
    tab.wait_for_selector('svg.tree[data-step="1"]')
    shown_as_text(tab)
    # A locator, not an element handle: the tree may be redrawn between two actions
    for place in range(3):
        tab.locator(".tree .node .reach").nth(place).hover(force=True)
        tab.wait_for_function("() => document.querySelectorAll('.jk-card *').length > 2")
    set_option(tab, "as_written", "show_all", "read_as_list", "show_spaces")
    tab.wait_for_selector(".tree-list")
    shown_as_text(tab)
    tab.click('.columns .plot-pane [data-toggle="read_as_table"]')
    tab.evaluate(
        "document.querySelector('.panels').showPopover();"
        "document.querySelectorAll('.question-line').forEach((line) => (line.open = true))"
    )
    tab.wait_for_selector(".panel-mask table")
    shown_as_text(tab)
    tab.evaluate("document.querySelector('.panels').hidePopover()")
    set_option(tab, "as_written", "show_all", "read_as_list", "show_spaces")
    tab.evaluate("Jakiro.setTab('race'); Jakiro.moves.seek(Infinity)")
    tab.wait_for_selector(".result-card .verdict", state="attached")
    shown_as_text(tab)


@pytest.fixture(scope="module")
def hostile_address(tmp_path_factory):
    """Yield the address of a page with hostile answers and hostile titles of recordings."""
    folder = tmp_path_factory.mktemp("recordings")
    recording = record.record(FakeGenerator(PIECES), SCENARIO)
    recording |= {"title": HOSTILE[1], "why": "".join(HOSTILE[:8])}
    record.write(recording, folder / "1-hostile.json")
    before, web.TRACES = web.TRACES, folder
    with served(lambda: FakeGenerator(PIECES * 2)) as (_, address):
        yield address
    web.TRACES = before


@pytest.mark.rare
def test_hostile_questions_and_answers_are_text_on_every_tab_and_in_every_file(open_tab, hostile_address, tmp_path):
    tab = open_tab(hostile_address)
    requests = []
    tab.on("request", lambda request: requests.append(request.url))
    tab.wait_for_selector("svg.tree")
    ask_to_end(tab, QUESTION)
    assert tab.text_content(".asked") == QUESTION
    assert tab.evaluate("document.querySelector('.answer-text').textContent").startswith(TEXT[:200])
    walk_through(tab)
    tab.evaluate("Jakiro.setTab('recordings')")
    tab.wait_for_selector(".recording-card")
    assert tab.inner_text(".recording-card h2") == HOSTILE[1]
    shown_as_text(tab)
    for name in tab.evaluate("[...document.querySelectorAll('[role=\"tab\"]')].map(tab => tab.dataset.tab)"):
        tab.click(f'[data-tab="{name}"]')
        shown_as_text(tab)

    tab.evaluate("Jakiro.setTab('watch')")
    trace = json.loads(saved(tab, "save_json").path().read_text())["traces"]["jakiro"]
    table = saved(tab, "save_csv").path()
    assert table.read_bytes().startswith(codecs.BOM_UTF8), "a spreadsheet would read ␣ as three letters"
    rows = list(csv.reader(io.StringIO(table.read_text(encoding="utf-8-sig"))))
    assert len(rows) > 20 and len({len(row) for row in rows}) == 1
    assert not [cell for row in rows for cell in row if cell.lstrip()[:1] in ("=", "@", "+")]
    assert any(cell.startswith("'=cmd") for row in rows for cell in row)
    replay = saved(tab, "save_html")
    assert all(character not in replay.suggested_filename for character in "<>/\\:\"'$`{}")
    path = tmp_path / "replay.html"
    path.write_bytes(replay.path().read_bytes())
    for name in ("save_svg", "save_plot"):
        assert saved(tab, name).path().read_bytes().startswith(b"<svg")
    assert tab.evaluate("window.ran") is None
    assert not [url for url in requests if outside(url)]

    offline = opened_alone(open_tab, path)
    offline.wait_for_selector("svg.tree")
    pieces = [trace["header"]["first_piece"]] + [
        [*(step["nodes"][i]["piece"] for i in step["accepted_path"]), step["bonus_piece"]][place]
        for step in trace["steps"]
        for place in range(len(step["committed_ids"]))
    ]
    answer = b"".join(map(bytes.fromhex, pieces)).replace(b"<|im_end|>", b"").decode("utf-8", "replace")
    assert offline.evaluate("document.querySelector('.answer-text').textContent") == answer
    walk_through(offline)
    assert offline.loaded == [path.as_uri()]


@pytest.mark.rare
def test_a_hundred_thousand_characters_are_one_question_and_stay_one_line_of_title(open_tab):
    answer = [b"Yes", b" it is", b"."]
    with served(lambda: FakeGenerator(answer), max_prompt_characters=200_000) as (_, address):
        tab = open_tab(address)
        tab.wait_for_selector("svg.tree")
        question = "<b>" + "w" * 100_000
        ask_to_end(tab, question)
        assert len(tab.text_content(".asked")) == len(question)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1440
        replay = saved(tab, "save_html")
        assert len(replay.suggested_filename) < 120
        title = re.search("<title>(.*?)</title>", replay.path().read_text(encoding="utf-8"), re.DOTALL)[1]
        assert len(title) < 120


@pytest.mark.rare
def test_hostile_files_are_refused_or_shown_as_text(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.wait_for_selector("svg.tree")
    traces = record.record(FakeGenerator(PIECES), SCENARIO)["traces"]
    for name, lane in traces.items():
        header = lane["header"]
        header["target"]["name"] = header["device"] = header["created"] = HOSTILE[0]
        header["device_profile"] = {"device": HOSTILE[1]}
        header["special_tokens"]["1003"] = HOSTILE[0]
        lane["steps"][0]["plan"]["why"] = HOSTILE[1]
        lane["steps"][0]["nodes"][-1]["proposer"] = "constructor" if name == "jakiro" else "root"
        lane["steps"][0]["nodes"][-1]["also_proposed_by"] = ["__proto__"]
    text = json.dumps({"title": HOSTILE[0], "traces": traces})
    tab.set_input_files(
        "#jk-open", {"name": f"{HOSTILE[2]}.json", "mimeType": "application/json", "buffer": text.encode()}
    )
    tab.wait_for_function("() => document.querySelector('.sent-with')?.textContent.startsWith('Opened file')")
    walk_through(tab)
    tab.click('[data-tab="recordings"]')
    spoiled = json.dumps({"header": HOSTILE[0], "steps": []}).encode()
    tab.set_input_files("#jk-open", {"name": "x.json", "mimeType": "application/json", "buffer": spoiled})
    tab.wait_for_selector("#jk-notice.error")
    shown_as_text(tab)


@pytest.mark.rare
def test_the_server_connects_to_no_other_machine(open_tab, fake_address, loopback_guard):
    """The network guard of all browser tests refuses and lists the attempts of the server's process."""
    import socket

    with pytest.raises(ConnectionRefusedError), socket.socket() as program:
        program.connect(("198.51.100.7", 80))
    with pytest.raises(socket.gaierror):
        socket.getaddrinfo("example.org", 443)
    assert len(loopback_guard) == 2
    loopback_guard.clear()
    tab = open_tab(fake_address)
    ask_to_end(tab, "Why?")
    for name in tab.evaluate("[...document.querySelectorAll('[role=\"tab\"]')].map(tab => tab.dataset.tab)"):
        tab.click(f'[data-tab="{name}"]')
        wait_for_frames(tab)
    assert loopback_guard == []
