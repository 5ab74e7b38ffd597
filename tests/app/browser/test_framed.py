"""The page in a frame of its full height, as on the Hub: drawers, cards and headings are in the visible part.

A small page stands in for the Hub and implements the parent side of iframe-resizer; Gradio includes the child side.
The frame gets the height that the page requests and does not scroll; the page around it does.
"""

import http.server
import threading
from functools import partial
from unittest import mock

import pytest

from tests.app.conftest import ask_to_end, served, wait_for_frames
from tests.app.fake import FakeGenerator
from tests.server.served import PATIENCE

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("no_problems")]

# The Hub's page is on another site than the page in its frame
HEADER = 60
HUB_PAGE = """<!doctype html><html lang="en"><head><title>A Space</title>
<meta name="viewport" content="width=device-width"><style>body { margin: 0 } header { height: %dpx; background: #ddd }
iframe { display: block; width: 100%%; border: 0; min-height: calc(100vh - %dpx) }</style></head>
<body><header>ada/jakiro</header><iframe id="space" scrolling="no" allow="clipboard-write" src="%s"></iframe><script>
  const MARK = "[iFrameSizer]", frame = document.querySelector("iframe");
  const tell = (words) => frame.contentWindow.postMessage(MARK + words, "*");
  const place = () => {
    const { top, left } = frame.getBoundingClientRect();
    return { top: top + scrollY, left: left + scrollX };
  };
  let watched = false;
  window.said = [];
  const pageInfo = () => tell("pageInfo:" + JSON.stringify({
    iframeHeight: frame.offsetHeight, iframeWidth: frame.offsetWidth, offsetTop: place().top, offsetLeft: place().left,
    clientHeight: innerHeight, clientWidth: innerWidth, scrollTop: scrollY, scrollLeft: scrollX }));
  const acts = {
    init: (height) => acts.size(height),
    size: (height) => {
      frame.style.height = height + "px";
      if (watched) pageInfo();
    },
    scrollTo: (y, x) => window.scrollTo(x, y),
    scrollToOffset: (y, x) => window.scrollTo(x + place().left, y + place().top),
    pageInfo: () => {
      watched = true;
      pageInfo();
    },
    pageInfoStop: () => { watched = false; },
  };
  ["scroll", "resize"].forEach((name) => addEventListener(name, () => watched && pageInfo()));
  const begin = () => tell("space:0:false:false:0:true:false:null:bodyOffset:null:null:0:false:parent:scroll");
  frame.addEventListener("load", begin);
  addEventListener("message", ({ data }) => {
    if (data === "[iFrameResizerChild]Ready") begin();
    if (typeof data !== "string" || !data.startsWith(MARK)) return;
    const [, height, width, kind] = data.slice(MARK.length).split(":");
    said.push(kind);
    acts[kind]?.(Number(height), Number(width));
  });
</script></body></html>"""


@pytest.fixture(scope="module")
def framed_address():
    environment = mock.patch.dict("os.environ", JAKIRO_FRAME_ANCESTORS="http://localhost:*")
    with environment, served(lambda: FakeGenerator(pace=0.05)) as (_, address):
        yield address


@pytest.fixture(scope="module")
def hub(framed_address, tmp_path_factory):
    """Yield the address of a page on another site that shows the page in a frame."""
    folder = tmp_path_factory.mktemp("hub")
    (folder / "index.html").write_text(HUB_PAGE % (HEADER, HEADER, framed_address))
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()


@pytest.fixture(scope="module", params=[(390, 844), (1440, 900)], ids=["phone", "desktop"])
def tab(request, tabs, hub):
    """Yield the Hub's tab once the page in its frame has a height; all tests of a width share it."""
    width, height = request.param
    tab = tabs.open(None, [], viewport={"width": width, "height": height})
    tab.goto(hub)
    page = tab.wait_for_selector("#space").content_frame()
    page.wait_for_selector("#jk-chip.ready")
    tab.wait_for_function("said.includes('pageInfo') && said.includes('size')")
    wait_for_height(page)
    ask_to_end(page, "Why is the sky blue?")
    yield tab
    tab.close()


@pytest.fixture
def framed(tab):
    """Return (the Hub's tab, the page in its frame), scrolled to the top of the tab Watch with an answer."""
    page = tab.wait_for_selector("#space").content_frame()
    page.click('[role="tab"][data-tab="watch"]')
    tab.evaluate("window.scrollTo(0, 0)")
    wait_for_height(page)
    return tab, page


def wait_for_height(page) -> None:
    page.wait_for_function("Math.abs(innerHeight - document.documentElement.scrollHeight) <= 1")


def see(page, selector: str, share: float = 0.999) -> None:
    """Wait until this share of an element is in the visible part of the window."""
    from playwright.sync_api import expect

    expect(page.locator(selector).first, selector).to_be_in_viewport(ratio=share, timeout=1000 * PATIENCE)


WHOLE = """() => [...document.querySelectorAll('.jk-view')]
  .every((view) => view.getBoundingClientRect().bottom <= innerHeight + 1)"""
