"""The tab "How it works": every control changes its own values only, which equal calculations in Python."""

import math

import pytest

from app.page import lesson
from app.words import lesson as lesson_words
from app.words.lesson import FAMILY
from tests.app import lesson_tab as of
from tests.app.conftest import plotted

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("no_problems")]
STOPS = range(1, 11)


@pytest.fixture(scope="module")
def recorded():
    return of.Recorded()


@pytest.fixture(scope="module")
def tab(tabs):
    """Yield the tab that all tests share."""
    tab = tabs.open(None, [], reduced_motion="reduce")
    of.mount(tab)
    yield tab
    tab.close()


def test_the_recordings_are_small_and_each_pair_has_one_text(recorded):
    assert lesson.RECORDINGS.stat().st_size < 1_500_000
    assert max(len(step["parent"]) for step in recorded.steps("greedy")) == 64
    for name in set(recorded.recordings) - {"shallow", "family"}:
        assert recorded.ids(name, "jakiro") == recorded.ids(name, "autoregressive"), name
    assert recorded.ids("shallow", "jakiro") == recorded.ids("greedy", "jakiro")
    family = [recorded.ids("family", method) for method in FAMILY]
    assert family == family[:1] * len(FAMILY)
    for seed in (1, 2):
        assert recorded.ids(f"seed-{seed}-shared", "jakiro") == recorded.ids(f"seed-{seed}-own", "jakiro")
    assert recorded.ids("seed-1-shared", "jakiro") != recorded.ids("seed-2-shared", "jakiro")


@pytest.mark.parametrize("stop", STOPS)
def test_a_wrong_answer_gives_its_reason_and_another_try(tab, stop):
    of.go(tab, stop)
    text, form = lesson_words.STOPS[stop - 1], f'[data-question="{stop}"]'
    right = text["right"]
    wrong = 0 if right else 1
    for option, sign in ((wrong, "✗"), (right, "✓")):
        tab.click(f'{form} [data-option="{option}"] summary')
        (said,) = tab.locator(f"{form} .feedback:visible").all_inner_texts()
        assert said.startswith(sign) and said.endswith(text["options"][option][1]), "one answer's reason at a time"
    assert tab.locator(".stop math").count() == 1


def test_rows_move_the_pass_and_memory_speed_moves_only_the_floor(tab, recorded):
    of.go(tab, 1)
    of.slide(tab, "rows", 1)
    assert "plain decoding" in of.result(tab, "passes")
    measured, floor = (tab.inner_text(f'[data-bar="{name}"]') for name in ("pass", "weights"))
    assert f"{recorded.check_ms(1):.{0 if recorded.check_ms(1) >= 10 else 1}f}\u00a0ms" in measured
    of.slide(tab, "rows", 33)
    assert tab.inner_text('[data-bar="pass"]') == measured, "rows move the mark on the curve, not the bar of one row"
    mark = plotted(tab, ".chart-host")[-1]
    assert mark["x"] == [33] and mark["y"] == [pytest.approx(recorded.check_ms(33))]
    of.slide(tab, "memory", 90)
    assert tab.inner_text('[data-bar="pass"]') == measured
    assert tab.inner_text('[data-bar="weights"]') != floor
    assert recorded.device["name"] in tab.inner_text(".stop .source")


def test_each_guess_makes_it_less_likely_that_all_hold(tab, recorded):
    of.go(tab, 2)
    step = recorded.steps("greedy")[of.shown_step(tab)]
    chain = of.most_likely_chain(step)[:5]
    chances = []
    for node in chain:
        of.press(tab, "more")
        chances.append(float(of.result(tab, "chain-chance").rstrip(" %").lstrip("<")))
        assert chances[-1] == pytest.approx(100 * math.exp(step["score"][node]), abs=0.06)
    assert chances == sorted(chances, reverse=True)
    assert tab.is_disabled('[data-control="more"]')
    of.press(tab, "target")
    held = sum(node in step["accepted_path"] for node in chain)
    assert 0 < held < len(chain), "the chain should hold at first and then fail"
    assert of.result(tab, "chain").startswith(f"{held} of {len(chain)} right")
    assert tab.locator(".chain-verdict.right").count() == held
    of.press(tab, "restart")
    assert tab.locator(".chain-link").count() == 1


def test_the_mix_moves_candidates_where_experts_differ(tab):
    of.go(tab, 3)
    moved = dict.fromkeys(("differ", "agree"), 0)
    for second in (0, 100):
        of.slide(tab, "mix", second)
        for key in moved:
            moved[key] += int(of.result(tab, f"moved-{key}").split()[0])
    assert moved["agree"] < moved["differ"]
    of.press(tab, "mix-reset")
    assert of.result(tab, "moved-differ").startswith("0 of")


