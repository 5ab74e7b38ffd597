"""What the lesson's recordings must hold so that every stop has a step to show; read when they are made.

The browser picks each stop's steps by rules of its own (`chooseStep` in `assets/web/lesson/stops/`). Here stands, for
each stop, what its words claim about the steps that those rules can find.
"""

from collections.abc import Callable
from itertools import combinations

from jakiro.methods import DEFAULT, PLAIN

FEWEST_RANKED, MOST_RANKED = 4, 5
LONGEST_CHAIN = 5
FEWEST_CANDIDATES, MASK_CANDIDATES, GUESS_CANDIDATES, LARGE_TREE_NODES = 4, 6, 12, 64
ROUNDS = 3


def unmet(recordings: dict) -> list[str]:
    """Sentences about what the recordings do not hold; empty where every stop has something to show.

    Args:
        recordings: packed traces by recording and method, as `app.tools.record_lesson` writes them.
    """
    return [sentence for sentence, holds in RULES.items() if not holds(recordings)]


def whole_steps(recordings: dict, name: str) -> list[dict]:
    """Steps with a draft, but none that the end of the answer cut."""
    steps = recordings[name][DEFAULT.name]["steps"]
    return [step for step in steps if len(step["p"]) > 1 and step["n"] == len(step["path"]) + 1]


def depths(step: dict) -> list[int]:
    found: list[int] = []
    for parent in step["p"]:
        found.append(0 if parent < 0 else found[parent] + 1)
    return found


def likeliest(step: dict, candidates: int) -> list[int]:
    """The nodes that stay when the tree is cut to its likeliest candidates, root included."""
    level = depths(step)
    order = sorted(range(1, len(level)), key=lambda i: (-step["s"][i], level[i], i))
    return sorted([0, *order[:candidates]])


def kept(step: dict, candidates: int) -> int:
    """Accepted length when the tree is cut to so many candidates."""
    members = set(likeliest(step, candidates))
    path = step["path"]
    return next((length for length, i in enumerate(path) if i not in members), len(path))


def _chain_breaks(recordings: dict) -> bool:
    def breaks(step: dict) -> bool:
        chain, at = [], 0
        while (children := [i for i, parent in enumerate(step["p"]) if parent == at]) and len(chain) < LONGEST_CHAIN:
            at = max(children, key=lambda i: (step["s"][i], -i))
            chain.append(at)
        return 0 < sum(i in step["path"] for i in chain) < len(chain)

    return any(breaks(step) for step in whole_steps(recordings, "greedy"))


def _experts_differ(recordings: dict) -> bool:
    moves = [_moved(step) for step in whole_steps(recordings, "greedy") if len(_ranked(step)) >= FEWEST_RANKED]
    return len(moves) > 1 and max(moves) > min(moves)


def _ranked(step: dict) -> list[int]:
    """The likeliest candidates of the first level that carry each expert's part."""
    level = depths(step)
    first = [
        i for i in range(len(level)) if level[i] == 1 and step["e"][i] and step["r"][i] is not None
        and len(step["W"][step["w"][i]]) == 2
    ]  # fmt: skip
    return sorted(first, key=lambda i: (-step["s"][i], i))[:MOST_RANKED]


def _moved(step: dict) -> int:
    """How many candidates stand elsewhere with either expert alone than with the router's own weights."""
    members = _ranked(step)
    own = step["W"][step["w"][members[0]]][1]

    def order(second: float) -> list[int]:
        def score(i: int) -> float:
            weights = step["W"][step["w"][i]]
            parts = zip((1 - second, second), step["e"][i], weights, strict=True)
            return step["r"][i] + sum(share * part / max(weight, 1e-6) for share, part, weight in parts)

        return sorted(members, key=lambda i: (-score(i), i))

    return sum(a != b for second in (0, 1) for a, b in zip(order(own), order(second), strict=True))


def _contrastive_shows(recordings: dict) -> bool:
    """A candidate with a router's weights, but no expert's part: the contrastive pair."""

    def shows(step: dict) -> bool:
        return any(step["W"][row] and not parts for row, parts in zip(step["w"], step["e"], strict=True))

    return any(shows(step) for step in whole_steps(recordings, "shallow"))


def _large_tree_keeps_more(recordings: dict) -> bool:
    steps = [step for step in whole_steps(recordings, "greedy") if len(step["p"]) == LARGE_TREE_NODES]
    return any(len(step["path"]) > kept(step, FEWEST_CANDIDATES) for step in steps)


def _small_tree_branches(recordings: dict) -> bool:
    def branches(step: dict) -> bool:
        members = likeliest(step, MASK_CANDIDATES)
        parents = [step["p"][i] for i in members[1:]]
        levels = depths(step)
        return len(set(parents)) < len(parents) and max(levels[i] for i in members) > 1

    return any(branches(step) for step in whole_steps(recordings, "greedy"))


def _verdicts_vary(recordings: dict) -> bool:
    fates = [kept(step, GUESS_CANDIDATES) for step in whole_steps(recordings, "greedy")]
    return len(fates) >= ROUNDS and 0 in fates and max(fates) > 1


def _dice_help(recordings: dict) -> bool:
    def tau(name: str) -> float:
        steps = recordings[name][DEFAULT.name]["steps"]
        return sum(len(step["path"]) for step in steps) / max(1, len(steps))

    return all(tau(f"seed-{seed}-own") < tau(f"seed-{seed}-shared") for seed in (1, 2))


def _texts_equal(recordings: dict) -> bool:
    plain, drafted = PLAIN.name, DEFAULT.name
    greedy = [("greedy", plain), ("greedy", drafted), ("small", drafted), ("shallow", drafted)]
    families = [greedy]
    for seed in (1, 2):
        shared, own = f"seed-{seed}-shared", f"seed-{seed}-own"
        families.append([(shared, plain), (shared, drafted), (own, drafted)])
    texts = [{_ids(recordings, name, method) for name, method in family} for family in families]
    alike = all(len(found) == 1 for found in texts)
    return alike and all(one != other for one, other in combinations(texts, 2))


def _ids(recordings: dict, name: str, method: str) -> tuple[int, ...]:
    trace = recordings[name][method]
    ids = [trace["header"]["first_token_id"]]
    for step in trace["steps"]:
        committed = [step["T"][step["t"][i]][0] for i in step["path"]] + [step["T"][step["b"]][0]]
        ids += committed[: step["n"]]
    return tuple(ids)


RULES: dict[str, Callable[[dict], bool]] = {
    "Stop 2 needs a step whose favourite chain holds at first and then fails.": _chain_breaks,
    "Stop 3 needs two steps in which the experts order the first candidates less and more alike.": _experts_differ,
    "Stop 4 needs a candidate of the contrastive branch.": _contrastive_shows,
    "Stop 5 needs a tree of 64 nodes that keeps more than its four likeliest candidates do.": _large_tree_keeps_more,
    "Stop 6 needs a tree whose six likeliest candidates branch and reach level 2.": _small_tree_branches,
    "Stop 7 needs three steps, one that keeps nothing and one that keeps two or more.": _verdicts_vary,
    "Stop 8 needs a smaller τ without shared dice, for both seeds.": _dice_help,
    "Stop 8 needs texts that are equal for all methods and different for the seeds.": _texts_equal,
}
