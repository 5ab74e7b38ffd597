"""The layout fits one screen on desktops, in frames and on projectors, has one column on phones, and is stable."""

import copy
import itertools

import pytest

from app.page import lesson
from tests.app.conftest import seek, show, wait_for_frames
from tests.app.fake import traces_of
from tests.marks import rarely

pytestmark = pytest.mark.browser
# Sizes at which the page does not scroll, with the class of <html>
ONE_SCREEN = {
    "laptop": (1366, 768, ""),
    "720p": (1280, 720, ""),
    "framed": (1200, 700, "framed"),
    "projector": (1280, 720, "projector"),
    "hall": (1920, 1080, "projector"),
}
PARTS = "['.phases', '.tree-room', '.tree-foot', '.tree-line', '.scrubber', '.plot-pane']"
PLACES = f"""() => Object.fromEntries({PARTS}.map(
  (part) => {{ const box = document.querySelector(`.columns ${{part}}`).getBoundingClientRect();
    const {{ left, top, width, height }} = box;
    return [part, [left, top + scrollY, width, height].map(Math.round)]; }}))"""
DRAWING = "document.querySelector('.columns .plot')._fullLayout._size.h"
OVERFLOW = "document.documentElement.scrollWidth - innerWidth"


def opened(tab, width: int, height: int, kind: str = "", **tree):
    tab.set_viewport_size({"width": width, "height": height})
    tab.evaluate("kind => kind && document.documentElement.classList.add(kind)", kind)
    show(tab, traces_of(**tree), step=0)
    tab.wait_for_function("() => document.querySelector('.columns .plot')?._fullLayout")
    wait_for_frames(tab)
    return tab


@pytest.mark.parametrize(("width", "height", "kind"), ONE_SCREEN.values(), ids=ONE_SCREEN)
def test_the_step_fits_one_screen_and_the_plot_is_at_least_160_pixels_high(modules, width, height, kind):
    tab = opened(modules, width, height, kind, nodes=40)
    assert tab.evaluate(DRAWING) >= 160
    assert tab.evaluate(OVERFLOW) <= 0
    places = tab.evaluate(PLACES)
    assert max(top + tall for _, top, _, tall in places.values()) <= height
    assert places[".tree-room"][3] >= 200


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1920, 1080)])
@pytest.mark.parametrize("further", [[], ["eagle2", "medusa"]], ids=["two lanes", "four lanes"])
def test_the_plot_of_the_race_is_wholly_on_a_projector(modules, width, height, further):
    modules.set_viewport_size({"width": width, "height": height})
    modules.evaluate("document.documentElement.classList.add('projector'); document.body.style.padding = '57px 0 0'")
    traces = traces_of()
    for method in further:
        traces[method] = copy.deepcopy(traces["jakiro"])
        traces[method]["header"]["method"] = method
    show(modules, traces)
    modules.evaluate("Jakiro.setTab('race'); Jakiro.moves.seek(Infinity)")
    modules.wait_for_function("() => document.querySelector('.race.over .plot')?._fullLayout")
    wait_for_frames(modules)
    plot = modules.locator(".race .plot").bounding_box()
    assert plot["y"] + plot["height"] <= height
    assert plot["height"] >= height / 5


@pytest.mark.parametrize("width", [390, 320])
def test_the_facts_of_a_phone_are_evenly_spaced(modules, width):
    modules.evaluate("document.body.style.margin = 0")
    opened(modules, width, 844)
    boxes = modules.evaluate(
        "[...document.querySelectorAll('.headline .fact:not([hidden])')].map((fact) =>"
        " (({ left, right, top, height }) => [left, right, top, height])(fact.getBoundingClientRect()))"
    )
    assert len(boxes) == 3
    assert len({round(top) for _, _, top, _ in boxes}) == 1, "one row"
    gaps = [after[0] - before[1] for before, after in itertools.pairwise(boxes)]
    assert gaps[0] == pytest.approx(gaps[1], abs=1) and gaps[0] >= 12
    assert all(height >= 44 for *_, height in boxes), "large enough for a finger"


@pytest.mark.parametrize("width", [1366, 390])
def test_nothing_of_the_figure_moves_between_phases_and_steps(modules, width):
    tab = opened(modules, width, 768, nodes=24)
    places = []
    for step in (0, 1, 5):
        seek(tab, step)
        for phase in (1, 2, 3):
            tab.evaluate("phase => Jakiro.moves.setPhase(phase)", phase)
            wait_for_frames(tab)
            places.append(tab.evaluate(PLACES))
    assert all(place == places[0] for place in places[1:]), places