# An element of each tab that appears after its code and data
SHOWS = {
    "race": ".race .lane.chosen", "lesson": ".stop", "recordings": ".recording-card", "benchmark": ".bench-results h2",
    "watch": ".answer-text .token",
}  # fmt: skip


@pytest.mark.rare
@pytest.mark.parametrize(("name", "content"), SHOWS.items(), ids=SHOWS)
def test_the_frame_is_as_tall_as_the_page_on_every_tab_and_nothing_is_cut(framed, name, content):
    tab, page = framed
    page.click(f'[role="tab"][data-tab="{name}"]')
    page.wait_for_selector(content)
    wait_for_height(page)
    page.wait_for_function(WHOLE)
    assert page.evaluate("innerHeight") == tab.evaluate("document.querySelector('iframe').offsetHeight")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_question_row_and_answer_are_on_the_first_screen_and_on_a_laptop_the_play_bar(framed):
    """The page receives the size of the window by its `pageInfo` request."""
    tab, page = framed
    see(page, "#question textarea")
    see(page, ".answer-text .selected", share=0.5)
    before = tab.viewport_size
    # The Hub's header is above 700 pixels of the frame, or takes a part of them
    for height in (700 + HEADER, 700):
        tab.set_viewport_size({"width": 1200, "height": height})
        page.wait_for_function(
            "height => getComputedStyle(document.documentElement).getPropertyValue('--window') === `${height}px`",
            arg=height - HEADER,
        )
        wait_for_height(page)
        for part in (".scrubber", ".scrubber [data-action=play]", "#jk-answer", "svg.tree"):
            see(page, part)
    tab.set_viewport_size(before)


def test_all_settings_can_be_reached_though_the_frame_does_not_scroll(framed):
    _, page = framed
    page.click("#jk-settings")
    drawer = page.locator("#settings")
    assert drawer.evaluate("drawer => drawer.getBoundingClientRect().bottom <= innerHeight + 1")
    assert drawer.evaluate(
        "drawer => drawer.scrollHeight <= drawer.clientHeight || getComputedStyle(drawer).overflowY === 'auto'"
    )
    page.click("#close-settings")


@pytest.mark.parametrize(
    ("opener", "closer"),
    [("#jk-settings", "#close-settings"), ("#jk-show-chats", "#jk-chats .chats-head .icon-button")],
    ids=["settings", "chats"],
)
def test_a_drawer_opens_in_the_part_on_screen(framed, opener, closer):
    tab, page = framed
    tab.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
    wait_for_frames(page)
    page.evaluate("opener => document.querySelector(opener).click()", opener)
    see(page, closer)
    page.click(closer)


@pytest.mark.rare
def test_the_cards_of_a_token_and_of_a_word_are_on_screen(framed):
    tab, page = framed
    page.wait_for_selector(":is(svg.tree .node, .ladder button):visible")
    page.evaluate("Jakiro.moves.seek(Jakiro.state.index)")  # holds the step, so that its nodes stay
    wait_for_frames(page)
    for place in ("first", "last"):
        node = getattr(page.locator(":is(svg.tree .node, .ladder [data-node]):visible"), place)
        spot = node.evaluate("node => node.getBoundingClientRect().top")
        # The node is at the lower edge of the screen
        tab.evaluate(f"window.scrollTo(0, {HEADER} + {spot} - innerHeight + 40)")
        wait_for_frames(page)
        node.dispatch_event("click")
        page.wait_for_selector(".jk-card.pinned")
        see(page, ".jk-card.pinned")
        node.dispatch_event("click")
    word = page.locator(".answer-text .selected").first
    spot = word.evaluate("word => word.getBoundingClientRect().top")
    for room in ("40", "innerHeight - 40"):
        tab.evaluate(f"window.scrollTo(0, {HEADER} + {spot} - innerHeight + {room})")
        wait_for_frames(page)
        word.evaluate("word => word.click()")
        page.wait_for_selector(".alternatives:popover-open")
        see(page, ".alternatives")
        page.evaluate("document.querySelector('.alternatives').hidePopover()")


def test_next_brings_the_new_stop_s_heading_on_screen(framed):
    tab, page = framed
    page.click('[role="tab"][data-tab="lesson"]')
    for _ in range(3):
        wait_for_height(page)
        tab.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        wait_for_frames(page)
        before = page.get_attribute(".stop", "data-stop")
        page.evaluate("document.querySelector('[data-control=next]').click()")
        page.wait_for_function("before => document.querySelector('.stop').dataset.stop !== before", arg=before)
        see(page, ".stop h2")


def test_in_a_hall_a_stop_fits_the_window_around_the_frame(framed):
    tab, page = framed
    if tab.viewport_size["width"] < 600:
        pytest.skip("no hall has a phone's screen")
    page.evaluate("Jakiro.projector(true)")
    try:
        page.click('[role="tab"][data-tab="lesson"]')
        page.wait_for_selector(".stop")
        lowest = page.evaluate("document.querySelector('.stop').getBoundingClientRect().bottom")
        assert lowest <= tab.viewport_size["height"]
    finally:
        page.evaluate("Jakiro.projector(false)")
