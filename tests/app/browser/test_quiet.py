"""What the page leaves undone, so that the model has the cores: what is out of sight."""

from tests.app.conftest import ask, serve, wait_until_finished
from tests.app.fake import FakeGenerator, default_answer

SMALL = {"width": 1440, "height": 700}  # the panels for one step are below it
NEW_ANSWER = """() => { const view = document.querySelector('.jk-view');
  if (!/^[0-9a-f]{32}$/.test(view.dataset.run)) return null;
  return [Number(document.querySelector('#jk-step').max), Jakiro.moves.state.run.main.steps.length]; }"""


def test_with_a_new_answer_s_first_words_the_bar_is_its_own(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.wait_for_selector("#jk-chip.ready", timeout=30_000)
    tab.wait_for_function("() => Number(document.querySelector('#jk-step')?.max) > 10")
    tab.fill("#question textarea", "Why?")
    tab.click("#ask")
    last, steps = tab.wait_for_function(NEW_ANSWER).json_value()
    assert last <= max(0, steps - 1)
    wait_until_finished(tab)


def test_panels_out_of_sight_are_drawn_when_somebody_looks_and_at_the_end(open_tab):
    blocks, address = serve(lambda: FakeGenerator(default_answer() * 2, pace=1))
    try:
        tab = open_tab(address, viewport=SMALL)
        drawn = "Number(document.querySelector('.panels .mask').dataset.rows)"
        nodes = "Jakiro.moves.state.run.main.steps[Jakiro.moves.state.index].nodes.length"
        ask(tab, "Why?")
        tab.evaluate("() => { window.before = document.querySelector('.panels .mask'); }")
        tab.wait_for_timeout(2500)
        assert tab.evaluate("document.querySelector('.panels .mask') === before")
        tab.evaluate("document.querySelector('.panels').scrollIntoView()")
        tab.wait_for_function("() => document.querySelector('.panels .mask') !== before")
        assert not tab.evaluate("Jakiro.moves.state.run.finished")
        tab.evaluate("scrollTo(0, 0)")
        wait_until_finished(tab)
        assert tab.evaluate(drawn) == tab.evaluate(nodes)
    finally:
        blocks.close()