def test_without_the_contrastive_branch_a_level_goes_and_the_passes_stay(tab):
    of.go(tab, 4)
    for pressed, levels in ((None, 3), ("off", 2), ("on", 3)):
        if pressed:
            of.press(tab, "branch", pressed)
        assert of.result(tab, "branch") == f"{levels} levels · 2 head passes"
        assert (tab.locator(".stop .node .hue-2").count() > 0) == (levels == 3)


def test_fewer_candidates_are_the_likeliest_ones_judged_again(tab, recorded):
    of.go(tab, 5)
    step = recorded.steps("greedy")[of.shown_step(tab)]
    for candidates in (4, 24, 63):
        of.slide(tab, "candidates", candidates)
        nodes = of.most_likely(step, candidates)
        assert tab.get_attribute(".stop svg.tree", "data-nodes") == str(len(nodes))
        assert of.result(tab, "kept") == (
            f"Checked again: {of.accepted(step, nodes)} kept, plus the target’s own token"
        )
        expected = 1 + sum(math.exp(step["score"][node]) for node in nodes[1:])
        assert float(tab.inner_text('[data-figure="tokens"]')) == pytest.approx(expected, abs=0.006)
        assert float(tab.inner_text('[data-figure="check"]').split()[0]) == pytest.approx(
            recorded.check_ms(candidates + 1), abs=0.51
        )
        taus = [of.accepted(tree, of.most_likely(tree, candidates)) + 1 for tree in recorded.steps("greedy")]
        assert float(tab.inner_text('[data-figure="tau"]')) == pytest.approx(sum(taus) / len(taus), abs=0.006)
    fewest, most = (of.accepted(step, of.most_likely(step, candidates)) for candidates in (4, 63))
    assert fewest < most == len(step["accepted_path"]), "a large tree should keep more"


def test_a_row_of_the_mask_is_right_only_with_its_path(tab, recorded):
    of.go(tab, 6)
    step = recorded.steps("greedy")[of.shown_step(tab)]
    nodes = of.most_likely(step, 6)
    parents = [nodes.index(step["parent"][node]) if node else -1 for node in nodes]
    row = int(tab.get_attribute("tr.asked", "data-row"))
    path, at = [], row
    while at >= 0:
        path.append(at)
        at = parents[at]
    stranger = next(i for i in range(len(nodes)) if i not in path)
    for pressed, said in (((*path[1:], stranger), "not on its path"), ([stranger], "must see"), ([row], "✓")):
        for cell in pressed:
            tab.click(f'[data-cell="{cell}"]')
        of.press(tab, "mask-check")
        assert said in of.result(tab, "mask")
    assert tab.locator(".mask-table .self").count() == 7


def test_a_guess_comes_before_the_verdict_and_the_score_is_kept(tab, recorded):
    of.go(tab, 7)
    of.press(tab, "reveal")
    gained = 0
    for number in range(1, 4):
        assert of.result(tab, "round") == f"Round {number} of 3"
        assert tab.locator(".stop .node.accepted, .stop .edge.refused, .stop .ghosts text").count() == 0
        if number == 1:
            tab.click('.stop svg.tree [data-node="1"] rect', force=True)
        else:
            tab.focus(".stop .tree-host")
            tab.keyboard.press("Enter")  # at the root: nothing is kept
        of.press(tab, "reveal")
        of.press(tab, "reveal")
        num_kept = tab.locator(".stop .node.accepted").count()
        assert f"adds {num_kept + 1} token" in of.result(tab, "verdict")
        gained += num_kept + 1
        if number < 3:
            of.press(tab, "reveal")
    score = of.result(tab, "score").split()[1]
    assert f"{score} of 3 answers right, {gained} tokens added" in of.result(tab, "verdict")


def test_seed_changes_both_texts_and_shared_dice_change_only_tau(tab, recorded):
    of.go(tab, 8)
    texts, taus = {}, {}
    for seed in ("1", "2"):
        for shared in ("on", "off"):
            of.press(tab, "seed", seed)
            of.press(tab, "noise", shared)
            plain, drafted = (tab.inner_text(f'[data-text="{name}"]') for name in ("plain", "drafted"))
            assert plain == drafted
            assert of.result(tab, "same").startswith("✓ Same text")
            texts[seed, shared], taus[seed, shared] = drafted, float(tab.inner_text('[data-figure="dice-tau"]'))
            name = f"seed-{seed}-{'shared' if shared == 'on' else 'own'}"
            assert taus[seed, shared] == pytest.approx(recorded.tau(name), abs=0.006)
    for seed in ("1", "2"):
        assert texts[seed, "on"] == texts[seed, "off"]
        assert taus[seed, "on"] > taus[seed, "off"]
    assert texts["1", "on"] != texts["2", "on"]


