"""Fixtures for servers, a browser and a network guard.

Pages run in this process, so one patched socket sees every outgoing connection.
"""

import http.client
import ipaddress
import json
import os
import shutil
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

import pytest

from app.devices.local import LocalDevice
from app.page import build as app_page
from app.page import web
from app.serving.limits import Limits
from app.serving.worker import ModelService
from tests.app.fake import FakeGenerator, default_answer
from tests.faults import ROOT
from tests.server.served import PATIENCE, any_port, wait_until

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --process-per-site"
)  # fmt: skip
# Pages of tests are open for seconds, too short for optimised scripts to pay off
UNOPTIMISED = "--js-flags=--no-opt,--no-maglev"
DESKTOP = {"width": 1440, "height": 900}
# Gradio draws the fields of its form one by one
FORM_DRAWN = """() => { const form = window.Jakiro?.formDefaults?.();
  return form && Object.keys(form).every((name) => document.querySelector(`#${name} :is(input, textarea)`)); }"""
# With JAKIRO_TEST_DELAYS=MS, frames, fetched data and the browser's database arrive later: unsafe waits of tests fail
DELAYS = int(os.environ.get("JAKIRO_TEST_DELAYS", "0"))
DELAYED = """(() => {
  const later = (work) => setTimeout(work, %d), listen = EventTarget.prototype.addEventListener;
  const isDelayed = (target, type) =>
    (target instanceof IDBRequest && !(target instanceof IDBOpenDBRequest) && type === "success")
    || (target instanceof IDBTransaction && type === "complete");
  EventTarget.prototype.addEventListener = function (type, listener, ...options) {
    const late = isDelayed(this, type) ? (event) => later(() => listener.call(this, event)) : listener;
    return listen.call(this, type, late, ...options);
  };
  const { fetch, requestAnimationFrame } = window;
  window.fetch = (...request) => fetch(...request).then((answer) => new Promise((done) => later(() => done(answer))));
  window.requestAnimationFrame = (draw) => requestAnimationFrame(() => later(() => draw(performance.now())));
})();"""
# Options of a single tab; all others belong to the browser context
LOOKS = ("color_scheme", "reduced_motion")


def is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session", autouse=True)
def loopback_guard():
    """Refuse connections of this process to other machines; yield the list of attempts."""
    attempts = []
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def guarded(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_loopback(address[0]):
            attempts.append(address)
            raise ConnectionRefusedError(f"a test reached out to {address}")
        return connect(self, address)

    def guarded_look_up(host, *rest, **options):
        name = host.decode() if isinstance(host, bytes) else host
        if name is not None and not is_loopback(name) and name not in ("0.0.0.0", "::", ""):
            attempts.append((name,))
            raise socket.gaierror(f"a test looked up {name}")
        return look_up(host, *rest, **options)

    socket.socket.connect, socket.getaddrinfo = guarded, guarded_look_up
    yield attempts
    socket.socket.connect, socket.getaddrinfo = connect, look_up
    assert not attempts, f"connections outside this machine: {attempts}"


@contextmanager
def served(
    load, host: str = "127.0.0.1", logins=None, keys=(), loader_of=None, pairs_folder=None, appearance=None, **limits
):
    """Serve a page with these limits; yield its Blocks and address."""
    blocks = app_page.build(LocalDevice(load), Limits(**limits), loader_of, pairs_folder, appearance=appearance)
    try:
        options = {"port": any_port(), "wait": False, "quiet": True, "logins": logins, "keys": keys}
        yield blocks, app_page.launch(blocks, host=host, **options)
    finally:
        blocks.close()


@contextmanager
def served_apart(module: str, *arguments: object, port: int | None = None, **options):
    """Serve a page by a module of `tests.app` in its own process; yield (process, address) once it is ready."""
    port = port or any_port()
    command, address = [sys.executable, "-m", f"tests.app.{module}", str(port)], f"http://127.0.0.1:{port}/"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen([*command, *map(str, arguments)], cwd=ROOT, **quiet | options)
    try:
        wait_until(lambda: process.poll() is not None or status(address).get("state") == "ready", 600)
        yield process, address
    finally:
        process.terminate()
        process.wait(PATIENCE)


@contextmanager
def served_slow():
    """Serve a page with slow answers, longer than `PATIENCE` unless stopped; yield (generator, Blocks, address)."""
    generator = FakeGenerator(default_answer() * 8, pace=10.0)
    with pytest.MonkeyPatch.context() as patch:
        # Tokens: five minutes, at half a second a step
        patch.setattr("app.serving.worker.USUAL_LENGTH", 500)
        with served(lambda: generator) as (blocks, address):
            yield generator, blocks, address
            generator.gate.set()
            generator.pace = 0


def status(address: str) -> dict:
    """Return the `/status` of a page, or an empty dictionary if no server answers."""
    try:
        with urllib.request.urlopen(urljoin(address, "/status"), timeout=PATIENCE) as answer:
            return json.load(answer)
    except OSError:
        return {}


def come_from(host: str, monkeypatch) -> None:
    """Send the HTTP requests of this process from another address of this machine."""

    class Elsewhere(http.client.HTTPConnection):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **{"source_address": (host, 0)} | options)

    monkeypatch.setattr(http.client, "HTTPConnection", Elsewhere)


