"""Evidence of the experts: which expert proposed a candidate, and how much each one contributed to its logit."""

import torch
from torch import Tensor

from jakiro.drafters.base import Proposer
from jakiro.drafters.candidates import Candidates
from jakiro.heads.config import DraftConfig
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layers import HeadOutput

# Names of the evidence matrices: two with one number per expert, and one with a single number
EVIDENCE = ("router_weights", "expert_contributions", "residual_contribution")


def proposers_of(num_experts: int, decoupled: bool, contrastive: bool) -> tuple[Proposer, ...]:
    """Return the proposers of a head: its experts, and the contrastive branch if it has one."""
    did = "Guessed the candidate itself" if decoupled else "Pushed the candidate most"
    found = [
        Proposer(f"expert_{number}", f"Expert {number + 1}", f"{did}: expert {number + 1} of {num_experts}.")
        for number in range(num_experts)
    ]
    if contrastive:
        sentence = "The contrastive branch of the same pass, one position further."
        found.append(Proposer("contrastive", "Contrastive", sentence))
    return tuple(found)


def experts_of(config: DraftConfig) -> tuple[Proposer, ...]:
    """Return the proposers of a head with this config."""
    return proposers_of(config.num_experts, config.fusion == "decoupled", config.contrastive)


def expert_evidence(head: LayerHead, outputs: list[HeadOutput], chosen: Candidates) -> tuple[dict[str, Tensor], Tensor]:
    """Return router weights, contributions and residual of each node, and the proposers.

    By linearity expert e contributes w_e (W[x] − mean W)·y_e to the logit of token x; a decoupled expert contributes
    w_e times its own logit. The root and candidates of the contrastive branch and of other sources have no
    contributions (NaN). With summed fusion the proposer is the expert that contributed most.

    Args:
        head: Draft head.
        outputs: Outputs of all passes, the root's row first.
        chosen: The root and the selected candidates.
    """
    config, rows = head.config, chosen.rows

    def of_chosen(name: str, dim: int) -> Tensor:
        # `index_select` instead of `[rows]`, which on a CPU uses all threads from 3,000 numbers on
        parts = [getattr(output, name) for output in outputs]
        return (torch.cat(parts, dim=dim) if len(parts) > 1 else parts[0]).index_select(dim, rows).float()

    weights = of_chosen("router_weights", 1)[0]
    shown = weights
    if config.contrastive:
        pair = of_chosen("contrastive_weights", 1)[0].abs()
        shown = torch.where((chosen.proposers == config.num_experts)[:, None], pair, weights)
    index = chosen.token_ids
    if config.draft_vocab_size is not None:
        index = torch.searchsorted(head.draft_token_ids, index).clamp(max=head.draft_token_ids.shape[0] - 1)
    directions = (head.output_weight.index_select(0, index) - head.mean_output_row).float()
    parts = of_chosen("features" if config.fusion == "decoupled" else "expert_outputs", 2)[:, 0]
    contributions = weights * (directions * parts).sum(-1).T
    residuals = (directions * of_chosen("residual", 1)[0]).sum(-1, keepdim=True)
    proposers = chosen.proposers
    root = proposers < 0
    other = (root | (proposers >= config.num_experts))[:, None]
    foreign = (root | (proposers >= config.num_experts + config.contrastive))[:, None]
    if config.fusion == "summed":
        proposers = torch.where(other[:, 0], proposers, contributions.argmax(-1))
    found = ((foreign, shown), (other, contributions), (other, residuals))
    return dict(zip(EVIDENCE, (torch.where(no, torch.nan, each) for no, each in found), strict=True)), proposers
