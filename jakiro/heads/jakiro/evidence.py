"""Evidence of the experts: which expert proposed a candidate, and how much of its score each expert contributed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layers import HeadOutput

# Names of the evidence matrices: two have a column per expert, the last one has one column
EVIDENCE = ("router_weights", "expert_contributions", "residual_contribution")


def evidence_schema(head: LayerHead) -> tuple[tuple[str, int], ...]:
    """Return the name and the number of columns of each evidence matrix."""
    return tuple(zip(EVIDENCE, (head.num_experts, head.num_experts, 1), strict=True))


def expert_evidence(
    head: LayerHead, outputs: Sequence[HeadOutput], rows: Tensor, token_ids: Tensor, proposers: Tensor
) -> tuple[dict[str, Tensor], Tensor]:
    """Compute router weights, contributions and residual of each node, and its proposer.

    By linearity expert e contributed w_e (W[x] − mean W)·y_e to the logit of x; decoupled experts contributed w_e times
    their own logit. The root and candidates of the contrastive branch or of other sources have NaN instead. With summed
    fusion the proposer is the expert that contributed most.

    Args:
        head: The head.
        outputs: Outputs of all passes, the root's row first.
        rows: (nodes,) int64, the row of all passes from which each node came.
        token_ids: (nodes,) int64.
        proposers: (nodes,) int64; -1 for the root, `num_experts` for the contrastive branch.

    Returns:
        Matrices by the names of `EVIDENCE`, (nodes, columns) float32, and (nodes,) int64 proposers.
    """

    def select(name: str, dim: int) -> Tensor:
        # `index_select` instead of indexing, which wakes all threads on a CPU from 3,000 numbers on
        parts = [getattr(output, name) for output in outputs]
        return (torch.cat(parts, dim=dim) if len(parts) > 1 else parts[0]).index_select(dim, rows).float()

    weights = select("router_weights", 1)[0]
    shown_weights = weights
    if head.has_contrastive_branch:
        pair = select("contrastive_weights", 1)[0].abs()
        shown_weights = torch.where((proposers == head.num_experts)[:, None], pair, weights)
    index = token_ids
    if head.config.draft_vocab_size is not None:
        index = torch.searchsorted(head.draft_token_ids, index).clamp(max=head.draft_token_ids.shape[0] - 1)
    directions = (head.output_weight.index_select(0, index) - head.mean_output_row).float()
    parts = select("features" if head.mixes_experts else "expert_outputs", 2)[:, 0]
    contributions = weights * (directions * parts).sum(-1).T
    residuals = (directions * select("residual", 1)[0]).sum(-1, keepdim=True)
    is_root = proposers < 0
    has_no_parts = (is_root | (proposers >= head.num_experts))[:, None]
    has_no_weights = (is_root | (proposers >= head.num_experts + head.has_contrastive_branch))[:, None]
    if not head.mixes_experts:
        proposers = torch.where(has_no_parts[:, 0], proposers, contributions.argmax(-1))
    columns = ((has_no_weights, shown_weights), (has_no_parts, contributions), (has_no_parts, residuals))
    matrices = (torch.where(is_missing, torch.nan, numbers) for is_missing, numbers in columns)
    return dict(zip(EVIDENCE, matrices, strict=True)), proposers