def settled_service(load, **limits) -> ModelService:
    """Return a service that has finished loading, successfully or not."""
    service = ModelService(LocalDevice(load), Limits(**limits))
    service.start()
    assert service.turns.wait_for(lambda: service.settled, PATIENCE)
    return service


def ready_service(generator, **limits) -> ModelService:
    return settled_service(lambda: generator, **limits)


@pytest.fixture(scope="session")
def connect():
    """Return a function that creates `gradio_client` clients without telemetry."""
    from gradio_client import Client
    from huggingface_hub import constants

    reports = constants.HF_HUB_DISABLE_TELEMETRY
    constants.HF_HUB_DISABLE_TELEMETRY = True
    clients = []

    def connect_to(address: str, **options) -> Client:
        clients.append(Client(address, verbose=False, analytics_enabled=False, **options))
        return clients[-1]

    yield connect_to
    for client in clients:
        client.close()
    constants.HF_HUB_DISABLE_TELEMETRY = reports


@pytest.fixture(scope="session")
def fake_address():
    with served(lambda: FakeGenerator(pace=0.05)) as (_, address):
        yield address


@pytest.fixture(scope="session")
def browser():
    path = next((executable for name in BROWSERS if (executable := shutil.which(name))), None)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no chromium on this machine, and CI must not skip the browser tests")
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS.split(), UNOPTIMISED])
        yield browser
        browser.close()


class Tabs:
    """Tabs of one browser; tabs with equal options share a context and a process, so that scripts are compiled once.

    Each tab has its own session storage, like a new visitor. Permissions, cookies and the connection belong to the
    context. A context has six connections to a server and each tab uses one or two, so a test closes tabs before it
    opens many.
    """

    def __init__(self, browser) -> None:
        self._browser, self._contexts = browser, {}

    def open(self, address: str | None, problems: list[str], **options):
        """Open a page and wait for its form.

        Args:
            problems: receives script errors and requests to other machines.
            options: with `clock`, the tab has its own context with a controlled clock.
        """
        viewport = options.pop("viewport", DESKTOP)
        look = {name: options.pop(name) for name in LOOKS if name in options}
        if options.pop("clock", False):
            context = self._browser.new_context(**options)
            context.clock.install()
            tab = context.new_page()
            tab.on("close", lambda: context.close())
        else:
            tab = self._context(address, options).new_page()
        if DELAYS:
            tab.add_init_script(DELAYED % DELAYS)
        tab.set_viewport_size(viewport)
        tab.emulate_media(**look)
        tab.problems = problems
        tab.set_default_timeout(1000 * PATIENCE)
        tab.on("pageerror", lambda error: problems.append(f"script error: {error}"))
        tab.on("request", lambda request: problems.extend(outside(request.url)))
        tab.on("websocket", lambda connection: problems.extend(outside(connection.url)))
        if address is not None:
            tab.goto(address)
            if address.startswith("http"):
                tab.wait_for_function(FORM_DRAWN)
        return tab

    def _context(self, address: str | None, options: dict):
        key = tuple(sorted(options.items()))
        if key not in self._contexts:
            self._contexts[key] = self._browser.new_context(**options), []
        context, anchors = self._contexts[key]
        if not anchors and address is not None and address.startswith("http"):
            # An open tab keeps the process of the site and its compiled scripts
            anchors.append(context.new_page())
            anchors[0].goto(urljoin(address, "/status"))
        return context


@pytest.fixture(scope="session")
def tabs(browser) -> Tabs:
    return Tabs(browser)


@pytest.fixture
def open_tab(tabs):
    """Return a function that opens tabs (see `Tabs`); their problems fail the test."""
    opened, problems = [], []

    def open_at(address: str | None, **options):
        opened.append(tabs.open(address, problems, **options))
        return opened[-1]

    yield open_at
    for tab in opened:
        tab.close()
    assert not problems, problems


@pytest.fixture
def no_problems(request):
    """Fail a test if its shared fixture `tab` has recorded a problem."""
    yield
    if "tab" in request.fixturenames:
        assert not request.getfixturevalue("tab").problems


def outside(url: str) -> list[str]:
    parts = urlsplit(url)
    is_local = parts.scheme in ("data", "blob", "about", "file") or is_loopback(parts.hostname or "")
    return [] if is_local else [f"request outside this machine: {url}"]


def load_scripts(tab) -> None:
    """Put the page's style, scripts and plot library into an empty tab."""
    host = '<div id="host"><div class="jk-view"></div></div>'
    tab.set_content(f"<style>{web.style()}</style>{host}{web.plotly_element()}")
    tab.add_script_tag(content=web.script())


