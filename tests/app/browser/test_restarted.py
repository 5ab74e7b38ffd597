"""After a killed server has restarted, the page reports the lost answer, keeps its content and works again."""

from urllib.parse import urlsplit

import pytest

from tests.app.conftest import ask, ask_to_end, served_apart

pytestmark = [pytest.mark.browser, pytest.mark.rare]


def test_a_page_whose_server_was_restarted_says_what_was_lost_and_goes_on(open_tab):
    with served_apart("serve_fake", 1) as (server, address):
        tab = open_tab(address)
        ask(tab, "Why?")
        tab.wait_for_function("() => Jakiro.moves.state.run.main?.steps.length > 2")
        server.kill()
        server.wait()
        tab.wait_for_selector("#jk-chip.failed")
        tab.wait_for_selector(".toast-wrap", state="attached")
        assert tab.is_hidden(".toast-wrap"), "Gradio's own message does not cover that of the page"
    with served_apart("serve_fake", 0, port=urlsplit(address).port):
        said = "() => /no longer kept: [1-9][0-9]* tokens of it are here/.test(document.body?.textContent)"
        tab.wait_for_function(said)
        tab.wait_for_function("() => document.querySelector('#question textarea').value === 'Why?'")
        ask_to_end(tab, "Why?")
        assert tab.evaluate("Jakiro.moves.state.run.main.endReason") in ("eos", "length")
