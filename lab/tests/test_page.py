"""The page shows the lab's methods where they are brought: in the settings, with their legends, and in a race."""

import json

from app.page import benchmark, web
from app.page.offered import offered_methods
from lab import KNOWN, METHODS

FREE = [method.name for method in METHODS if method.trains is None and "stacked" not in method.needs.head]


def test_what_needs_no_head_of_its_own_is_offered_and_drawn_with_its_legend():
    assert set(FREE) <= {method.name for method in offered_methods(KNOWN)}
    sent = json.loads(web.script(KNOWN).splitlines()[0].removeprefix("window.Jakiro = ").removesuffix(";"))
    shown = {method["name"]: method for method in sent["methods"]}
    for method in METHODS:
        assert shown[method.name]["title"] == method.title
        assert [each["id"] for each in shown[method.name]["proposers"]] == [each.id for each in method.proposers]


def test_the_leaderboard_has_their_rows_where_they_are_known():
    ours, all_of_them = (
        {row["method"] for row in json.loads(board)["rows"]}
        for board in (benchmark.leaderboard(), benchmark.leaderboard(KNOWN))
    )
    assert not ours & set(FREE) and set(FREE) <= all_of_them
