"""Servers, a browser and a guard: pages run in this process, so one patched socket sees every outgoing connection."""

import asyncio
import ipaddress
import os
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.devices.local import LocalDevice
from app.page import build as app_page
from app.page import web
from tests.app.fake import FakeGenerator

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
)  # fmt: skip


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


def serve(load, **options):
    """Launches a page in this process; returns the Blocks and its address."""
    blocks = app_page.build(LocalDevice(load), **options)
    return blocks, app_page.launch(blocks, host="127.0.0.1", wait=False, quiet=True)


def run_apart(coroutine):
    """Runs a coroutine in a thread of its own: in this one the browser's tests may have left an event loop running."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


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
def fake_generator() -> FakeGenerator:
    return FakeGenerator(pace=0.3)


@pytest.fixture(scope="session")
def fake_address(fake_generator):
    blocks, address = serve(lambda: fake_generator)
    yield address
    blocks.close()


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


def new_tab(browser, problems: list[str], **options):
    """A tab of a context of its own; script errors and requests outside this machine are added to `problems`."""
    tab = browser.new_context(**({"viewport": {"width": 1440, "height": 900}} | options)).new_page()
    tab.problems = problems
    tab.set_default_timeout(15_000)
    tab.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    tab.on("request", lambda request: problems.extend(outside(request.url)))
    tab.on("websocket", lambda connection: problems.extend(outside(connection.url)))
    return tab


@pytest.fixture
def open_tab(browser):
    """Opens tabs whose problems fail the test, see `new_tab`."""
    tabs, problems = [], []

    def open_at(address: str | None, **options):
        tabs.append(new_tab(browser, problems, **options))
        if address is not None:
            tabs[-1].goto(address)
        return tabs[-1]

    yield open_at
    for tab in tabs:
        tab.context.close()
    assert not problems, problems


@pytest.fixture
def no_problems(request):
    """For modules whose tests share the fixture `tab`: a problem fails the test in which it happens."""
    yield
    if "tab" in request.fixturenames:
        assert not request.getfixturevalue("tab").problems


def outside(url: str) -> list[str]:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    here = parts.scheme in ("data", "blob", "about", "file") or is_loopback(parts.hostname or "")
    return [] if here else [f"request outside this machine: {url}"]


def load_scripts(tab) -> None:
    """Puts the page's style, scripts and plot library into an empty tab."""
    host = '<div id="host"><div class="jk-view"></div></div>'
    tab.set_content(f"<style>{web.style()}</style>{host}{web.plotly_element()}")
    tab.add_script_tag(content=web.script())


@pytest.fixture
def modules(open_tab):
    """A fresh tab with the page's scripts, for views by themselves."""
    tab = open_tab(None)
    load_scripts(tab)
    return tab


@pytest.fixture(scope="module")
def functions(browser):
    """One tab for all tests of functions that draw nothing."""
    context = browser.new_context()
    tab = context.new_page()
    load_scripts(tab)
    yield tab
    context.close()


def ask(tab, question: str) -> None:
    """Types a question, asks it and waits until its run is on screen; only live runs have hexadecimal ids."""
    before = tab.get_attribute(".jk-view", "data-run")
    tab.wait_for_selector("#jk-chip.ready", timeout=60_000)
    tab.fill("#question textarea", question)
    tab.click("#ask")
    tab.wait_for_function(
        "before => { const run = document.querySelector('.jk-view').dataset.run;"
        " return run !== before && /^[0-9a-f]{32}$/.test(run); }",
        arg=before,
    )


def wait_until_finished(tab, seconds: float = 60) -> None:
    tab.wait_for_selector('.jk-view[data-finished="true"]', timeout=seconds * 1000)


def plotted(tab, within: str) -> list[dict]:
    """What the plot below a selector draws, by Plotly's own account: names and points of its lines."""
    tab.wait_for_function("within => document.querySelector(within + ' .plot')?.data?.length", arg=within)
    lines = "within => document.querySelector(within + ' .plot').data.map(({name, x, y}) => ({name, x, y}))"
    return tab.evaluate(lines, within)


def seek(tab, step: int) -> None:
    """Moves the step slider as a hand would and waits until the tree has followed."""
    tab.evaluate(
        "step => { const range = document.querySelector('#jk-step'); range.value = step;"
        " range.dispatchEvent(new Event('input', { bubbles: true })); }",
        step,
    )
    tab.wait_for_selector(f':is(svg.tree, .ladder)[data-step="{step}"]')


def set_option(tab, *keys: str) -> None:
    """Presses switches of the page's menu."""
    tab.evaluate("document.querySelector('.page-menu').open = true")
    for key in keys:
        tab.click(f'.page-menu [data-toggle="{key}"]')
    tab.evaluate("document.querySelector('.page-menu').open = false")


def open_save_menu(tab) -> None:
    tab.evaluate("document.querySelectorAll('.page-menu, .save-menu').forEach((menu) => (menu.open = true))")


def number_of(tab, name: str) -> tuple[str, str]:
    """A number of the answer and its definition, as they stand under "Numbers"."""
    tab.evaluate("document.querySelector('.panel-numbers').open = true")
    tab.wait_for_selector(f'[data-metric="{name}"]')
    return tuple(
        tab.evaluate(
            """name => { const value = document.querySelector(`[data-metric=${name}]`);
               return [value, value.nextSibling].map((element) => element.textContent); }""",
            name,
        )
    )
