"""Verification, checked by hand: the accepted path, the bonus token, and the values of one read from the device."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from jakiro.backends.outcome import read_outcome
from jakiro.config import SamplingParams
from jakiro.core.noise import KeyedNoise, NoiseRows
from jakiro.core.sampling import choose
from jakiro.core.tree import accepted_node, ancestor_mask
from jakiro.core.verify import verify
from jakiro.decode.recorder import make_nodes
from jakiro.ops import kernels
from jakiro.trace import Node
from tests.support import DEVICE, tree_of


@pytest.fixture(autouse=True, params=["torch", "compiled"])
def implementation(request, monkeypatch):
    """Run verification with torch operations and one copy, as on a GPU, and with compiled code."""
    if request.param == "torch":
        monkeypatch.setattr("jakiro.ops.kernels.current", lambda: kernels.TORCH)
        monkeypatch.setattr("jakiro.backends.outcome.reads_are_free", lambda device: False)
    elif DEVICE.type == "cuda" or kernels.current() is kernels.TORCH:
        pytest.skip("no compiled functions")


VOCAB_SIZE = 10
#            0
#        1   2   3
#       4 5  6
#         7
TOKENS = [9, 1, 2, 3, 4, 5, 4, 6]
PARENTS = [-1, 0, 0, 0, 1, 1, 2, 5]


def logits_choosing(choices):
    """Return logits with choices[i] as the greedy choice after node i, with margin 2."""
    logits = torch.zeros((len(choices), VOCAB_SIZE), device=DEVICE)
    logits[range(len(choices)), choices] = 2.0
    return logits


def outcome_of(tokens, parents, logits, sampling=SamplingParams(), root_position=20, prefix_length=512):  # noqa: B008
    tree = tree_of(tokens, parents)
    noise = KeyedNoise(sampling.seed)
    rows = NoiseRows(noise, torch.arange(logits.shape[-1], device=DEVICE))
    mask = ancestor_mask(tree.parents, tree.max_depth)
    rows = rows.rows(root_position + 1, tree.max_depth + 1)
    verification = verify(tree, mask, logits, sampling, noise, root_position, rows, prefix_length)
    return read_outcome(tree, verification)


@pytest.mark.parametrize(
    ("choices", "path", "bonus"),
    [
        ([0, 0, 0, 0, 0, 0, 0, 0], [], 0),
        ([1, 5, 0, 0, 0, 6, 0, 8], [1, 5, 7], 8),
        ([1, 5, 0, 0, 0, 7, 0, 8], [1, 5], 7),
        ([1, 4, 0, 0, 3, 6, 0, 8], [1, 4], 3),
        ([3, 5, 0, 7, 0, 6, 0, 8], [3], 7),
        ([2, 5, 4, 0, 0, 6, 2, 8], [2, 6], 2),
        ([0, 5, 4, 0, 0, 6, 2, 8], [], 0),
    ],
    ids=["none", "to the leaf", "stops inside", "other child", "leaf at depth 1", "same token elsewhere", "orphans"],
)
def test_accepted_path_follows_the_choices_of_the_target(choices, path, bonus):
    outcome = outcome_of(TOKENS, PARENTS, logits_choosing(choices))
    assert (outcome.accepted_path, outcome.bonus_token_id) == (path, bonus)
    assert outcome.accepted_ids == [TOKENS[node] for node in path]
    assert outcome.choices == choices
    assert outcome.margins == [2.0] * 8


@pytest.mark.parametrize("sampling", [SamplingParams(0.8, seed=3), SamplingParams(0.8, top_p=0.9, top_k=6, seed=3)])
def test_every_node_uses_the_noise_of_its_own_position(sampling):
    logits = torch.randn((8, VOCAB_SIZE), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    depths = [0, 1, 1, 1, 2, 2, 2, 3]
    outcome = outcome_of(TOKENS, PARENTS, logits, sampling)
    for node, depth in enumerate(depths):
        position = torch.tensor([20 + depth + 1], device=DEVICE)
        single = choose(logits[node : node + 1], sampling, KeyedNoise(3), position)
        assert outcome.choices[node] == int(single.token_ids)
        assert outcome.margins[node] == pytest.approx(float(single.margins), abs=1e-6)


@pytest.mark.parametrize("warping", [{}, {"top_p": 0.2, "top_k": 2}], ids=["whole rows", "nucleus"])
def test_target_probs_are_those_of_the_raw_logits_of_the_parent_at_the_temperature(warping):
    sampling = SamplingParams(temperature=0.5, **warping, seed=3)
    logits = torch.randn((8, VOCAB_SIZE), generator=torch.Generator().manual_seed(2)).to(DEVICE)
    outcome = outcome_of(TOKENS, PARENTS, logits, sampling)
    assert math.isnan(outcome.target_probs[0])
    probs = (logits / 0.5).softmax(-1)
    for node in range(1, 8):
        assert outcome.target_probs[node] == pytest.approx(float(probs[PARENTS[node], TOKENS[node]]), rel=1e-5)
    greedy = outcome_of(TOKENS, PARENTS, logits)
    assert greedy.target_probs[1] == pytest.approx(float(logits[0].softmax(-1)[1]), rel=1e-5)


def test_only_rows_on_the_accepted_path_can_require_the_full_sort():
    sampling = SamplingParams(temperature=1.0, top_p=0.9)
    logits = logits_choosing([1, 5, 0, 0, 0, 6, 0, 8]) * 20
    flat_off_path, flat_on_path = logits.clone(), logits.clone()
    flat_off_path[[2, 3, 4, 6]] = 0.0
    flat_on_path[7] = 0.0
    assert outcome_of(TOKENS, PARENTS, flat_off_path, sampling, prefix_length=3).accepted_path == [1, 5, 7]
    assert not outcome_of(TOKENS, PARENTS, flat_off_path, sampling, prefix_length=3).needs_full_sort
    # Compiled code does not use a prefix
    expected = kernels.current().sampling_for(logits) is None
    assert outcome_of(TOKENS, PARENTS, flat_on_path, sampling, prefix_length=3).needs_full_sort is expected
    assert not outcome_of(TOKENS, PARENTS, flat_on_path, sampling, prefix_length=VOCAB_SIZE).needs_full_sort


def test_outcome_has_every_field_of_every_node():
    tree = tree_of(TOKENS, PARENTS)
    count = tree.num_nodes
    columns = {
        "scores": torch.linspace(0, -3, count),
        "draft_passes": torch.arange(count),
        "proposers": torch.arange(count) % 3 - 1,
        "also": torch.arange(count) % 4,
        "draft_probs": torch.linspace(0.1, 0.9, count),
    }
    evidence = {"router_weights": torch.rand(count, 2), "residual_contribution": torch.randn(count, 1)}
    on_device = {name: column.to(DEVICE) for name, column in columns.items()}
    tree = replace(tree, **on_device, evidence={name: rows.to(DEVICE) for name, rows in evidence.items()})
    logits = torch.randn((count, VOCAB_SIZE), device=DEVICE)
    mask = ancestor_mask(tree.parents, tree.max_depth)
    verification = verify(tree, mask, logits, SamplingParams(), KeyedNoise(0), 0)
    outcome = read_outcome(tree, verification)
    assert (outcome.token_ids, outcome.parents, outcome.depths) == (TOKENS, PARENTS, [0, 1, 1, 1, 2, 2, 2, 3])
    for name, column in columns.items():
        assert getattr(outcome, name) == column.tolist(), name
    assert outcome.evidence == {name: rows.tolist() for name, rows in evidence.items()}
    for index, node in enumerate(make_nodes(outcome, SimpleNamespace(piece=lambda token: bytes([token])), "xyz")):
        names = tuple(name for bit, name in enumerate("xyz") if outcome.also[index] >> bit & 1)
        assert node == Node(
            TOKENS[index], bytes([TOKENS[index]]), PARENTS[index], outcome.depths[index], outcome.draft_passes[index],
            outcome.scores[index], outcome.draft_probs[index], outcome.target_probs[index] if index else None,
            "xyz"[outcome.proposers[index]] if index else "root", names,
            {name: tuple(rows[index]) for name, rows in outcome.evidence.items()}, outcome.choices[index],
            bytes([outcome.choices[index]]), outcome.margins[index],
        )  # fmt: skip
    whole_numbers = (*outcome.token_ids, *outcome.draft_passes, *outcome.proposers, *outcome.also, *outcome.choices)
    assert {type(value) for value in whole_numbers} == {int}


# Parents of the nodes after the root: any earlier node
ANY_PARENTS = st.lists(st.integers(0, 10**6), max_size=24).map(
    lambda picks: [-1, *(pick % (index + 1) for index, pick in enumerate(picks))]
)


def ancestors(parents, node):
    """Return a node and its ancestors by walking up the tree."""
    nodes = set()
    while node >= 0:
        nodes.add(node)
        node = parents[node]
    return nodes


@given(ANY_PARENTS, st.integers(0, 3))
def test_each_node_attends_to_itself_and_its_ancestors_only(parents, slack):
    tree = tree_of(range(len(parents)), parents)
    mask = ancestor_mask(tree.parents, tree.max_depth + slack)
    for node in range(len(parents)):
        assert set(mask[node].nonzero().flatten().tolist()) == ancestors(parents, node)


@given(ANY_PARENTS, st.data())
def test_accepted_node_is_the_deepest_one_with_a_correct_path(parents, data):
    tree = tree_of(range(len(parents)), parents)
    right = data.draw(st.lists(st.booleans(), min_size=len(parents), max_size=len(parents)))
    # At most one sibling is right: siblings are distinct, and their parent has one choice.
    parents_in_use = set()
    for node, parent in enumerate(parents):
        right[node] = right[node] and parent not in parents_in_use
        parents_in_use |= {parent} if right[node] else set()
    mask = ancestor_mask(tree.parents, tree.max_depth)
    end = int(accepted_node(mask, tree.depths, torch.tensor(right, device=DEVICE)))
    correct = [node for node in range(len(parents)) if all(right[a] or a == 0 for a in ancestors(parents, node))]
    assert end == max(correct, key=lambda node: int(tree.depths[node]))
