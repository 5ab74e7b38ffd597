"""Tree sizes from plain numbers: the best rate wins, losing drafts stop, probes bring them back."""

import math
from dataclasses import replace

import pytest

from jakiro.config import TreeConfig
from jakiro.core.verify import Outcome
from jakiro.engine.budget import LOSING_STEPS, START_EXPECTATION, TreeBudget, accepted_within
from jakiro.engine.costs import DeviceProfile, interpolate

FREE_ROWS = DeviceProfile(verify_ms=((1, 40.0), (64, 40.0)), draft_ms=((1, 1.0), (8, 2.0)), width=8)
DEAR_ROWS = DeviceProfile(verify_ms=((1, 10.0), (2, 20.0), (64, 640.0)), draft_ms=((1, 5.0), (8, 40.0)), width=8)
BOUNDS = TreeConfig(nodes=32, depth=4, policy="auto")


def promise(budget: TreeBudget, levels: int, top: float) -> list[list[float]]:
    """Expected accepted tokens that grow with levels and with the logarithm of nodes, up to `top`."""
    return [
        [top * level / levels * math.log(nodes) / math.log(budget.buckets[-1]) for nodes in budget.buckets]
        for level in range(1, levels + 1)
    ]


def drive(budget: TreeBudget, steps: int, top: float, accepted: int, context: int = 0) -> list[int]:
    chosen = []
    for _ in range(steps):
        choice = budget.choose(context=context)
        chosen.append(choice.nodes)
        expected = promise(budget, choice.levels, top) if choice.levels else []
        spans = budget.profile.draft(choice.levels, context), budget.profile.verify(choice.nodes, context), 1.0
        budget.observe(choice, expected, accepted if choice.levels else 0, *spans)
    return chosen


@pytest.mark.parametrize(("x", "y"), [(0, 10.0), (1, 10.0), (2, 15.0), (3, 20.0), (5, 30.0)])
def test_costs_are_interpolated_and_extended(x, y):
    assert interpolate(((1, 10.0), (3, 20.0)), x) == y


def test_where_rows_are_free_the_tree_grows_to_its_bound():
    assert drive(TreeBudget(FREE_ROWS, BOUNDS), 40, top=3.0, accepted=3)[-1] == 32


def test_where_nothing_pays_drafting_stops_and_is_probed_rarely():
    chosen = drive(TreeBudget(DEAR_ROWS, BOUNDS), 600, top=0.1, accepted=0)
    assert chosen[LOSING_STEPS + 1] == 1
    probes = sum(nodes > 1 for nodes in chosen[LOSING_STEPS + 1 :])
    assert 0 < probes < 30


def test_winning_probes_resume_drafting():
    budget = TreeBudget(FREE_ROWS, BOUNDS)
    drive(budget, 60, top=0.01, accepted=0)
    assert budget.choose().nodes == 1
    assert drive(budget, 400, top=3.0, accepted=3)[-20:] == [32] * 20


def test_drafts_that_take_longer_than_the_profile_says_make_trees_shallower():
    profile = DeviceProfile(verify_ms=((1, 10.0), (64, 10.0)), draft_ms=((1, 1.0), (8, 8.0)), width=8)

    def levels(pace: float) -> int:
        budget = TreeBudget(profile, BOUNDS)
        for _ in range(60):
            choice = budget.choose()
            expected = [[accepted] * len(budget.buckets) for accepted in (1.0, 1.6, 1.9, 2.0)[: choice.levels]]
            budget.observe(choice, expected, expected[-1][0], pace * profile.draft(choice.levels), 10.0, 1.0)
        return choice.levels

    assert (levels(1.0), levels(1.9)) == (3, 2)


def test_one_hold_up_does_not_end_drafting():
    budget = TreeBudget(FREE_ROWS, BOUNDS)
    drive(budget, 20, top=3.0, accepted=3)
    choice = budget.choose()
    budget.observe(choice, promise(budget, choice.levels, 3.0), 3, 9000.0, 10.0, 1.0)
    assert budget.choose().expected_ms < 1.2 * choice.expected_ms
    assert budget.choose().nodes == 32


