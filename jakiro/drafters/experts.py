"""The proposers of a head's own candidates: its experts and its contrastive branch."""

from jakiro.drafters.base import Proposer
from jakiro.heads.base import DraftHead


def proposers_of(num_experts: int, decoupled: bool, contrastive: bool) -> tuple[Proposer, ...]:
    """Return the experts, followed by the contrastive branch of a head that has one."""
    did = "Guessed the candidate itself" if decoupled else "Pushed the candidate most"
    proposers = [
        Proposer(f"expert_{number}", f"Expert {number + 1}", f"{did}: expert {number + 1} of {num_experts}.")
        for number in range(num_experts)
    ]
    if contrastive:
        sentence = "The contrastive branch of the same pass, one position later."
        proposers.append(Proposer("contrastive", "Contrastive", sentence))
    return tuple(proposers)


def experts_of(head: DraftHead) -> tuple[Proposer, ...]:
    """Return the proposers of a head's own trees."""
    return proposers_of(head.num_experts, head.mixes_experts, head.has_contrastive_branch)
