"""The leaderboard in the tab "Benchmark" has the numbers of the raw data and can be sorted by keyboard."""

import json

import pytest

from app.page import benchmark, lesson
from app.words import benchmark as words
from jakiro.drafters.registry import METHODS
from lab import raw
from lab.arena import standings
from lab.tests.arena.test_standings import bench_of
from tests.app.browser.test_accessibility import PHONE, SMALL_CONTROLS, serious

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def boards(tmp_path_factory):
    """Return a leaderboard of invented results, so that no test depends on measurements."""
    folder = tmp_path_factory.mktemp("arena")
    (folder / standings.OWN_SIZE).write_text(raw.compact(bench_of(("auto",), faster=1.25)), encoding="utf-8")
    return standings.boards(folder)["own_size"]


# The tab without recorded results; the server returns this leaderboard
MOUNT = """board => {
  document.querySelector("#host").innerHTML = '<main id="benchmark"><div class="jk-view jk-benchmark"></div></main>';
  const server = { benchmark_recorded: async () => null,
    benchmark_board: async () => board };
  document.body.dataset.jakiroTab = "benchmark";
  Jakiro.mountBenchmark(document.querySelector("#benchmark"), {}, null, server);
}"""


def mounted(tab, boards: dict):
    """Open the leaderboard of these results in the tab "Benchmark"."""
    tab.add_style_tag(content=benchmark.style())
    tab.add_script_tag(content=lesson.script())
    tab.add_script_tag(content=benchmark.script())
    tab.evaluate(MOUNT, json.dumps(boards))
    tab.click('[data-control="bench-which"][data-value="board"]')
    tab.wait_for_selector(".board-table")
    return tab


@pytest.fixture
def board(modules, boards):
    """Return a tab with the leaderboard, without a server."""
    return mounted(modules, boards)


def methods(tab) -> list[str]:
    return tab.evaluate("[...document.querySelectorAll('.board-table tbody tr')].map(row => row.dataset.method)")


def cells(tab, method: str) -> dict[str, str]:
    return tab.evaluate(
        'method => Object.fromEntries([...document.querySelectorAll(`.board-table [data-method="${method}"] td`)]'
        ".map(cell => [cell.dataset.column, cell.innerText.replace(/\\s+/g, ' ')]))",
        method,
    )


def test_speeds_are_those_of_the_raw_data_the_fastest_first(board):
    assert methods(board) == ["eagle2", "jakiro", "autoregressive"]
    assert cells(board, "eagle2") == {
        "speed": "313", "speedup": "3.13× 3.13–3.13", "against": "1.25× 1.25–1.25", "tau": "2.00 2.00–2.00",
        "draft_ms": "2.0", "verify_ms": "5.0", "other_ms": "1.0", "identical": "100 %",
    }  # fmt: skip
    verdict = words.BROWSER["board_ahead"].format(
        temperature=0, method="EAGLE-2", others="Jakiro", times="1.25", interval="1.25–1.25"
    )
    assert board.inner_text('[data-result="verdict"]') == verdict
    assert "2026-11-23" in board.inner_text("#benchmark .badge")


def test_columns_are_sorted_by_keys_and_have_aria_sort(board):
    first = '.board-table th[data-column="speed"]'
    assert board.get_attribute(first, "aria-sort") == "descending"
    board.focus('[data-sort="speed"]')
    board.keyboard.press("Enter")
    assert board.get_attribute(first, "aria-sort") == "ascending"
    assert methods(board) == ["autoregressive", "jakiro", "eagle2"]
    assert board.evaluate("document.activeElement.dataset.sort") == "speed"
    board.focus('[data-sort="method"]')
    board.keyboard.press("Space")
    assert board.get_attribute('.board-table th[data-column="method"]', "aria-sort") == "ascending"
    assert board.get_attribute(first, "aria-sort") == "none"
    titles = [METHODS[name].title for name in methods(board)]
    assert titles == sorted(titles)


def test_names_of_methods_stay_text(modules, boards):
    hostile = "<img src=x onerror='window.ran=1'>"
    rows = [row | {"method": hostile} if row["method"] == "eagle2" else row for row in boards["rows"]]
    tab = mounted(modules, boards | {"rows": rows})
    assert hostile in tab.inner_text(".board-table")
    assert tab.locator("#benchmark img").count() == 0 and tab.evaluate("window.ran") is None


@pytest.mark.rare
def test_the_leaderboard_has_no_serious_finding_and_large_targets(open_tab, fake_address, boards, monkeypatch):
    monkeypatch.setattr(benchmark, "leaderboard", lambda methods: json.dumps(boards))
    tab = open_tab(fake_address, color_scheme="light", **PHONE)
    tab.click('[role="tab"][data-tab="benchmark"]')
    tab.click('[data-control="bench-which"][data-value="board"]')
    tab.wait_for_selector(".board-table")
    assert not serious(tab, "#benchmark")
    assert tab.evaluate(SMALL_CONTROLS, [".board-table button, .bench-head :is(button, select)", 44]) == []
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    tab.emulate_media(color_scheme="dark")
    tab.wait_for_selector("body.dark")
    assert not serious(tab, "#benchmark", dark=True)


def test_a_tab_whose_code_is_not_loaded_has_a_message(open_tab, fake_address):
    tab = open_tab(None)
    tab.route("**/benchmark-*.js.gz", lambda route: route.abort())
    tab.goto(fake_address)
    tab.click('[role="tab"][data-tab="benchmark"]')
    tab.wait_for_selector(f'.jk-benchmark:text-is("{words.FIRST["bench_not_loaded"]}")')
