"""Trees as tensors: ancestor masks, accepted nodes, the tree that is only its root."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from jakiro.core.tree import DraftTree, accepted_node, ancestor_mask
from tests.support import DEVICE, assert_is_a_tree, tree_of

# A parent for every node after the root: any node before it.
PARENTS = st.lists(st.integers(0, 10**6), max_size=24).map(
    lambda picks: [-1, *(pick % (index + 1) for index, pick in enumerate(picks))]
)


def ancestors(parents, node):
    """A node and its ancestors, by walking."""
    found = set()
    while node >= 0:
        found.add(node)
        node = parents[node]
    return found


@given(PARENTS, st.integers(0, 3))
def test_each_node_sees_itself_and_its_ancestors_and_nothing_else(parents, slack):
    tree = tree_of(range(len(parents)), parents)
    mask = ancestor_mask(tree.parents, tree.max_depth + slack)
    for node in range(len(parents)):
        assert set(mask[node].nonzero().flatten().tolist()) == ancestors(parents, node)


@given(PARENTS, st.data())
def test_the_accepted_node_is_the_deepest_whose_ancestors_are_all_right(parents, data):
    tree = tree_of(range(len(parents)), parents)
    right = data.draw(st.lists(st.booleans(), min_size=len(parents), max_size=len(parents)))
    # At most one sibling is right: siblings are distinct, and their parent has one choice.
    taken = set()
    for node, parent in enumerate(parents):
        right[node] = right[node] and parent not in taken
        taken |= {parent} if right[node] else set()
    mask = ancestor_mask(tree.parents, tree.max_depth)
    end = int(accepted_node(mask, tree.depths, torch.tensor(right, device=DEVICE)))
    kept = [node for node in range(len(parents)) if all(right[a] or a == 0 for a in ancestors(parents, node))]
    assert end == max(kept, key=lambda node: int(tree.depths[node]))


def test_the_tree_of_plain_decoding_is_its_root():
    tree = DraftTree.root_only(torch.tensor([7], device=DEVICE))
    assert_is_a_tree(tree)
    assert (tree.num_nodes, tree.max_depth, tree.token_ids.tolist(), tree.scores.tolist()) == (1, 0, [7], [0.0])
    assert ancestor_mask(tree.parents, tree.max_depth).tolist() == [[True]]
