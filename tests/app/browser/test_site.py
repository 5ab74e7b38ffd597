"""The static site works from disk, from a web server and under a path, contains no server calls, and stays small."""

import functools
import json
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest

from app.page import web
from app.tools import site
from app.words.lesson import STOPS
from jakiro.trace import Trace
from tests.app.conftest import plotted

MAX_BYTES = 6_000_000


def traces_of(name):
    return {method: Trace.from_dict(values) for method, values in json.loads(web.recording(name))["traces"].items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of the site with one added answer, below a web server's root."""
    root = tmp_path_factory.mktemp("site")
    saved = root / "My answer.json"
    saved.write_text(json.dumps({**json.loads(web.recording("3-haiku")), "title": "An added answer", "why": ""}))
    site.write_site(root / "course" / "jakiro", [saved])
    return root / "course" / "jakiro"


@pytest.fixture(scope="module")
def address_of(folder):
    """Return the site's address from disk, at the root of a web server and under a path."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    servers = []

    def address(place):
        if place == "disk":
            return (folder / "index.html").as_uri()
        root, path = (folder, "") if place == "root" else (folder.parent.parent, "course/jakiro/")
        servers.append(ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(root))))
        threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{servers[-1].server_port}/{path}"

    yield address
    for server in servers:
        server.shutdown()


def open_site(open_tab, address):
    """Open the site without the wait for Gradio's form."""
    tab = open_tab(None)
    tab.requests = []
    tab.on("request", lambda request: tab.requests.append(request.url))
    tab.goto(address)
    return tab


def shown_text(tab):
    return tab.evaluate("document.querySelector('.answer-text').textContent")


@pytest.mark.rare
@pytest.mark.browser
@pytest.mark.parametrize("place", ["disk", "root", "path"])
def test_every_tab_of_the_site_shows_its_content(place, open_tab, address_of, folder):
    address = address_of(place)
    tab = open_site(open_tab, address)
    tab.wait_for_selector("svg.tree")
    tab.click("[role=tab][data-tab=race]")
    tab.click(".start-race")
    tab.wait_for_selector(".race.over")
    assert {*traces_of(web.recording_names()[0])} == {"autoregressive", "jakiro"}
    assert tab.locator(".race-bar").count() == 2
    tab.click("[role=tab][data-tab=lesson]")
    tab.wait_for_selector(f"#lesson :text('{STOPS[0]['question'][:30]}')")
    tab.click("[role=tab][data-tab=benchmark]")
    tab.wait_for_selector("#benchmark .bench-headline")
    assert plotted(tab, "#benchmark")
    assert not tab.locator(".bench-form").is_visible()
    tab.click("#benchmark :text('Leaderboard')")
    tab.wait_for_selector("#benchmark .bench-body :text('Jakiro')")
    tab.click("[role=tab][data-tab=recordings]")
    tab.wait_for_selector(".recording-card")
    assert tab.locator(".recording-card").count() == len(web.recording_names()) + 1
    assert tab.locator("#jk-notice").is_hidden()
    base = address.removesuffix("index.html")
    assert {url.removeprefix(base).split("/")[0] for url in tab.requests if not url.startswith(("data:", "blob:"))} <= {
        "", "index.html", "files", "favicon.ico", address.removeprefix(base).split("/")[0],
    }  # fmt: skip


@pytest.mark.browser
def test_an_added_answer_and_a_linked_step_are_shown_and_a_handout_is_saved(open_tab, address_of):
    tab = open_site(open_tab, address_of("path") + "?recording=My-answer&step=2")
    tab.wait_for_selector('svg.tree[data-step="1"]')
    (plain, drafted) = traces_of("3-haiku").values()
    assert tab.evaluate("Jakiro.moves.state.run.title") == "An added answer"
    assert tab.evaluate("Jakiro.moves.state.run.main.tokens.length") == len(drafted.token_ids) == len(plain.token_ids)
    tab.click("[role=tab][data-tab=recordings]")
    with tab.expect_download() as download:
        tab.locator("[data-action=handout]").last.click()
    assert "An added answer" in download.value.path().read_text(encoding="utf-8")


@pytest.mark.browser
def test_a_link_to_a_stop_opens_it_and_the_last_stop_leads_to_the_race(open_tab, address_of):
    tab = open_site(open_tab, address_of("disk") + f"#stop-{len(STOPS)}")
    tab.wait_for_selector(f"#lesson :text('{STOPS[-1]['question'][:30]}')")
    tab.click(".lesson-turn button:last-child")
    tab.wait_for_selector('body[data-jakiro-tab="race"] .race-bar')


def test_the_site_is_small_and_complete(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
    names = {path.relative_to(folder).as_posix() for path in files}
    assert {"index.html", "README.md", ".nojekyll", "files/lesson.js", "files/My-answer.js"} <= names


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[]", "is not an answer saved as .json"),
        ("{", "is not an answer saved as .json"),
        ('{"title": "", "traces": {"jakiro": {}}}', "is not an answer saved as .json"),
    ],
)
def test_a_file_that_is_no_answer_is_refused_in_one_sentence(content, sentence, tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text(content)
    monkeypatch.setattr("sys.argv", ["site", "--out", str(tmp_path / "out"), "--add", str(tmp_path / "a.json")])
    with pytest.raises(SystemExit) as error:
        site.main()
    assert sentence in str(error.value) and "\n" not in str(error.value)


def test_a_folder_with_other_files_is_not_overwritten(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(ValueError, match="has other files in it; give --out a new folder"):
        site.write_site(tmp_path, [])
    assert (tmp_path / "thesis.tex").exists()


def test_a_trace_of_the_command_line_can_be_added(tmp_path):
    trace = traces_of("3-haiku")["jakiro"]
    trace.save(tmp_path / "trace.json")
    name, text = site.added_recording(tmp_path / "trace.json")
    recording = json.loads(text)
    assert name == "trace" and list(recording["traces"]) == ["jakiro"]
    assert recording["title"] == trace.header.messages[-1]["content"]
