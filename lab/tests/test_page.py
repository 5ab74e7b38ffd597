"""The page offers the lab's methods if they are loaded: in the settings with their legends, and in a race."""

import json

from app.page import benchmark, web
from app.page.offered import offered_methods
from lab import KNOWN, METHODS

FREE = [method.name for method in METHODS if method.trains is None and "stacked" not in method.needs.head]


def test_methods_without_an_own_head_are_offered_with_their_legend():
    assert set(FREE) <= {method.name for method in offered_methods(KNOWN)}
    sent = json.loads(web.script(KNOWN).splitlines()[0].removeprefix("window.Jakiro = ").removesuffix(";"))
    methods = {method["name"]: method for method in sent["methods"]}
    for method in METHODS:
        assert methods[method.name]["title"] == method.title
        assert [proposer["id"] for proposer in methods[method.name]["proposers"]] == [
            each.id for each in method.proposers
        ]


def test_the_leaderboard_has_rows_of_loaded_methods():
    ours, all_of_them = (
        {row["method"] for row in json.loads(board)["rows"]}
        for board in (benchmark.leaderboard(), benchmark.leaderboard(KNOWN))
    )
    assert not ours & set(FREE) and set(FREE) <= all_of_them
