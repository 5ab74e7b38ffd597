"""By which network address visitors are counted: the connection's own, on a Space the one that its proxies saw."""

import http.client
import json
from urllib.parse import urlsplit

import pytest

from app.serving.guard import counted_address
from tests.app.conftest import served
from tests.app.fake import FakeGenerator

LIMIT = 60
BODY = json.dumps({"data": [], "session_hash": "chosen by the client"})


@pytest.fixture
def page(request, monkeypatch):
    """The address of a page, on a Space where the parameter says so."""
    monkeypatch.delenv("SPACE_ID", raising=False)
    if request.param:
        monkeypatch.setenv("SPACE_ID", "ada/jakiro")
    with served(FakeGenerator, requests_per_minute_address=LIMIT) as (_, address):
        yield address


def post(address: str, forwarded: str, here: str = "127.0.0.2") -> int:
    """The status of one request that comes from `here` and says for whom."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60, source_address=(here, 0))
    headers = {"Content-Type": "application/json", "X-Forwarded-For": forwarded}
    connection.request("POST", "/gradio_api/call/trace", BODY, headers)
    status = connection.getresponse().status
    connection.close()
    return status


@pytest.mark.parametrize("page", [True], indirect=True)
def test_on_a_space_the_address_that_its_proxy_saw_is_counted_and_none_that_the_visitor_wrote(page):
    """uvicorn's own middleware reads the header, from loopback as a Space's proxy would be inside its network."""
    proxy = "127.0.0.1"
    one = [post(page, f"198.51.100.{number}, 203.0.113.7, 10.16.3.80", proxy) for number in range(LIMIT + 1)]
    assert 429 not in one[:LIMIT] and one[LIMIT] == 429
    assert post(page, "203.0.113.7, 203.0.113.8, 10.16.3.80", proxy) != 429, "another visitor of the same proxy"
    assert post(page, "203.0.113.9, 203.0.113.7", proxy) == 429, "the same visitor by another way"


@pytest.mark.parametrize("page", [False], indirect=True)
def test_elsewhere_what_a_connection_says_of_its_address_is_not_believed(page):
    found = [post(page, f"203.0.113.{number}") for number in range(LIMIT + 1)]
    assert 429 not in found[:LIMIT] and found[LIMIT] == 429


def root_for(address: str, **headers: str) -> tuple[str, str]:
    """The page's own address as its settings and its way out name it, for one who says where the page is seen."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    connection.request("GET", "/config", headers=headers)
    root = json.load(connection.getresponse())["root"]
    connection.request("GET", "/logout", headers=headers)
    return root, connection.getresponse().headers["location"]


SPOOFED = {
    "X-Forwarded-For": "203.0.113.7",
    "X-Forwarded-Host": "evil.example",
    "X-Gradio-Server": "http://evil.example",
}


@pytest.mark.parametrize("page", [False], indirect=True)
def test_nobody_tells_the_page_its_address(page):
    assert {name.rstrip("/") for name in root_for(page, **SPOOFED)} == {page.rstrip("/")}


@pytest.mark.parametrize("page", [True], indirect=True)
def test_a_spaces_proxy_tells_the_page_its_address(page):
    assert {name.rstrip("/") for name in root_for(page, **SPOOFED)} == {"http://evil.example"}


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::"),
        ("2001:db8:1:2:ffff::9", "2001:db8:1:2::"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_an_ipv6_connection_is_counted_by_the_network_that_it_has_whole(address, counted):
    assert counted_address(address) == counted
