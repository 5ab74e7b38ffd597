"""Which expert of a head proposed a candidate, and how much of its score each of them gave."""

import torch
from torch import Tensor

from jakiro.drafters.base import Proposer
from jakiro.drafters.candidates import Candidates
from jakiro.heads.config import DraftConfig
from jakiro.heads.layer_head import LayerHead
from jakiro.heads.layers import HeadOutput

# Names of the matrices of evidence: one number for each expert, twice, and one number
EVIDENCE = ("router_weights", "expert_contributions", "residual_contribution")


def proposers_of(num_experts: int, decoupled: bool, contrastive: bool) -> tuple[Proposer, ...]:
    """The experts, and the contrastive branch of a head that has one."""
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
    """The proposers of a head's own trees."""
    return proposers_of(config.num_experts, config.fusion == "decoupled", config.contrastive)


def expert_evidence(head: LayerHead, outputs: list[HeadOutput], chosen: Candidates) -> tuple[dict[str, Tensor], Tensor]:
    """Router weights, contributions and residual of each node, and its proposer; the root has none.

    By linearity expert e gave w_e (W[x] − mean W)·y_e of the logit of x; decoupled experts give w_e times their own
    logit. Candidates of the contrastive branch and of other sources have no such parts. With summed fusion the expert
    that contributed most is named.

    Args:
        outputs: of all passes, the root's row first.
    """
    config, rows = head.config, chosen.rows

    def of_chosen(name: str, dim: int) -> Tensor:
        # `index_select`, not `[rows]`, which on a CPU wakes all threads from 3,000 numbers on
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
