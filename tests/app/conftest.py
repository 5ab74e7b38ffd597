"""Servers, a browser and a guard: pages run in this process, so one patched socket sees every outgoing connection."""

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
DESKTOP = {"width": 1440, "height": 900}
# Gradio draws the fields of its form one by one
FORM_DRAWN = """() => { const form = window.Jakiro?.formDefaults?.();
  return form && Object.keys(form).every((name) => document.querySelector(`#${name} :is(input, textarea)`)); }"""
# What each tab can be given by itself; other options are a context's
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
    """Fails every connection of this process to anything but this machine, and lists the attempts."""
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
    """Gives the Blocks and the address of a page with these limits, and closes it."""
    blocks = app_page.build(LocalDevice(load), Limits(**limits), loader_of, pairs_folder, appearance=appearance)
    try:
        options = {"port": any_port(), "wait": False, "quiet": True, "logins": logins, "keys": keys}
        yield blocks, app_page.launch(blocks, host=host, **options)
    finally:
        blocks.close()


@contextmanager
def served_apart(module: str, *arguments: object, port: int | None = None, **options):
    """(process, address) of a page that a module of `tests.app` serves in a process of its own, once it is ready."""
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
    """(generator, Blocks, address) of a page whose answers go on for longer than `PATIENCE`, unless stopped."""
    generator = FakeGenerator(default_answer() * 8, pace=10.0)
    with pytest.MonkeyPatch.context() as patch:
        # Tokens: five minutes, at half a second a step
        patch.setattr("app.serving.worker.USUAL_LENGTH", 500)
        with served(lambda: generator) as (blocks, address):
            yield generator, blocks, address
            generator.gate.set()
            generator.pace = 0


def status(address: str) -> dict:
    """What a page says of itself; nothing where nobody answers."""
    try:
        with urllib.request.urlopen(urljoin(address, "/status"), timeout=PATIENCE) as answer:
            return json.load(answer)
    except OSError:
        return {}


def come_from(host: str, monkeypatch) -> None:
    """From now on Python's programs ask from another address of this machine."""

    class Elsewhere(http.client.HTTPConnection):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **{"source_address": (host, 0)} | options)

    monkeypatch.setattr(http.client, "HTTPConnection", Elsewhere)


def settled_service(load, **limits) -> ModelService:
    """One whose model has been loaded, or could not be."""
    service = ModelService(LocalDevice(load), Limits(**limits))
    service.start()
    assert service.turns.wait_for(lambda: service.settled, PATIENCE)
    return service


def ready_service(generator, **limits) -> ModelService:
    return settled_service(lambda: generator, **limits)


@pytest.fixture(scope="session")
def connect():
    """Makes gradio_client programs that send no reports of their own; they are the visitor's side, not the page's."""
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
    path = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no chromium on this machine, and CI must not skip the browser tests")
        pytest.skip("no chromium on this machine")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS.split())
        yield browser
        browser.close()


class Tabs:
    """Tabs of one browser. Those of like options share a context, and pages one process: scripts are compiled once.

    A tab has its own session storage, like a new visitor's; permissions, cookies and the connection are the context's.
    A context has six connections to a server, of which each tab holds one or two: who opens many tabs closes some.
    """

    def __init__(self, browser) -> None:
        self._browser, self._contexts = browser, {}

    def open(self, address: str | None, problems: list[str], **options):
        """Of a page, once its form is drawn; script errors and requests outside this machine are added to `problems`.

        With `clock` it is alone in a context whose time can be moved.
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
        context, kept = self._contexts[key]
        if not kept and address is not None and address.startswith("http"):
            # An open tab keeps the process of the site, and what it has compiled
            kept.append(context.new_page())
            kept[0].goto(urljoin(address, "/status"))
        return context


@pytest.fixture(scope="session")
def tabs(browser) -> Tabs:
    return Tabs(browser)


@pytest.fixture
def open_tab(tabs):
    """Opens tabs whose problems fail the test, see `Tabs`."""
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
    """For modules whose tests share the fixture `tab`: a problem fails the test in which it happens."""
    yield
    if "tab" in request.fixturenames:
        assert not request.getfixturevalue("tab").problems


def outside(url: str) -> list[str]:
    parts = urlsplit(url)
    here = parts.scheme in ("data", "blob", "about", "file") or is_loopback(parts.hostname or "")
    return [] if here else [f"request outside this machine: {url}"]


def load_scripts(tab) -> None:
    """Puts the page's style, scripts and plot library into an empty tab."""
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
    """An empty tab with the page's scripts, for views by themselves; its problems fail the test."""
    # What loads behind another tab is given three frames a second, and every wait is for frames
    module_tab.bring_to_front()
    # Where the test before left the pointer, something would be pointed at
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
    """One tab for all tests of functions that draw nothing."""
    tab = tabs.open(None, [])
    load_scripts(tab)
    yield tab
    tab.close()


