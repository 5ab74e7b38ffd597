"""What the page leaves undone, so that the model has the cores: what is out of sight."""

from tests.app.conftest import ask, wait_until_finished

NEW_ANSWER = """() => { const view = document.querySelector('.jk-view');
  if (!/^[0-9a-f]{32}$/.test(view.dataset.run)) return null;
  return [Number(document.querySelector('#jk-step').max), Jakiro.moves.state.run.main.steps.length]; }"""


def test_with_a_new_answer_s_first_words_the_bar_is_its_own(open_tab, fake_address):
    tab = open_tab(fake_address)
    tab.wait_for_selector("#jk-chip.ready")
    tab.wait_for_function("() => Number(document.querySelector('#jk-step')?.max) > 10")
    tab.fill("#question textarea", "Why?")
    tab.click("#ask")
    last, steps = tab.wait_for_function(NEW_ANSWER).json_value()
    assert last <= max(0, steps - 1)
    wait_until_finished(tab)


def test_a_closed_question_under_the_fold_is_drawn_when_somebody_opens_it(open_tab, fake_address):
    tab = open_tab(fake_address)
    ask(tab, "Why?")
    wait_until_finished(tab)
    assert tab.locator(".panels .mask-table").count() == 0
    tab.click(".panels > summary")
    tab.click(".panel-mask summary")
    tab.wait_for_selector(".panels .mask-table")
    nodes = "Jakiro.moves.state.run.main.steps[Jakiro.moves.state.index].nodes.length"
    assert tab.locator(".panels .mask-table tbody tr").count() == tab.evaluate(nodes)