@pytest.mark.parametrize("width", [1024, 768, 390, 320])
def test_narrow_pages_scroll_down_only(modules, width):
    tab = opened(modules, width, 640, nodes=24)
    for name in ("watch", "race", "recordings"):
        tab.evaluate("name => Jakiro.setTab(name)", name)
        wait_for_frames(tab)
        assert tab.evaluate(OVERFLOW) <= 0, name


def test_a_large_tree_is_folded_to_rows_that_can_be_read(modules):
    tab = opened(modules, 1280, 720, nodes=60)
    rows = "[...document.querySelectorAll('svg.tree .node rect')].map((rect) => rect.getBoundingClientRect().top)"
    tops = sorted(set(map(round, tab.evaluate(rows))))
    assert len(tops) > 5
    assert min(after - before for before, after in itertools.pairwise(tops)) >= 15
    assert tab.locator("svg.tree .pill").count() > 0
    tab.click(".whole-tree")
    tab.wait_for_selector("dialog svg.tree")
    assert tab.locator("dialog svg.tree .pill").count() == 0


def test_a_small_tree_has_the_result_under_each_guess(modules):
    tab = opened(modules, 1366, 768, nodes=6, depth=3)
    tab.evaluate("Jakiro.moves.setPhase(1)")
    wait_for_frames(tab)
    notes = tab.locator("svg.tree .note").all_text_contents()
    assert notes and all(note.endswith("sure") for note in notes), "nothing of the result before the check"
    tab.evaluate("Jakiro.moves.setPhase(3)")
    wait_for_frames(tab)
    nodes = "[...document.querySelectorAll('svg.tree .node:not(.root)')]"
    for state, text in tab.evaluate(f"{nodes}.map((node) => [node.dataset.state, node.textContent])"):
        expected = {
            "accepted": "✓ right",
            "refused": "✗ model: ",
            "not_reached": "not checked",
            "bonus": "the model itself",
        }
        assert expected[state] in text


def test_lines_are_named_in_place_with_one_large_factor(modules):
    tab = opened(modules, 1366, 768)
    texts = tab.evaluate("document.querySelector('.columns .plot').layout.annotations.map(({ text }) => text)")
    speedup = tab.evaluate("(({ main, plain }) => Jakiro.metrics.speedup(main, plain))(Jakiro.state.run)")
    assert f"<b>{speedup:.1f}×</b>" in texts
    assert any(text.startswith("<b>Jakiro, ") for text in texts)
    assert any(text.startswith("Plain decoding, ") for text in texts)
    assert tab.locator(".columns .plot .legend").count() == 0


def test_the_race_ends_with_bars_of_seconds_and_is_replayed_slowly(modules):
    tab = opened(modules, 1366, 768)
    tab.evaluate("Jakiro.setTab('race'); Jakiro.moves.seek(Infinity)")
    tab.wait_for_selector(".race.over")
    tab.wait_for_timeout(700)  # the bars change once, in 600 ms
    widths = tab.evaluate(
        "Object.fromEntries(['main', 'plain'].map((role) =>"
        " [role, document.querySelector(`.race-bar.lane-${role} .race-fill`).getBoundingClientRect().width]))"
    )
    clocks = tab.evaluate("(({ main, plain }) => [main.clock, plain.clock])(Jakiro.state.run)")
    assert widths["main"] / widths["plain"] == pytest.approx(clocks[0] / clocks[1], rel=0.02)
    assert tab.inner_text(".huge").endswith("× faster")
    tab.click('[data-race-speed="0.1"]')
    tab.evaluate("Jakiro.moves.play(true)")
    tab.wait_for_function("Jakiro.state.time > 0")
    frames = tab.evaluate(
        """() => new Promise((done) => { const seen = [];
          const look = (now) => { seen.push([now, Jakiro.state.time]);
            if (seen.length < 10) requestAnimationFrame(look); else done(seen); };
          requestAnimationFrame(look); })"""
    )
    # The time in the second frame may be that of the first
    passed, played = (frames[-1][0] - frames[0][0]) / 1000, frames[-1][1] - frames[1][1]
    assert 0 < played <= 0.1 * passed + 0.001, "a tenth of real time"