def given(tab, function: str, value) -> object:
    """What a function in the browser makes of a large value; as one text it travels many times faster."""
    return tab.evaluate(f"text => ({function})(JSON.parse(text))", json.dumps(value))


def show(tab, traces: dict, **options) -> None:
    """Shows a recording in an empty tab; `options` are those of the page's `showRecording`, such as its step."""
    script = """([traces, options]) => { Jakiro.mountView(document.querySelector('#host'), {}, null, null);
      Jakiro.showRecording('test', { title: 'Test', traces }, { playNow: false, ...options }); }"""
    given(tab, script, [traces, options])
    tab.wait_for_selector(":is(svg.tree, .ladder):visible")


def send(tab, question: str) -> None:
    """Types a question and presses Ask."""
    tab.fill("#question textarea", question)
    tab.click("#ask")


def ask(tab, question: str) -> None:
    """Types a question, asks it and waits until its run is on screen; only live runs have hexadecimal ids."""
    before = tab.get_attribute(".jk-view", "data-run")
    tab.wait_for_selector("#jk-chip.ready")
    send(tab, question)
    drawn = "document.querySelector('.jk-view')?.dataset.run"
    tab.wait_for_function(f"before => {drawn} !== before && /^[0-9a-f]{{32}}$/.test({drawn})", arg=before)


def wait_until_finished(tab) -> None:
    """Until the run that is on now has ended and its end is drawn; what is drawn may still be the run before."""
    tab.wait_for_function(
        "() => { const { run } = Jakiro.moves.state, drawn = document.querySelector('.jk-view').dataset;"
        " return run.finished && drawn.run === run.id && drawn.finished === 'true'; }"
    )


def ask_to_end(tab, question: str) -> None:
    """Asks, and waits for the answer's end."""
    ask(tab, question)
    wait_until_finished(tab)


def plotted(tab, within: str) -> list[dict]:
    """What the plot below a selector draws, by Plotly's own account: names and points of its lines."""
    tab.wait_for_function("within => document.querySelector(within + ' .plot')?.data?.length", arg=within)
    lines = "within => document.querySelector(within + ' .plot').data.map(({name, x, y}) => ({name, x, y}))"
    return tab.evaluate(lines, within)


def wait_for_frames(tab) -> None:
    """Waits until what was changed before has been laid out and drawn."""
    tab.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def seek(tab, step: int) -> None:
    """Moves the step slider and waits until the tree has followed."""
    tab.fill("#jk-step", str(step))
    tab.wait_for_selector(f':is(svg.tree, .ladder)[data-step="{step}"]:visible')


def set_option(tab, *keys: str) -> None:
    """Presses switches of the page's menu."""
    tab.evaluate("document.querySelector('.page-menu').open = true")
    for key in keys:
        tab.click(f'.page-menu [data-toggle="{key}"]')
    tab.evaluate("document.querySelector('.page-menu').open = false")


def saved(tab, key: str):
    """The file that an entry of the menu "Save" gives."""
    tab.evaluate("document.querySelectorAll('.page-menu, .save-menu').forEach((menu) => (menu.open = true))")
    with tab.expect_download() as download:
        tab.click(f'[data-save="{key}"]')
    return download.value


def opened_alone(open_tab, path):
    """A file in a tab without a network; what it asks for beyond its own data is in `loaded`."""
    tab, loaded = open_tab(None, offline=True), []
    tab.on("request", lambda request: request.url.startswith(("data:", "blob:")) or loaded.append(request.url))
    tab.loaded = loaded
    tab.goto(path.as_uri())
    return tab


def number_of(tab, name: str) -> tuple[str, str]:
    """A number of the answer and its definition, as they stand under "Numbers"."""
    tab.evaluate(
        "document.querySelector('.panels').showPopover(); document.querySelector('.panel-numbers').open = true"
    )
    value = tab.locator(f'[data-metric="{name}"]:visible')
    return value.text_content(), value.locator("xpath=following-sibling::*[1]").text_content()
