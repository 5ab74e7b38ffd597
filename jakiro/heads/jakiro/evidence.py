"""Evidence of the experts: which expert proposed a candidate, and how much of its score each expert contributed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from jakiro.heads.base import ChosenCandidates
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layers import HeadOutput

# Names of the evidence matrices: two have a column per expert, the last one has one column
EVIDENCE = ("router_weights", "expert_contributions", "residual_contribution")


class ExpertEvidenceHead(LayerHead):
    """A layer head with evidence of its experts for each candidate; a dense layer counts as one expert."""

    @property
    def evidence_schema(self) -> tuple[tuple[str, int], ...]:
        return tuple(zip(EVIDENCE, (self.num_experts, self.num_experts, 1), strict=True))

    def node_evidence(
        self, outputs: Sequence[HeadOutput], chosen: ChosenCandidates
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Compute router weights, contributions and residual of each node, and its proposer.

        By linearity expert e contributed w_e (W[x] − mean W)·y_e to the logit of x; decoupled experts contributed w_e
        times their own logit. The root and candidates of the contrastive branch or of other sources have NaN instead.
        With summed fusion the proposer is the expert that contributed most.
        """
        proposers, num_experts = chosen.proposers, self.num_experts
        weights = _select(outputs, "router_weights", chosen.rows, 1)[0]
        shown_weights = weights
        if self.has_contrastive_branch:
            pair = _select(outputs, "contrastive_weights", chosen.rows, 1)[0].abs()
            shown_weights = torch.where((proposers == num_experts)[:, None], pair, weights)
        directions = self._output_directions(chosen.token_ids)
        parts = _select(outputs, "features" if self.mixes_experts else "expert_outputs", chosen.rows, 2)[:, 0]
        contributions = weights * (directions * parts).sum(-1).T
        residuals = (directions * _select(outputs, "residual", chosen.rows, 1)[0]).sum(-1, keepdim=True)
        is_root = proposers < 0
        has_no_parts = (is_root | (proposers >= num_experts))[:, None]
        has_no_weights = (is_root | (proposers >= num_experts + self.has_contrastive_branch))[:, None]
        if not self.mixes_experts:
            proposers = torch.where(has_no_parts[:, 0], proposers, contributions.argmax(-1))
        columns = ((has_no_weights, shown_weights), (has_no_parts, contributions), (has_no_parts, residuals))
        matrices = (torch.where(is_missing, torch.nan, numbers) for is_missing, numbers in columns)
        return dict(zip(EVIDENCE, matrices, strict=True)), proposers

    def _output_directions(self, token_ids: Tensor) -> Tensor:
        """Return W[x] − mean W of each token x, (nodes, hidden) float32."""
        index = token_ids
        if self.config.draft_vocab_size is not None:
            index = torch.searchsorted(self.draft_token_ids, index).clamp(max=self.draft_token_ids.shape[0] - 1)
        return (self.output_weight.index_select(0, index) - self.mean_output_row).float()


def _select(outputs: Sequence[HeadOutput], name: str, rows: Tensor, dim: int) -> Tensor:
    """Return rows, counted over all passes, of one part of the outputs."""
    # `index_select` instead of indexing, which wakes all threads on a CPU from 3,000 numbers on
    parts = [getattr(output, name) for output in outputs]
    return (torch.cat(parts, dim=dim) if len(parts) > 1 else parts[0]).index_select(dim, rows).float()
