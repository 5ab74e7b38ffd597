"""The start of the page behind proxies of the environment and at addresses of every kind."""

import os
import subprocess
import sys
import urllib.request

import pytest

from app import proxies
from app.serving.server import listening_host
from tests.app.conftest import served
from tests.app.fake import FakeGenerator
from tests.server.served import PATIENCE

# No server listens on port 9, which is reserved for the discard protocol
NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def no_proxies(monkeypatch):
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    # `monkeypatch` restores these two, even if a test sets them again
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "")
    return monkeypatch


def launched(host: str) -> str:
    """Start a page at this host, request its status, and return its address."""
    with served(FakeGenerator, host) as (_, address):
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"{address}status", timeout=PATIENCE
        ) as said:
            assert said.status == 200
        return address


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2"])
def test_a_page_behind_a_proxy_starts_and_asks_itself_directly(no_proxies, host):
    for name in ("HTTP_PROXY", "ALL_PROXY"):
        no_proxies.setenv(name, NOBODY)
    launched(host)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_a_page_listens_at_an_address_of_ipv6(host):
    assert launched(host).startswith("http://[::1]:")


@pytest.mark.parametrize("host", ["203.0.113.7", "no-such-name", "a b"])
def test_an_address_of_another_machine_is_one_sentence(loopback_guard, host):
    with pytest.raises(
        ValueError, match=r"^Cannot listen on “.*Use an address of this machine, such as 127.0.0.1, ::1 "
    ):
        listening_host(host)
    assert loopback_guard.pop() == (host,)


def test_this_machine_is_never_asked_through_a_proxy(no_proxies):
    no_proxies.setenv("http_proxy", NOBODY)
    no_proxies.setenv("no_proxy", "[fd00::1], .example.org,")
    proxies.ask_directly("10.0.0.7")
    for name in ("NO_PROXY", "no_proxy"):
        assert os.environ[name] == "fd00::1,.example.org,localhost,127.0.0.1,::1,10.0.0.7"
    for everything in ("*", "example.org,*"):
        no_proxies.setenv("no_proxy", everything)
        proxies.ask_directly()
        assert os.environ["no_proxy"] == everything


@pytest.mark.parametrize("proxy", [NOBODY, "socks5://127.0.0.1:9", "socks5h://127.0.0.1:9", "127.0.0.1:9"])
def test_proxies_of_every_usual_kind_can_be_used(no_proxies, proxy):
    no_proxies.setenv("ALL_PROXY", proxy)
    proxies.check_proxies()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "gopher://ada:engine@h"),
        ("https_proxy", "http://ada:engine@h:port"),
        ("SSL_CERT_FILE", "/nowhere"),
    ],
)
def test_an_invalid_proxy_is_one_sentence_without_passwords(no_proxies, name, value):
    no_proxies.setenv(name, value)
    with pytest.raises(ValueError, match=rf"settings in .*{name}.* cannot be used: .*; correct or unset ") as refused:
        proxies.check_proxies()
    assert "engine" not in str(refused.value)


def started(*command: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, *command], env=os.environ | variables, capture_output=True, text=True, timeout=600
    )


def test_the_page_says_at_once_that_its_proxy_cannot_be_used():
    ended = started("app.py", ALL_PROXY="gopher://h")
    assert ended.returncode == 1 and "ALL_PROXY" in ended.stderr and ended.stderr.count("\n") == 1


@pytest.mark.rare
def test_the_page_reads_its_options():
    """Run app.py itself: other tests do not call it after its check of proxies."""
    ended = started("app.py", "--help", COLUMNS="200")
    assert ended.returncode == 0, ended.stderr
    assert "--fixed-model" in ended.stdout and "--graphs" not in ended.stdout


@pytest.mark.rare
def test_gradio_is_imported_behind_socks_and_finds_no_ipv6_address_that_it_cannot_try():
    script = "import app, gradio.http_server as server; print(app.named_host, server.LOCALHOST_NAME)"
    ended = started("-c", script, ALL_PROXY="socks5://127.0.0.1:9", NO_PROXY="[::1]", GRADIO_SERVER_NAME="::1")
    assert ended.stdout.split() == ["::1", "127.0.0.1"], ended.stderr