def test_estimates_are_means_over_this_answer_s_steps():
    budget = TreeBudget(FREE_ROWS, TreeConfig(nodes=8, depth=1, policy="auto"))
    sizes = len(budget.buckets)
    # 40 ms a pass and 1 ms a draft of one level are profiled; the first pass takes twice that, the second draft too
    for accepted, draft_ms, verify_ms, other_ms in ((1.0, 1.0, 80.0, 5.0), (2.0, 2.0, 40.0, 15.0)):
        budget.observe(budget.choose(), [[accepted] * sizes], accepted, draft_ms, verify_ms, other_ms)
    best = budget.choose()
    assert (best.levels, best.nodes) == (1, 2)
    # The second tree was planned with the first one's single token, and brought two
    before = 0.95 * (0.95 * START_EXPECTATION + 1)
    assert budget.calibration == pytest.approx((before + 2) / (before + 1))
    assert best.expected_tokens == pytest.approx(1 + budget.calibration * (1 + 2) / 2)
    pace = 0.9 * (0.9 + 0.1 * 2) + 0.1
    assert best.expected_ms == pytest.approx((0.9 + 0.1 * 2) * 1 + pace * 40 + (0.9 * 5 + 0.1 * 15))
    # One level more brings one token more: each number of levels has its own estimate
    budget = TreeBudget(FREE_ROWS, TreeConfig(nodes=8, depth=2, policy="auto"))
    budget.observe(replace(budget.choose(), levels=2), [[1.0] * sizes, [2.0] * sizes], 2, 1.0, 40.0, 1.0)
    assert (budget.choose().levels, budget.choose().expected_tokens) == (2, 3.0)


def test_after_a_long_text_rows_cost_more_and_trees_shrink():
    dear_far = replace(
        FREE_ROWS, context=100, verify_slopes=((1, 10.0), (2, 20.0), (64, 640.0)), draft_slopes=((1, 2.0),)
    )
    assert dear_far.verify(32, 100) == dear_far.verify(32) == FREE_ROWS.verify(32)
    assert dear_far.verify(2, 1100) == pytest.approx(60.0) and dear_far.draft(1, 1100) == pytest.approx(3.0)
    assert FREE_ROWS.verify(32, 5000) == FREE_ROWS.verify(32)
    budget = TreeBudget(dear_far, BOUNDS)
    near, far = (drive(budget, 40, top=3.0, accepted=3, context=context)[-1] for context in (100, 3_000))
    assert near == 32 and 1 < far < 8
    # Within an answer too, although the last step was judged before its text grew
    budget = TreeBudget(dear_far, BOUNDS)
    drive(budget, 40, top=3.0, accepted=3, context=100)
    assert budget.choose(context=3_000).nodes < 8
    # A far text after which no tree pays is left to plain decoding
    steep = replace(dear_far, verify_slopes=((1, 0.0), (2, 1000.0)))
    assert drive(TreeBudget(steep, BOUNDS), 40, top=3.0, accepted=3, context=20_000)[-1] == 1


def test_tokens_that_were_expected_and_not_accepted_shrink_the_estimate():
    hopeful = TreeBudget(FREE_ROWS, BOUNDS)
    drive(hopeful, 30, top=2.0, accepted=0)
    assert hopeful.calibration == 0.25


def test_an_answer_s_first_steps_weigh_alike_in_what_is_expected():
    budget = TreeBudget(FREE_ROWS, TreeConfig(nodes=8, depth=1, policy="auto"))
    # A first tree that promises much, as answers begin; what was accepted is what each tree promised
    for promised in (3.0, 1.0, 1.0, 1.0):
        budget.observe(budget.choose(), [[promised] * len(budget.buckets)], round(promised), 1.0, 40.0, 1.0)
    assert budget.choose().expected_tokens == pytest.approx(1 + budget.calibration * 1.5)


def test_plans_that_promised_too_much_shrink_the_estimate_though_their_trees_were_right():
    budget = TreeBudget(FREE_ROWS, TreeConfig(nodes=8, depth=1, policy="auto"))
    for promised in (3.0, 1.0):
        budget.observe(budget.choose(), [[promised] * len(budget.buckets)], round(promised), 1.0, 40.0, 1.0)
    before = 0.95 * (0.95 * START_EXPECTATION + 3)
    assert budget.calibration == pytest.approx((before + 1) / (before + 3))


def test_larger_trees_are_looked_at_in_the_first_draft_and_every_third_and_still_found():
    budget, looked, nodes = TreeBudget(FREE_ROWS, BOUNDS), [], []
    for _ in range(40):
        choice, further = budget.choose(), budget.looks_further
        largest = budget.buckets.index(choice.nodes) + 1 + further
        expected = [row[:largest] for row in promise(budget, choice.levels, 3.0)]
        budget.observe(choice, expected, 3, budget.profile.draft(choice.levels), 40.0, 1.0)
        looked.append(further)
        nodes.append(choice.nodes)
    assert looked[:7] == [True, False, False, True, False, False, True]
    assert nodes[-1] == 32


def test_a_copied_chain_goes_alone_where_that_is_faster():
    budget = TreeBudget(DEAR_ROWS, BOUNDS)
    drive(budget, 5, top=0.5, accepted=0)
    assert budget.choose([math.log(0.99), math.log(0.98)]).why.startswith("2 candidates without a draft")
    assert budget.choose([math.log(0.99), math.log(0.01)]).why.startswith("1 candidate without a draft")
    assert "without a draft" not in budget.choose([math.log(0.01)] * 2).why


