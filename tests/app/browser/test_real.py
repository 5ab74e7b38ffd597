"""The page with the real default model: the browser shows the values of the trace of its own request."""

import secrets

import pytest

from jakiro import JakiroGenerator
from jakiro.trace import Trace
from tests.app.conftest import ask_to_end, number_of, plotted, seek, served

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def real_address():
    with served(JakiroGenerator.from_pretrained) as (_, address):
        yield address


def test_the_real_answer_tree_and_numbers_equal_the_trace_of_that_request(open_tab, real_address, connect):
    tab = open_tab(real_address)
    # Reduced motion skips the tour of the first answer, which shows the numbers of earlier steps
    tab.emulate_media(reduced_motion="reduce")
    tab.wait_for_selector("#jk-chip.ready")
    tab.click("#jk-settings")
    tab.fill("#length input", "24")
    tab.get_by_label("Fixed").check()
    tab.fill("#candidates input", "15")
    tab.keyboard.press("Tab")
    tab.click("#close-settings")
    nonce = secrets.token_hex(4)
    ask_to_end(tab, f"What could the code {nonce} mean?")
    run = tab.get_attribute(".jk-view", "data-run")
    traces = connect(real_address).predict(run, api_name="/trace")
    plain, drafted = (Trace.from_dict(traces[method]) for method in ("autoregressive", "jakiro"))

    assert nonce in drafted.header.messages[-1]["content"]
    assert drafted.token_ids == plain.token_ids
    assert tab.evaluate("document.querySelector('.answer-text').textContent") == drafted.text
    assert number_of(tab, "tau")[0] == f"{drafted.delivered_tau:.2f}"
    assert f"{len(plain.token_ids)} tokens" in number_of(tab, "same")[0]
    for index in (0, len(drafted.steps) // 2, len(drafted.steps) - 1):
        seek(tab, index)
        step = drafted.steps[index]
        assert tab.get_attribute("svg.tree", "data-nodes") == str(len(step.nodes))
        # Accepted nodes after the end of the answer have the state "cut", the bonus token last
        delivered = len(step.committed_ids)
        path = [*map(str, step.accepted_path), "bonus"]
        for state, nodes in (("accepted", path[: min(delivered, len(path) - 1)]), ("cut", path[delivered:])):
            node_ids = tab.evaluate(f"[...document.querySelectorAll('.node.{state}')].map(n => n.dataset.node)")
            assert sorted(node_ids) == sorted(nodes)
    lines = plotted(tab, ".columns")
    assert len(lines) == 2 and lines[-1]["y"][-1] == len(drafted.token_ids)