def names_of_all_trees(tab) -> list[tuple[str, bool]]:
    """Return the name of every visible node of every step, and whether its token was kept."""
    names = """() => [...document.querySelectorAll('svg.tree .node')].map((node) =>
      [node.querySelector('text').textContent, ['accepted', 'bonus'].includes(node.dataset.state)])"""
    found = []
    for step in range(tab.evaluate("Jakiro.lane().steps.length")):
        seek(tab, step)
        wait_for_frames(tab)
        found += tab.evaluate(names)
    return found


@pytest.mark.parametrize("depth", [8, rarely(7)])
def test_words_of_deep_trees_are_complete(modules, depth):
    tab = opened(modules, 1366, 768, nodes=24, depth=depth)
    assert not [name for name, _ in names_of_all_trees(tab) if "…" in name]
    assert tab.evaluate("Jakiro.lane().deepest") == depth
    assert tab.evaluate(
        "document.querySelector('svg.tree').clientWidth <= document.querySelector('.tree-room').clientWidth"
    )


def test_words_of_a_path_with_folded_branches_keep_four_letters(modules):
    tab = opened(modules, 1280, 720, nodes=64, depth=8)
    names = names_of_all_trees(tab)
    assert tab.evaluate("Jakiro.lane().deepest") == 8 and tab.locator("svg.tree .pill").count()
    assert not [name for name, kept in names if kept and "…" in name and len(name.strip(" …")) < 4]


@pytest.mark.parametrize(("drafter", "explained"), [({"name": "fake-head"}, True), (None, False)])
def test_a_head_whose_guesses_are_almost_never_right_is_explained(modules, drafter, explained):
    """German, Chinese and Arabic have about one token per step: the head was trained on English."""
    traces = traces_of()
    plain, drafted = traces["autoregressive"], traces["jakiro"]
    drafted["header"]["drafter"] = drafter
    drafted["steps"] = [step | {"accepted_path": []} for step in plain["steps"]]
    show(modules, {"jakiro": drafted}, source="opened")
    assert modules.is_visible(".fact-hint") == explained
    if explained:
        assert "trained on English" in modules.inner_text(".fact-hint")


def test_the_lesson_s_titles_have_no_numbers_with_gaps(modules):
    modules.add_script_tag(content=lesson.script())
    modules.evaluate(
        "() => { const host = document.createElement('div');"
        " host.innerHTML = '<div class=\"jk-view jk-lesson\"></div>';"
        " document.body.append(host); Jakiro.mountLesson(host, { lesson_recordings: async () => null }); }"
    )
    titles = modules.locator(".stop-title").all_text_contents()
    assert len(titles) == 10 and not any(title[0].isdigit() for title in titles)


@pytest.mark.parametrize("width", [320, 390, 1366])
def test_facts_and_actions_of_an_answer_do_not_overlap(modules, width):
    tab = opened(modules, width, 768)
    facts = "document.querySelectorAll('.headline > :is(.fact, .link-button):not([hidden])')"
    rect = "(one) => (({ left, right, top, bottom }) => [left, right, top, bottom])(one.getBoundingClientRect())"
    boxes = tab.evaluate(f"[...{facts}].map({rect})")
    assert len(boxes) >= 3
    for first, second in itertools.combinations(boxes, 2):
        (left, right, top, bottom), (other_left, other_right, other_top, other_bottom) = first, second
        assert right <= other_left + 1 or other_right <= left + 1 or bottom <= other_top + 1 or other_bottom <= top + 1
    assert min(left for left, *_ in boxes) >= 0 and max(right for _, right, *_ in boxes) <= width


def test_the_privacy_sentence_of_save_is_complete(modules):
    tab = opened(modules, 390, 768)
    tab.evaluate("document.querySelectorAll('.page-menu, .save-menu').forEach((menu) => (menu.open = true))")
    clipped = "(({ scrollWidth, clientWidth }) => scrollWidth - clientWidth)(document.querySelector('.save-list p'))"
    assert tab.is_visible(".save-list p") and tab.evaluate(clipped) <= 0


@pytest.mark.rare
def test_fields_are_dark_in_dark_mode_with_their_spinners(open_tab, fake_address):
    tab = open_tab(fake_address, color_scheme="dark")
    tab.click("#jk-settings")
    schemes = (
        "[...document.querySelectorAll('#settings input[type=number]')].map((one) => getComputedStyle(one).colorScheme)"
    )
    colour_schemes = tab.evaluate(schemes)
    assert len(colour_schemes) > 5 and set(colour_schemes) == {"dark"}
