"""Validation of draft trees before the target scores them.

The acceptance rule is lossless for every valid tree. An invalid one, such as a tree with a wrong root or with token ids
outside the vocabulary, changes the text or makes compiled code read outside its arrays.
"""

import torch
from torch import Tensor

from jakiro.core.tree import FLOAT_COLUMNS, DraftTree


def find_tree_error(tree: DraftTree, root: Tensor, vocab_size: int, max_nodes: int, num_proposers: int) -> str | None:
    """Return the error of an invalid tree, as a clause without a full stop, or None for a valid tree.

    Args:
        tree: a proposed tree; the check copies its integer columns to the host in one operation.
        root: (1,) int64, the last committed token.
        max_nodes: nodes that fit into the target's cache, root included.
        num_proposers: length of the drafter's `proposers`.
    """
    num_nodes = tree.num_nodes
    if not 1 <= num_nodes <= max_nodes:
        return f"it has {num_nodes} nodes; expected 1 to {max_nodes}"
    for name, column in tree.columns.items():
        dtype = torch.float32 if name in FLOAT_COLUMNS else torch.int64
        if column.dtype != dtype or column.shape != (num_nodes,):
            return f"its {name} are {tuple(column.shape)} {column.dtype}; expected ({num_nodes},) {dtype}"
    for name, matrix in tree.evidence.items():
        if matrix.ndim != 2 or matrix.shape[0] != num_nodes:
            return f"its evidence {name} has the shape {tuple(matrix.shape)}; expected {num_nodes} rows"
    root_id, *numbers = torch.cat([root, tree.token_ids, tree.parents, tree.depths, tree.proposers]).tolist()
    columns = [numbers[start : start + num_nodes] for start in range(0, len(numbers), num_nodes)]
    error, depth = find_node_error(*columns, root_id, vocab_size, num_proposers), max(columns[2])
    if error is None and depth > tree.max_depth:
        error = f"its max_depth is {tree.max_depth}, but a node has depth {depth}"
    return error


def find_node_error(
    token_ids: list[int],
    parents: list[int],
    depths: list[int],
    proposers: list[int],
    root_id: int,
    vocab_size: int,
    num_proposers: int,
) -> str | None:
    """Return the first error in the columns of a tree on the host, or None; see `find_tree_error`."""
    if token_ids[0] != root_id:
        return f"its root is token {token_ids[0]}, but the last committed token is {root_id}"
    if parents[0] != -1 or depths[0] != 0:
        return f"its root has parent {parents[0]} and depth {depths[0]}; expected -1 and 0"
    edges = set()
    for node in range(1, len(token_ids)):
        token_id, parent = token_ids[node], parents[node]
        if not 0 <= token_id < vocab_size:
            return f"node {node} is token {token_id}; the model has tokens 0 to {vocab_size - 1}"
        if not 0 <= parent < node:
            return f"node {node} has parent {parent}; a parent must come before its children"
        if depths[node] != depths[parent] + 1:
            return f"node {node} has depth {depths[node]}; its parent has depth {depths[parent]}"
        if not 0 <= proposers[node] < num_proposers:
            return f"node {node} names proposer {proposers[node]}; the drafter has {num_proposers} proposers"
        if (parent, token_id) in edges:
            return f"node {node} repeats token {token_id} below node {parent}; siblings must differ"
        edges.add((parent, token_id))
    return None
