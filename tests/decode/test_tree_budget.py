"""Tree sizes follow from costs, and an answer drafts as long as its candidates are accepted."""

import pytest

from jakiro.config import NO_DRAFT, TreeConfig, TreeSize
from jakiro.decode.device_profile import DeviceProfile
from jakiro.decode.tree_budget import TreeBudget, candidate_sizes

# Times on two cores with AVX-512
CPU = DeviceProfile(((1, 10.5), (4, 11.8), (12, 16.0), (24, 28.4)), ((1, 1.2), (4, 4.5)))
BOUNDS = TreeConfig(nodes=64, depth=8, policy="auto")
SMALL = TreeSize(2, 6)


def drive(budget: TreeBudget, steps: int, right: int, context: int = 0) -> list[TreeSize]:
    """Run steps in which the first `right` levels are accepted and passes take the profiled time; return the sizes."""
    chosen = []
    for _ in range(steps):
        plan = budget.next_tree(context)
        chosen.append(TreeSize(plan.levels, plan.nodes))
        spans = budget.profile.draft(plan.levels), budget.profile.pass_ms(plan.nodes, context), 0.5
        budget.update(plan, min(right, plan.levels), *spans)
    return chosen


def test_sizes_follow_from_costs():
    assert candidate_sizes(CPU, BOUNDS) == (NO_DRAFT, SMALL)
    # Another row costs 0.525 ms, or 0.075 tokens if a pass of 10.5 ms adds 1.5; the fifth candidate adds 0.1, the sixth
    # 0.069
    cheaper = DeviceProfile(CPU.verify_ms, ((1, 0.6), (4, 1.5)))
    assert candidate_sizes(cheaper, BOUNDS)[1].levels > SMALL.levels, "cheaper drafts must be deeper"
    wider = candidate_sizes(DeviceProfile(((1, 10.5), (24, 12.5)), CPU.draft_ms), BOUNDS)[1]
    assert wider.nodes > 2 * SMALL.nodes, "cheaper rows must give wider trees"


def test_drafting_stops_if_all_candidates_are_rejected_and_resumes_after_trials():
    budget = TreeBudget(CPU, candidate_sizes(CPU, BOUNDS))
    assert NO_DRAFT in drive(budget, 60, right=0)
    tried = [size for size in drive(budget, 400, right=0) if size != NO_DRAFT]
    assert 0 < len(tried) < 40 and set(tried) == {SMALL}
    assert NO_DRAFT not in drive(budget, 200, right=2)[-100:]


def test_drafting_stops_if_drafts_are_slower_than_profiled_and_resumes_later():
    budget, chosen = TreeBudget(CPU, candidate_sizes(CPU, BOUNDS)), []
    for _ in range(200):
        plan = budget.next_tree()
        chosen.append(plan.levels)
        # Another process slows only drafts: they have many short sections that wait for each other
        budget.update(plan, min(plan.levels, 1), 8 * CPU.draft(plan.levels), CPU.pass_ms(plan.nodes), 0.5)
    assert chosen[0] and sum(map(bool, chosen[100:])) < 20
    assert drive(budget, 200, right=1)[-20:] == [SMALL] * 20, "drafting must resume without the other process"


def test_single_delay_does_not_end_drafting():
    budget = TreeBudget(CPU, candidate_sizes(CPU, BOUNDS))
    drive(budget, 20, right=2)
    plan = budget.next_tree()
    budget.update(plan, 2, 9000.0, 9000.0, 9000.0)
    again = budget.next_tree()
    assert again.levels and again.expected_ms < 1.2 * plan.expected_ms


def test_rows_cost_more_after_a_long_text_until_no_tree_pays():
    far = DeviceProfile(CPU.verify_ms, CPU.draft_ms, context=128, further_ms=((1, 3.6), (12, 60.0)))
    assert far.pass_ms(12, 128) == far.pass_ms(12) == 16.0 and far.pass_ms(12, 1128) == pytest.approx(76.0)
    assert drive(TreeBudget(far, candidate_sizes(far, BOUNDS)), 40, right=2, context=128)[-1] == SMALL
    assert drive(TreeBudget(far, candidate_sizes(far, BOUNDS)), 80, right=1, context=4000)[-1] == NO_DRAFT


def test_unplanned_tree_does_not_change_the_estimates():
    budget = TreeBudget(CPU, candidate_sizes(CPU, BOUNDS))
    plan = budget.next_tree()
    for _ in range(50):
        budget.update(plan, None, 0.0, 30.0, 0.5)
    assert budget.next_tree().expected_tokens == plan.expected_tokens


def test_copies_without_a_draft_do_not_prevent_trials_of_drafting():
    budget = TreeBudget(CPU, (NO_DRAFT, SMALL))
    drive(budget, 60, right=0)
    for _ in range(400):
        plan = budget.next_tree()
        if plan.levels:
            break
        budget.update(plan, None, 0.0, 13.0, 0.5)
    assert plan.levels
