"""The page over the real default model: what the browser shows equals the trace of the very request it made."""

import secrets

import pytest

from jakiro.trace import Trace
from tests.app.conftest import ask, number_of, plotted, seek, served, wait_until_finished

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def real_address():
    def load():
        from jakiro import JakiroGenerator

        return JakiroGenerator.from_pretrained()

    with served(load) as (_, address):
        yield address


def set_up(tab, length: int) -> None:
    """Opens the settings, fixes the tree and limits the answer."""
    tab.wait_for_selector("#jk-chip.ready")
    tab.click("#jk-settings")
    tab.fill("#length input", str(length))
    tab.get_by_label("Fixed").check()
    tab.fill("#candidates input", "15")
    tab.keyboard.press("Tab")
    tab.click("#close-settings")


@pytest.mark.rare
def test_a_link_opened_elsewhere_writes_the_same_text_when_asked(open_tab, real_address):
    tab = open_tab(real_address)
    set_up(tab, 24)
    for name, value in {"temperature": "1", "seed": "11"}.items():
        tab.eval_on_selector(
            f"#{name} input",
            "(field, value) => { field.value = value; field.dispatchEvent(new Event('input', { bubbles: true })); }",
            value,
        )
    ask(tab, "Name a colour and say why you like it.")
    wait_until_finished(tab)
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.evaluate("document.querySelector('.page-menu').open = true")
    tab.click('[data-action="copy_link"]:visible')
    tab.wait_for_selector(".copy-status:visible")
    link = tab.evaluate("navigator.clipboard.readText()")
    there = open_tab(link)
    there.wait_for_function("() => document.querySelector('#question textarea')?.value.startsWith('Name a colour')")
    there.wait_for_selector("#jk-chip.ready")
    there.click("#ask")
    there.wait_for_function("() => /^[0-9a-f]{32}$/.test(document.querySelector('.jk-view').dataset.run)")
    wait_until_finished(there)
    texts = [one.evaluate("document.querySelector('.answer-text').textContent") for one in (tab, there)]
    assert texts[0] == texts[1] and len(texts[0]) > 20
    assert there.evaluate("Jakiro.moves.state.run.main.header.sampling.temperature") == 1


def test_the_real_answer_tree_and_numbers_equal_the_trace_of_that_request(open_tab, real_address, connect):
    tab = open_tab(real_address)
    set_up(tab, 24)
    nonce = secrets.token_hex(4)
    ask(tab, f"What could the code {nonce} mean?")
    wait_until_finished(tab)
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
        # What the answer's end cut off was right too, and is drawn so, the bonus token last
        delivered = len(step.committed_ids)
        path = [*map(str, step.accepted_path), "bonus"]
        for state, nodes in (("accepted", path[: min(delivered, len(path) - 1)]), ("cut", path[delivered:])):
            drawn = tab.evaluate(f"[...document.querySelectorAll('.node.{state}')].map(n => n.dataset.node)")
            assert sorted(drawn) == sorted(nodes)
    lines = plotted(tab, ".columns")
    assert len(lines) == 2 and lines[-1]["y"][-1] == len(drafted.token_ids)


@pytest.mark.rare
def test_stop_stops_the_real_model_and_the_next_question_is_answered(open_tab, real_address):
    tab = open_tab(real_address)
    set_up(tab, 1000)
    ask(tab, "Write a haiku about autumn.")  # which repeats itself for ever
    tab.wait_for_function("() => Number(document.querySelector('#jk-step').max) > 3")
    tab.click("#stop")
    wait_until_finished(tab)
    assert tab.inner_text(".answer-end").startswith("Stopped after ")
    set_up(tab, 24)
    ask(tab, "Why?")
    wait_until_finished(tab)
    assert tab.inner_text(".answer-text").strip()
