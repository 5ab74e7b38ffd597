"""The step's one device-to-host copy: an outcome packed into one tensor and unpacked into lists."""

import math

import torch
from torch import Tensor

from jakiro.core.tree import FLOAT_COLUMNS, INT_COLUMNS, DraftTree
from jakiro.core.verify import Outcome, Verification
from jakiro.ops.device import reads_are_free

_VERIFIED_INTS, _VERIFIED_FLOATS = ("choices", "on_path"), ("target_probs", "margins")
_INTS, _FLOATS = (*INT_COLUMNS, *_VERIFIED_INTS), (*FLOAT_COLUMNS, *_VERIFIED_FLOATS)


def read_outcome(tree: DraftTree, verification: Verification) -> Outcome:
    """Return the outcome on the host, with one copy; tensors on the host need none."""
    if not reads_are_free(tree.token_ids.device):
        return unpack(pack(tree, verification).tolist(), tree, tree.num_nodes)
    columns = {name: column.tolist() for name, column in _columns(tree, verification).items()}
    evidence = {name: matrix.tolist() for name, matrix in tree.evidence.items()}
    return _outcome(columns, evidence, int(verification.end), bool(verification.needs_full_sort))


def pack(tree: DraftTree, verification: Verification) -> Tensor:
    """Return (values,) float64: int columns, `end`, `needs_full_sort`, float columns and flattened evidence."""
    columns = _columns(tree, verification)
    ints, floats = [columns[name].long() for name in _INTS], [columns[name] for name in _FLOATS]
    ints += [verification.end[None], verification.needs_full_sort[None].long()]
    floats += [matrix.flatten() for matrix in tree.evidence.values()]
    # Concatenating by type first needs the fewest kernels on a GPU
    return torch.cat([torch.cat(ints).double(), torch.cat(floats).double()])


def packed_size(rows: int, evidence_width: int) -> int:
    """Return the number of values from `pack` for a tree of `rows` nodes."""
    return rows * (len(_INTS) + len(_FLOATS) + evidence_width) + 2


def unpack(values: list[float], tree: DraftTree, rows: int) -> Outcome:
    """Return the outcome from the values of `pack`.

    Args:
        tree: only its number of nodes and the shapes of its evidence are used.
        rows: packed rows, including pads.
    """
    num_nodes, start = tree.num_nodes, 0
    columns: dict[str, list] = {}
    for name in _INTS:
        columns[name] = list(map(int, values[start : start + num_nodes]))
        start += rows
    end, needs_full_sort = int(values[start]), bool(values[start + 1])
    start += 2
    for name in _FLOATS:
        columns[name] = values[start : start + num_nodes]
        start += rows
    evidence = {}
    for name, matrix in tree.evidence.items():
        width = matrix.shape[1]
        evidence[name] = [values[start + i * width : start + (i + 1) * width] for i in range(num_nodes)]
        start += rows * width
    return _outcome(columns, evidence, end, needs_full_sort)


def _columns(tree: DraftTree, verification: Verification) -> dict[str, Tensor]:
    return tree.columns | {name: getattr(verification, name) for name in (*_VERIFIED_INTS, *_VERIFIED_FLOATS)}


def _outcome(
    columns: dict[str, list], evidence: dict[str, list[list[float]]], end: int, needs_full_sort: bool
) -> Outcome:
    path = [index for index, is_accepted in enumerate(columns.pop("on_path")) if is_accepted]
    # The margin after a node is NaN if no token has a score above −inf there; then nothing can follow that node
    dead_ends = [length for length, index in enumerate(path) if math.isnan(columns["margins"][index])]
    if dead_ends:
        path = path[: dead_ends[0] + 1]
    return Outcome(
        **columns,
        evidence=evidence,
        accepted_path=path[1:],
        bonus_token_id=None if dead_ends else columns["choices"][end],
        needs_full_sort=needs_full_sort,
    )
