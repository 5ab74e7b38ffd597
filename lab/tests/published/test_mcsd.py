"""MCSD: the law of its candidates, its shapes and masks, and its early stop."""

from types import SimpleNamespace

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import ancestor_mask
from jakiro.drafters.base import DraftRequest, Resources
from jakiro.drafters.tree_growth import GrowthInputs
from jakiro.generator import JakiroGenerator
from jakiro.heads.model_head import ModelConfig
from lab import KNOWN
from lab.published.mcsd import StaticGrower, drafted_mask, shape_for, static_drafter
from lab.published.mcsd_improved import stopping_drafter
from tests.support import DEVICE, HEADS, HIDDEN_SIZE, TREE, assert_is_a_tree, further_heads, prompt_of, tiny_target

Q = torch.tensor([0.4, 0.25, 0.2, 0.1, 0.05])
SEEDS = 4000
IDS = torch.randint(0, 250, (13,), generator=torch.Generator().manual_seed(5)).to(DEVICE)
FEATURES = torch.randn((12, HIDDEN_SIZE), generator=torch.Generator().manual_seed(6)).to(DEVICE)


def draw_two(kind, seed):
    """Return the two candidates of one position under one seed."""
    config = SimpleNamespace(calibration={}, draft_vocab_size=None)
    kind_of = {"has_contrastive_branch": False, "mixes_experts": False, "num_experts": 2}
    head = SimpleNamespace(config=config, draft_token_ids=torch.arange(5), **kind_of)
    noise = KeyedNoise(seed).at(torch.tensor(8), torch.arange(5))[None]
    inputs = GrowthInputs(SamplingParams(1.0, seed=seed), TreeConfig(width=2, depth=1, nodes=3), noise)
    grower = kind(head, SimpleNamespace(length=7), None, torch.zeros(1).long(), inputs)
    grower.width = 2
    return grower._children(Q.log()[None], 1).token_ids[0].tolist()


def chi_square(pairs, expected):
    """Return Σ (seen − expected)² ÷ expected over all possible ordered pairs."""
    counts = torch.zeros(5, 5)
    for first, second in pairs:
        counts[first, second] += 1
    possible = expected > 0
    assert counts[~possible].sum() == 0
    return float(((counts - SEEDS * expected)[possible] ** 2 / (SEEDS * expected[possible])).sum())


def test_the_best_of_log_q_plus_noise_are_draws_without_replacement():
    expected = Q[:, None] * Q[None] / (1 - Q[:, None])
    expected.fill_diagonal_(0.0)
    # With 19 degrees of freedom, one in a thousand samples exceeds 43.8
    assert chi_square([draw_two(StaticGrower, seed) for seed in range(SEEDS)], expected) < 43.8


@pytest.mark.parametrize(
    ("width", "depth", "nodes", "shape"),
    [(8, 3, 21, (4, 2, 1)), (8, 3, 11, (2, 2, 1)), (1, 5, 24, (1,) * 5), (8, 5, 2, (1,)), (2, 5, 8, (2, 1, 1))],
)
def test_shapes_have_the_most_expected_accepted_tokens(width, depth, nodes, shape):
    assert shape_for(width, depth, nodes) == shape


def started(drafter, sampling):
    """Return a session of the drafter after a random prompt."""
    return drafter.start(prompt_of(IDS, FEATURES), sampling, KeyedNoise(sampling.seed))


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("kind", [static_drafter, stopping_drafter])
def test_trees_are_valid_and_proposers_are_ranks_among_siblings(heads, name, kind):
    for sampling in (SamplingParams(), SamplingParams(1.0, seed=4)):
        tree = started(kind(heads[name]), sampling).propose(DraftRequest(TreeConfig(8, 3, 21))).tree
        assert_is_a_tree(tree)
        if kind is static_drafter:
            assert tree.depths.tolist() == [0, *[1] * 4, *[2] * 8, *[3] * 8]
            assert tree.proposers.tolist() == [-1, *range(4), *[0, 1] * 4, *[0] * 8]


def test_the_mask_of_a_smaller_tree_is_a_corner_of_the_full_mask(heads):
    session = started(static_drafter(heads["decoupled"]), SamplingParams())
    tree = session.propose(DraftRequest(TreeConfig(8, 3, 21))).tree
    expected = ancestor_mask(tree.parents, 3)[1:, 1:]
    assert torch.equal(drafted_mask((4, 2, 1), DEVICE), expected)
    assert torch.equal(drafted_mask((4, 2), DEVICE), expected[:12, :12])


def test_the_cache_of_shapes_is_bounded():
    for nodes in range(2, 256):
        shape = shape_for(8, 4, nodes)
        if shape:
            drafted_mask(shape, torch.device("cpu"))
    assert all(function.cache_info().currsize <= 64 for function in (shape_for, drafted_mask))


def test_a_small_model_drafts_static_trees():
    target = tiny_target()
    small, info = further_heads(target)[ModelConfig.kind]()
    generator = JakiroGenerator(Resources(target, small, info), methods=KNOWN)
    for sampling in (SamplingParams(max_new_tokens=16), SamplingParams(1.0, seed=4, max_new_tokens=16)):
        plain, trace = (generator.run("Why?", sampling, name, TREE) for name in ("autoregressive", "mcsd"))
        assert trace.token_ids == plain.token_ids
        assert any(len(step.nodes) > 1 for step in trace.steps)