def test_temperature_and_top_p_change_the_shares_of_a_recorded_words_alternatives(tab, recorded):
    of.go(tab, 8)
    of.press(tab, "seed", "1")
    header, steps = recorded.payloads("seed-1-shared", "jakiro", "header")[0], recorded.steps("seed-1-shared")
    places = [*header["first_alternatives"], *(alternative for step in steps for alternative in step["alternatives"])]
    surest = [tokens[1][-1] for _, tokens in places]
    place = surest.index(min(surest))
    assert of.result(tab, "chances-place").startswith(f"Word {place + 1}, after")
    logs = [alternative[-1] for alternative in places[place][1][1:]]
    for temperature, top_p in ((1, 1), (0, 1), (0.5, 1), (2, 1), (1, 0.6), (2, 0.3)):
        of.slide(tab, "temperature", temperature)
        of.slide(tab, "top-p", top_p)
        weights = [math.exp((log - logs[0]) / temperature) if temperature else float(log == logs[0]) for log in logs]
        top_weights = [weight if sum(weights[:i]) < top_p * sum(weights) else 0 for i, weight in enumerate(weights)]
        shares = tab.eval_on_selector_all(".chance", "rows => rows.map(row => Number(row.dataset.share))")
        assert shares == pytest.approx([weight / sum(top_weights) for weight in top_weights], abs=2e-4)
        assert of.result(tab, "chances") == f"{sum(map(bool, top_weights))} of these 5 are possible."
    of.press(tab, "word-after")
    assert of.result(tab, "chances-place").startswith(f"Word {place + 2}, after")


def test_the_prediction_follows_the_sliders_and_the_measured_mark_stays(tab, recorded):
    of.go(tab, 9)
    value = "mark => Number(mark.dataset.value)"

    def marks():
        return [tab.eval_on_selector(f'[data-mark="{name}"]', value) for name in ("predicted", "measured")]

    start = marks()
    steps, passes = recorded.steps("small"), recorded.steps("small", "autoregressive")
    plain = sum(step["ms"][1] for step in passes) / len(passes)
    cost = sum(step["ms"][0] + step["ms"][1] for step in steps) / len(steps)
    assert start[0] == pytest.approx(recorded.tau("small") * plain / cost, rel=0.02)
    own_seconds = sum(sum(step["ms"]) for step in steps), sum(sum(step["ms"]) for step in passes)
    assert start[1] == pytest.approx(own_seconds[1] / own_seconds[0], abs=0.006)
    of.slide(tab, "tau", 3)
    for name, milliseconds in (("plain", 30), ("draft", 10), ("check", 50)):
        of.slide(tab, name, milliseconds)
    assert marks() == [pytest.approx(1.5), start[1]]
    of.slide(tab, "check", 99)
    assert "slower than plain" in of.result(tab, "prediction")
    of.press(tab, "speed-reset")
    assert marks() == start


CORE, MORE = (1, 2, 3, 5, 7, 8), (4, 6, 9, 10)


@pytest.mark.parametrize("stops", [CORE, MORE])
def test_back_and_next_walk_the_six_stops_and_the_four_that_say_more(tab, stops):
    of.go(tab, stops[0])
    assert tab.is_disabled('[data-control="back"]')
    for stop in stops[1:]:
        tab.focus('[data-control="next"]')
        tab.keyboard.press("Enter")
        assert tab.inner_text(".stop h2") == lesson_words.STOPS[stop - 1]["title"]
        assert tab.get_attribute('.stop-title[aria-current="step"]', "data-stop") == str(stop)
    assert tab.inner_text('[data-control="next"]') == lesson_words.BROWSER["lesson_race"]
    tab.click('[data-control="back"]')
    assert tab.locator(f'.stop[data-stop="{stops[-2]}"]').count() == 1


def test_the_family_stop_shows_each_methods_tree_at_places_where_all_begin_a_step(tab, recorded):
    begins = {method: recorded.begins("family", method) for method in FAMILY}
    places = sorted(set.intersection(*(set(steps) for steps in begins.values())))
    assert len(places) > 5
    of.go(tab, 10)
    for number in (1, len(places) // 2):
        of.slide(tab, "place", number)
        steps = [begins[method][places[number - 1]] for method in FAMILY]
        expected = [[len(step["parent"]) - 1, len(step["accepted_path"])] for step in steps]
        read_rows = "rows => rows.map(({ cells }) => [Number(cells[1].textContent), Number(cells[3].textContent)])"
        assert tab.eval_on_selector_all(".family-table tbody tr", read_rows) == expected
        assert f"token {places[number - 1]} of the answer" in of.result(tab, "place")
        for place, step in enumerate(steps):
            of.press(tab, "method", str(place))
            assert tab.get_attribute(".stop svg.tree", "data-nodes") == str(len(step["parent"]))
            said = "has no guess here" if len(step["parent"]) == 1 else f"{len(step['accepted_path'])} kept"
            assert said in of.result(tab, "family")
