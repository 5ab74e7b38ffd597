"""The Jakiro head: a decoder layer with a mixture of experts that predicts the target's next feature.

With summed fusion the same pass also predicts the contrastive feature one position later. Jakiro, arXiv 2502.06282,
section 3.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from jakiro.heads.jakiro.config import JakiroConfig
from jakiro.heads.jakiro.evidence import ExpertEvidenceHead
from jakiro.heads.layers import HeadOutput, SwiGLUExpert


class GELUExpert(nn.Module):
    """proj(gelu(fc(u))), the expert of decoupled fusion."""

    def __init__(self, hidden_size: int, inner_size: int) -> None:
        super().__init__()
        self.fc = nn.Linear(hidden_size, inner_size, bias=False)
        self.proj = nn.Linear(inner_size, hidden_size, bias=False)

    inner = staticmethod(functional.gelu)


class JakiroHead(ExpertEvidenceHead):
    """A head with experts that are summed, or that have a distribution each."""

    def __init__(self, config: JakiroConfig) -> None:
        self.num_experts, self.has_contrastive_branch = config.num_experts, config.contrastive
        self.mixes_experts = config.fusion == "decoupled"
        super().__init__(config)
        # (first is stronger, second is stronger), branch, expert
        signs = torch.tensor([[[1.0, 1.0], [1.0, -1.0]], [[1.0, 1.0], [-1.0, 1.0]]])
        self.register_buffer("signs", signs, persistent=False)

    @property
    def expert_type(self) -> type[nn.Module]:
        return GELUExpert if self.mixes_experts else SwiGLUExpert

    def combine(self, residual: Tensor, expert_outputs: Tensor, router_logits: Tensor) -> HeadOutput:
        # (…, branches, experts), the main branch first
        weights = router_logits.unflatten(-1, (-1, self.num_experts)).softmax(-1)
        if self.mixes_experts:
            return HeadOutput(residual + expert_outputs, None, residual, expert_outputs, weights[..., 0, :], None)
        if self.has_contrastive_branch:
            first_is_stronger = router_logits[..., 2:3] >= router_logits[..., 3:]
            weights = weights * torch.where(first_is_stronger[..., None], *self.signs)
        mixed = residual + (weights.movedim((-2, -1), (0, 1))[..., None] * expert_outputs).sum(1)
        if not self.has_contrastive_branch:
            return HeadOutput(mixed[0], None, residual, expert_outputs, weights[..., 0, :], None)
        return HeadOutput(*mixed.unbind(0), residual, expert_outputs, *weights.unbind(-2))
