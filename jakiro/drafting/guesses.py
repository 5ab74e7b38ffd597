"""Candidates of drafters that compute on the host, one by one, before they become tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from jakiro.drafting.candidates import Candidates


@dataclass(slots=True, eq=False)
class Guess:
    """A candidate.

    Attributes:
        score, proposer, also: as in `DraftTree`.
        parent: a guess of depth 0 is the root, None stands for it too.
    """

    token_id: int
    score: float
    proposer: int = 0
    also: int = 0
    depth: int = 0
    parent: "Guess | None" = None


def candidates_of(guesses: Sequence[Guess], device: torch.device) -> Candidates:
    """The guesses as tensors; parents come before their children, and those of depth 1 have the root for a parent."""
    places = {id(guess): place for place, guess in enumerate(guesses, start=1)}
    columns = [
        [each.token_id, places.get(id(each.parent), 0), each.depth, each.proposer, each.also] for each in guesses
    ]
    token_ids, parents, depths, proposers, also = torch.tensor(columns, device=device).T.contiguous()
    scores = torch.tensor([each.score for each in guesses], device=device)
    return Candidates.of(token_ids, parents, depths, scores, proposers=proposers, also=also)


def with_chain(
    guesses: Sequence[Guess], token_ids: Sequence[int], log_estimates: Sequence[float], proposer: int
) -> list[Guess]:
    """The guesses and a chain at the root; where both name a candidate it has both sources and the better score.

    Args:
        guesses: changed in place where the chain names them too.
        log_estimates: of each token given the one before.
    """
    found, known = list(guesses), {(_key(each.parent), each.token_id): each for each in guesses}
    above, score = None, 0.0
    for depth, (token_id, log_estimate) in enumerate(zip(token_ids, log_estimates, strict=True), start=1):
        score += log_estimate
        own = known.get((_key(above), token_id))
        if own is None:
            own = Guess(token_id, score, proposer, depth=depth, parent=above)
            found.append(own)
        else:
            own.score, own.also = max(own.score, score), own.also | 1 << proposer
        above = own
    return found


def best_path(guesses: Sequence[Guess]) -> list[Guess]:
    """From the root's best guess to the best one below it, and so on."""
    best: dict[int, Guess] = {}
    for each in guesses:
        key = _key(each.parent)
        if key not in best or each.score > best[key].score:
            best[key] = each
    path, above = [], 0
    while above in best:
        path.append(best[above])
        above = id(path[-1])
    return path


def _key(parent: Guess | None) -> int:
    """Equal for guesses with the same parent, and 0 below the root."""
    return 0 if parent is None or parent.depth == 0 else id(parent)