def test_free_candidates_that_keep_failing_are_believed_less():
    budget = TreeBudget(FREE_ROWS, BOUNDS)
    promised = [math.log(0.9), math.log(0.8)]

    def free_steps(accepted: int) -> list[bool]:
        free = []
        for _ in range(24):
            plan = budget.choose(promised)
            free.append(plan.levels == 0)
            expected = promise(budget, plan.levels, 1.0) if plan.levels else []
            budget.observe(plan, expected, accepted if free[-1] else 1, 1.0, 40.0, 1.0)
        return free

    drive(budget, 20, top=1.0, accepted=1)
    assert sum(free_steps(accepted=2)[12:]) == 12
    assert sum(free_steps(accepted=0)[12:]) < 6


def test_a_plan_says_what_it_expects():
    budget = TreeBudget(FREE_ROWS, BOUNDS)
    drive(budget, 5, top=2.0, accepted=2)
    choice = budget.choose()
    assert choice.why.startswith(f"{choice.nodes - 1} candidates over {choice.levels} levels: ")
    speed = 1000 * choice.expected_tokens / choice.expected_ms
    assert choice.curve[0] == (1, 1000 / 41.0) and (choice.nodes, pytest.approx(speed)) in choice.curve


def test_a_profile_survives_its_dictionary():
    assert DeviceProfile.from_dict(FREE_ROWS.to_dict()) == FREE_ROWS


def outcome_of(scores, depths, accepted_path):
    """A step's outcome of which only scores, depths and the accepted path are looked at."""
    none = [0] * len(scores)
    return Outcome(
        token_ids=none, parents=none, depths=depths, scores=scores, draft_passes=none, draft_probs=none,
        proposers=none, also=none, target_probs=none, choices=none, margins=none, evidence={}, forecast=[],
        accepted_path=accepted_path, bonus_token_id=0, needs_full_sort=False,
    )  # fmt: skip


def test_what_smaller_trees_would_have_accepted_is_counted_by_the_rank_of_the_kept_nodes():
    # By score: node 1, 3, 2, 5, 4; accepted are 1, 3 and 5, the best, the second and the fourth
    outcome = outcome_of([0.0, -0.1, -0.5, -0.2, -2.0, -0.9], [0, 1, 1, 2, 2, 3], [1, 3, 5])
    assert accepted_within(outcome, 3, (2, 3, 4, 5, 6, 12)) == [
        [1.0, 1.0, 1.0, 1.0, 1.0],
        [1.0, 2.0, 2.0, 2.0, 2.0],
        [1.0, 2.0, 2.0, 3.0, 3.0],
    ]
    assert accepted_within(outcome_of([0.0, -0.1], [0, 1], []), 1, (4, 8)) == [[0.0]]


def test_without_a_forecast_sizes_are_learned_from_what_was_accepted():
    """A drafter that is right at every level: rows are free, so trees grow level by level and size by size."""

    def settled(right: int, profile: DeviceProfile) -> tuple[int, int]:
        budget = TreeBudget(profile, BOUNDS)
        for _ in range(120):
            choice = budget.choose()
            chain = list(range(1, min(right, choice.levels) + 1))
            others = choice.nodes - 1 - choice.levels
            scores = [0.0, *(-0.1 * depth for depth in range(1, choice.levels + 1)), *[-5.0] * max(others, 0)]
            outcome = outcome_of(scores, [0, *range(1, choice.levels + 1), *[1] * max(others, 0)], chain)
            expected = accepted_within(outcome, choice.levels, budget.buckets) if choice.levels else []
            budget.observe(
                choice, expected, len(chain), profile.draft(choice.levels), profile.verify(choice.nodes), 1.0
            )
        return choice.levels, choice.nodes

    levels, nodes = settled(4, FREE_ROWS)
    assert levels == 4 and nodes >= 6
    assert settled(0, DEAR_ROWS)[1] == 1
    # Where each row costs as much as a pass, no more candidates are checked than are kept
    cheap_drafts = replace(DEAR_ROWS, verify_ms=((1, 10.0), (64, 74.0)), draft_ms=((1, 0.1), (8, 0.8)))
    assert settled(2, cheap_drafts)[1] <= 6


def test_a_method_without_trees_to_draft_is_only_asked_for_its_chains():
    budget = TreeBudget(FREE_ROWS, BOUNDS, drafts=False)
    assert (budget.choose().levels, budget.choose().nodes) == (0, 1)
    chained = budget.choose([math.log(0.9) * depth for depth in (1, 2, 3)])
    assert (chained.levels, chained.nodes) == (0, 4)


@pytest.mark.parametrize("nodes", [2, 4, 9])
def test_free_candidates_keep_to_the_bound_on_nodes(nodes):
    budget = TreeBudget(FREE_ROWS, replace(BOUNDS, nodes=nodes), drafts=False)
    plan = budget.choose([-0.001 * place for place in range(1, 25)])
    assert (plan.levels, plan.nodes) == (0, nodes)