@pytest.fixture(scope="session")
def module_tab(tabs):
    tab = tabs.open(None, [])
    yield tab
    tab.close()


@pytest.fixture
def modules(module_tab):
    """Return an empty tab with the page's scripts, for tests of single views; its problems fail the test."""
    # Chromium draws a hidden tab three times a second, and the tests wait for frames
    module_tab.bring_to_front()
    # The last position of the pointer could be over an element of this test
    module_tab.mouse.move(0, 0)
    module_tab.goto("about:blank")
    module_tab.set_viewport_size(DESKTOP)
    load_scripts(module_tab)
    yield module_tab
    problems = module_tab.problems[:]
    module_tab.problems.clear()
    assert not problems


@pytest.fixture(scope="session")
def functions(tabs):
    """Return the tab that is shared by all tests of functions without drawing."""
    tab = tabs.open(None, [])
    load_scripts(tab)
    yield tab
    tab.close()


def call_with(tab, function: str, value) -> object:
    """Call a function in the browser with a large value; as one JSON text it is transferred many times faster."""
    return tab.evaluate(f"text => ({function})(JSON.parse(text))", json.dumps(value))


def show(tab, traces: dict, **options) -> None:
    """Show a recording in an empty tab; `options` are those of the page's `showRecording`, such as its step."""
    script = """([traces, options]) => { Jakiro.mountView(document.querySelector('#host'), {}, null, null);
      Jakiro.showRecording('test', { title: 'Test', traces }, { playNow: false, ...options }); }"""
    call_with(tab, script, [traces, options])
    tab.wait_for_selector(":is(svg.tree, .ladder):visible")


def send(tab, question: str) -> None:
    """Type a question and press Ask."""
    tab.fill("#question textarea", question)
    tab.click("#ask")


def ask(tab, question: str) -> None:
    """Send a question and wait until its run is on screen; only live runs have hexadecimal ids."""
    before = tab.get_attribute(".jk-view", "data-run")
    tab.wait_for_selector("#jk-chip.ready")
    send(tab, question)
    run_id = "document.querySelector('.jk-view')?.dataset.run"
    tab.wait_for_function(f"before => {run_id} !== before && /^[0-9a-f]{{32}}$/.test({run_id})", arg=before)


def wait_until_finished(tab) -> None:
    """Wait until the current run has ended and its end is drawn; the view may still show the previous run."""
    tab.wait_for_function(
        "() => { const { run } = Jakiro.moves.state, drawn = document.querySelector('.jk-view').dataset;"
        " return run?.finished && drawn.run === run.id && drawn.finished === 'true'; }"
    )


def ask_to_end(tab, question: str) -> None:
    """Send a question and wait for the end of its answer."""
    ask(tab, question)
    wait_until_finished(tab)


def plotted(tab, within: str) -> list[dict]:
    """Return the names and points of the lines in the Plotly plot below a selector."""
    tab.wait_for_function("within => document.querySelector(within + ' .plot')?.data?.length", arg=within)
    lines = "within => document.querySelector(within + ' .plot').data.map(({name, x, y}) => ({name, x, y}))"
    return tab.evaluate(lines, within)


def wait_for_frames(tab) -> None:
    """Wait until earlier changes have been laid out and drawn."""
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def seek(tab, step: int) -> None:
    """Move the step slider and wait until the tree shows the step."""
    tab.fill("#jk-step", str(step))
    tab.wait_for_selector(f':is(svg.tree, .ladder)[data-step="{step}"]:visible')


def set_option(tab, *keys: str) -> None:
    """Press switches of the page's menu."""
    tab.evaluate("document.querySelector('.page-menu').open = true")
    for key in keys:
        tab.click(f'.page-menu [data-toggle="{key}"]')
    tab.evaluate("document.querySelector('.page-menu').open = false")


def saved(tab, key: str):
    """Return the file that is downloaded by an entry of the menu "Save"."""
    tab.evaluate("document.querySelectorAll('.page-menu, .save-menu').forEach((menu) => (menu.open = true))")
    with tab.expect_download() as download:
        tab.click(f'[data-save="{key}"]')
    return download.value


def opened_alone(open_tab, path):
    """Open a file in an offline tab; the URLs of its requests, except data and blob URLs, are in `loaded`."""
    tab, loaded = open_tab(None, offline=True), []
    tab.on("request", lambda request: request.url.startswith(("data:", "blob:")) or loaded.append(request.url))
    tab.loaded = loaded
    tab.goto(path.as_uri())
    return tab


def number_of(tab, name: str) -> tuple[str, str]:
    """Return a number of the answer and its definition from the panel "Numbers"."""
    tab.evaluate(
        "document.querySelector('.panels').showPopover(); document.querySelector('.panel-numbers').open = true"
    )
    value = tab.locator(f'[data-metric="{name}"]:visible')
    return value.text_content(), value.locator("xpath=following-sibling::*[1]").text_content()
