"""Verification: find the path of drafted tokens that the target accepts.

A node is right if and only if its token equals the target's own choice after its parent. The accepted path ends at the
deepest node that is right together with all its ancestors. The step then adds the target's own choice after this node.
vLLM calls this token a recovered token if a candidate was rejected, and a bonus token otherwise; this code uses the
name `bonus_token_id` for both. On a CPU with compiled kernels one call computes the same.

The functions do not copy device tensors to the host, because a copy waits for the device.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from jakiro.config import SamplingParams
from jakiro.core.noise import KeyedNoise
from jakiro.core.sampling import PREFIX_LENGTH, DeviceSampling, choose, tempered
from jakiro.core.tree import DraftTree, accepted_node
from jakiro.ops import kernels
from jakiro.ops.kernels import SamplingKernels


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of comparing a tree with the target's choices.

    The fields are tensors on the device; some are Python numbers if compiled CPU code computed them.

    Attributes:
        choices: (num_nodes,) int64, the target's own choice after each node.
        margins: (num_nodes,) float32, score of the choice minus score of the second best token; NaN if no token can
            follow the node.
        target_probs: (num_nodes,) float32, the target's probability of each node's token after its parent, at the
            sampling temperature and before top-k, top-p and min-p; NaN for the root.
        on_path: (num_nodes,) bool, root and accepted nodes.
        end: () int64, the last accepted node; 0 if no candidate was accepted.
        needs_full_sort: () bool, True if the largest `prefix_length` logits were too few to apply top-k or top-p at a
            node of the path; `verify` must then be called again with more.
    """

    choices: Tensor
    margins: Tensor
    target_probs: Tensor
    on_path: Tensor
    end: Tensor | int
    needs_full_sort: Tensor | bool


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a step on the host: plain lists with one entry per node, root first.

    Attributes:
        token_ids, parents, depths, scores, draft_passes, draft_probs, proposers, also: columns of the tree, see
            `NodeColumns`.
        target_probs, choices, margins: see `Verification`.
        evidence: Rows of numbers by name, one row per node; see `DraftTree`.
        accepted_path: Indices of the accepted nodes from depth 1 on.
        bonus_token_id: the target's choice after the accepted path; None if no token can follow, because the settings
            forbid every token or the logits are NaN.
    """

    token_ids: list[int]
    parents: list[int]
    depths: list[int]
    scores: list[float]
    draft_passes: list[int]
    draft_probs: list[float]
    proposers: list[int]
    also: list[int]
    target_probs: list[float]
    choices: list[int]
    margins: list[float]
    evidence: dict[str, list[list[float]]]
    accepted_path: list[int]
    bonus_token_id: int | None
    needs_full_sort: bool

    @property
    def accepted_ids(self) -> list[int]:
        """Token ids of the accepted path."""
        return [self.token_ids[index] for index in self.accepted_path]

    @property
    def new_ids(self) -> list[int]:
        """Token ids of the accepted path, then the bonus token if there is one.

        The end of the completion may cut them: `Step.committed_ids` are the ids after that cut.
        """
        bonus = [] if self.bonus_token_id is None else [self.bonus_token_id]
        return self.accepted_ids + bonus


def verify(
    tree: DraftTree,
    mask: Tensor,
    logits: Tensor,
    sampling: SamplingParams | DeviceSampling,
    noise: KeyedNoise,
    root_position: int | Tensor,
    noise_rows: Tensor | None = None,
    prefix_length: int = PREFIX_LENGTH,
) -> Verification:
    """Compare every node with the target's own choice after its parent.

    Args:
        tree: num_nodes nodes.
        mask: (num_nodes, num_nodes) ancestor-or-self mask.
        logits: (num_nodes, vocab_size), the target's logits at every node after all logits processors.
        root_position: Absolute position of the root; after a node of depth d comes position root_position + d + 1.
        noise_rows: (max_depth + 1, vocab_size) noise; row d is for the token after a node of depth d. None computes it.
            Used only if no token is filtered out.
        prefix_length: Number of largest logits to which top-k and top-p are applied; `needs_full_sort` is set if they
            are too few.
    """
    # The compiled call reads settings on the host; unfiltered sampling also requires precomputed noise
    has_inputs = isinstance(sampling, SamplingParams) and (noise_rows is not None or not sampling.unfiltered)
    native = kernels.current().sampling_for(logits) if has_inputs else None
    if native is not None:
        return _verify_in_one_call(native, tree, logits, sampling, noise_rows, root_position)
    positions = tree.depths + (root_position + 1)
    parents = tree.parents.clamp(min=0)
    choice = choose(logits, sampling, noise, positions, noise_rows, tree.depths, prefix_length)
    end = accepted_node(mask, tree.depths, tree.token_ids == choice.token_ids[parents])
    # mask[end] would copy `end` to the host
    on_path = mask.index_select(0, end[None])[0]
    target_probs = tempered(logits, sampling).softmax(-1)[parents, tree.token_ids]
    target_probs[:1].fill_(torch.nan)
    return Verification(
        choice.token_ids, choice.margins, target_probs, on_path, end, (choice.needs_full_sort & on_path).any()
    )


def _verify_in_one_call(
    native: SamplingKernels,
    tree: DraftTree,
    logits: Tensor,
    sampling: SamplingParams,
    noise_rows: Tensor | None,
    root_position: int,
) -> Verification:
    temperature, filters = 1.0 if sampling.greedy else sampling.temperature, None
    if not sampling.unfiltered:
        noise_rows = None
        if not sampling.greedy:
            limits = sampling.top_k, sampling.top_p, sampling.log_min_p
            filters = native.filters(*limits, sampling.seed, root_position + 1)
    *columns, end = native.verify(logits, temperature, noise_rows, filters, tree.token_ids, tree.parents, tree.depths)
    return Verification(*columns, end, False)
