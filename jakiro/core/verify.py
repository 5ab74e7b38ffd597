"""Verification: tree, target logits and sampling settings in, the accepted path out.

A node is right iff its token equals the target's own choice after its parent; the deepest node all of whose ancestors
are right ends the accepted path, and the target's choice there is the bonus token. Pure tensors, no host reads; what
the caller sees is packed into one tensor, which a step reads once.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.sampling import PREFIX_LENGTH, HeldSampling, KeyedNoise, NoiseRows, adds_whole_rows, choose, tempered
from jakiro.core.tree import DraftTree, accepted_node

_NODE_FIELDS = 13


@dataclass(frozen=True, slots=True)
class Verification:
    """What the target says about a tree; tensors on the device.

    Attributes:
        choices: (num_nodes,) int64, the target's own choice after each node.
        margins: (num_nodes,) float32.
        target_probs: (num_nodes,) float32, softmax of the parent's raw logits at the sampling temperature; NaN at 0.
        on_path: (num_nodes,) bool, root and accepted nodes.
        end: () int64, the last accepted node (0 when nothing was accepted).
        too_short: () bool, the sorted prefix did not settle a choice on the path.
    """

    choices: Tensor
    margins: Tensor
    target_probs: Tensor
    on_path: Tensor
    end: Tensor
    too_short: Tensor


@dataclass(frozen=True, slots=True)
class Outcome:
    """A step as the host sees it: plain lists, one entry per node, root first."""

    token_ids: list[int]
    parents: list[int]
    depths: list[int]
    scores: list[float]
    draft_passes: list[int]
    branches: list[int]
    proposers: list[int]
    also_context: list[bool]
    draft_probs: list[float]
    residuals: list[float]
    target_probs: list[float]
    choices: list[int]
    margins: list[float]
    router_weights: list[list[float]]
    contributions: list[list[float]]
    expected: list[list[float]]
    accepted_path: list[int]
    bonus_token_id: int
    too_short: bool

    @property
    def accepted_ids(self) -> list[int]:
        return [self.token_ids[index] for index in self.accepted_path]


def verify(
    tree: DraftTree,
    mask: Tensor,
    logits: Tensor,
    sampling: SamplingParams | HeldSampling,
    noise: KeyedNoise,
    root_position: int | Tensor,
    noise_rows: NoiseRows,
    prefix_length: int = PREFIX_LENGTH,
) -> Verification:
    """Compares every node with the target's own choice after its parent.

    Args:
        tree: num_nodes nodes.
        mask: (num_nodes, num_nodes) ancestor-or-self mask.
        logits: (num_nodes, vocab_size) raw target logits at every node.
        root_position: absolute position of the root; the choice after a node of depth d is for root_position + d + 1.
        noise_rows: noise over the target's whole vocabulary, used when no top-k or top-p is set.
        prefix_length: how many sorted tokens top-k and top-p look at before `too_short` asks for all.
    """
    positions = tree.depths + (root_position + 1)
    rows = None
    if adds_whole_rows(sampling):
        rows = noise_rows.rows(root_position + 1, tree.max_depth + 1)
    choice = choose(logits, sampling, noise, positions, rows, tree.depths, prefix_length)
    parents = tree.parents.clamp(min=0)
    right = tree.token_ids == choice.token_ids[parents]
    end = accepted_node(mask, tree.depths, right)
    # Indexing with a 0-dimensional tensor would read it on the host.
    on_path = mask.index_select(0, end[None])[0]
    if choice.log_totals is None:
        target_probs = tempered(logits, sampling).softmax(-1)[parents, tree.token_ids]
    else:
        chosen = tempered(logits[parents, tree.token_ids], sampling)
        target_probs = (chosen - choice.log_totals[parents]).exp()
    target_probs = torch.where(tree.depths > 0, target_probs, torch.nan)
    return Verification(
        choice.token_ids, choice.margins, target_probs, on_path, end, (choice.prefix_too_short & on_path).any()
    )


def read_back(tree: DraftTree, verification: Verification) -> Outcome:
    """The step's one device-to-host copy: everything the caller sees, packed into one float64 tensor."""
    return unpack(pack(tree, verification).tolist(), tree, tree.num_nodes, tree.router_weights.shape[1])


def pack(tree: DraftTree, verification: Verification) -> Tensor:
    """(values,) float64: column after column, then matrices, then end and flag."""
    columns = [
        tree.token_ids,
        tree.parents,
        tree.depths,
        tree.scores,
        tree.draft_passes,
        tree.branches,
        tree.proposers,
        tree.also_context,
        tree.draft_probs,
        tree.residuals,
        verification.target_probs,
        verification.choices,
        verification.margins,
    ]
    flags = torch.stack([verification.end.double(), verification.too_short.double()])
    return torch.cat(
        [
            *(column.double() for column in columns),
            verification.on_path.double(),
            tree.router_weights.double().flatten(),
            tree.contributions.double().flatten(),
            tree.expected.double().flatten(),
            flags,
        ]
    )


def unpack(values: list[float], tree: DraftTree, rows: int, experts: int, expected_width: int | None = None) -> Outcome:
    """What `pack` packed, as the host sees it.

    Args:
        tree: its shapes alone count: how many nodes, experts, levels and tree sizes there are to see.
        rows, experts, expected_width: the sizes that were packed, which may be padded.
    """
    num_nodes, num_experts = tree.router_weights.shape
    lists = [values[i * rows : i * rows + num_nodes] for i in range(_NODE_FIELDS + 1)]
    integers = {0, 1, 2, 4, 5, 6, 11}
    (
        token_ids, parents, depths, scores, draft_passes, branches, proposers,
        also_context, draft_probs, residuals, target_probs, choices, margins, on_path,
    ) = ([int(v) for v in column] if i in integers else column for i, column in enumerate(lists))  # fmt: skip
    rest = values[(_NODE_FIELDS + 1) * rows :]
    matrix = [rest[i * experts : i * experts + num_experts] for i in range(2 * rows)]
    num_levels, num_buckets = tree.expected.shape
    width = num_buckets if expected_width is None else expected_width
    sums = rest[2 * rows * experts : -2]
    end, too_short = int(rest[-2]), bool(rest[-1])
    return Outcome(
        token_ids=token_ids,
        parents=parents,
        depths=depths,
        scores=scores,
        draft_passes=draft_passes,
        branches=branches,
        proposers=proposers,
        also_context=[bool(v) for v in also_context],
        draft_probs=draft_probs,
        residuals=residuals,
        target_probs=target_probs,
        choices=choices,
        margins=margins,
        router_weights=matrix[:num_nodes],
        contributions=matrix[rows : rows + num_nodes],
        expected=[sums[i * width : i * width + num_buckets] for i in range(num_levels)],
        accepted_path=[index for index in range(1, num_nodes) if on_path[index]],
        bonus_token_id=choices[end],
        too_short=too_short,
    )
