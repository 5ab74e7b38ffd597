"""Kernels and bytes of a step at the true shapes of real targets: a step that grows exceeds its budget here.

The head is of the official form, with summed experts; the tree has 63 candidates over five levels, after 960 tokens.
"""

import pytest

from jakiro.cli import plan
from tests.graphs.true_shapes import SAMPLINGS, config_of, step_counts

KINDS = {"plain": ("greedy", None), "greedy": ("greedy", "summed"), "top-p": ("sampled with top-p", "summed")}
# Of a whole step: kernels, and gigabytes read and written
BUDGETS = {
    ("Vicuna-7B", "fast"): {"plain": (533, 13.8), "greedy": (805, 17.9), "top-p": (938, 18.1)},
    ("Vicuna-7B", "exact"): {"plain": (601, 17.5), "greedy": (869, 22.9), "top-p": (1002, 23.0)},
    ("Llama-3-8B", "fast"): {"plain": (533, 15.2), "greedy": (821, 22.2), "top-p": (954, 22.9)},
    ("Llama-3-8B", "exact"): {"plain": (601, 17.2), "greedy": (885, 25.4), "top-p": (1018, 26.1)},
    ("Qwen2.5-7B", "fast"): {"plain": (477, 14.3), "greedy": (765, 21.0), "top-p": (898, 21.9)},
    ("Qwen2.5-7B", "exact"): {"plain": (537, 15.8), "greedy": (821, 23.3), "top-p": (954, 24.2)},
}


def counted(name, numerics, kind, monkeypatch):
    regime, fusion = KINDS[kind]
    return step_counts(name, numerics, SAMPLINGS[regime], monkeypatch, fusion)


def usual(*case):
    """Of the three targets one is asked each time."""
    return pytest.param(*case, marks=() if case[0] == "Llama-3-8B" else pytest.mark.rare)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("name", "numerics"), [usual(*case) for case in BUDGETS])
def test_a_step_at_true_shapes_stays_within_its_budget(name, numerics, kind, monkeypatch):
    passes = counted(name, numerics, kind, monkeypatch).values()
    kernels, gigabytes = BUDGETS[name, numerics][kind]
    assert sum(each.kernels for each in passes) <= kernels
    assert sum(each.num_bytes for each in passes) / 1e9 <= gigabytes


def test_the_counter_at_true_shapes_notices_one_more_kernel(monkeypatch):
    from torch.nn import functional

    before = counted("Llama-3-8B", "fast", "plain", monkeypatch)["score_rows"]
    norm = functional.rms_norm
    monkeypatch.setattr(functional, "rms_norm", lambda *given: norm(*given) * 1.0)
    after = counted("Llama-3-8B", "fast", "plain", monkeypatch)["score_rows"]
    assert after.kernels - before.kernels == 2 * 32 + 1 and after.num_bytes > before.num_bytes


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("name", ["Vicuna-7B", "Llama-3-8B"])
def test_the_cost_model_s_formulas_are_what_passes_at_true_shapes_count(name, numerics, monkeypatch):
    shape, passes = plan.Shape.of(config_of(name)), counted(name, numerics, "greedy", monkeypatch)
    target, draft = passes.pop("score_rows"), passes.pop("grow")
    assert plan.target_kernels(shape, numerics) == pytest.approx(target.kernels, rel=0.02)
    assert plan.target_bytes(shape, numerics) == pytest.approx(target.num_bytes, rel=0.08)
    assert draft.kernels == pytest.approx(plan.DRAFT_KERNELS, rel=0.05)
    assert plan.draft_bytes(shape) == pytest.approx(draft.num_bytes, rel=0.1)
    assert sum(each.kernels for each in passes.values()) == plan.STEP_KERNELS
