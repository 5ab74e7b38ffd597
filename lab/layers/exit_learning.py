"""Training of heads on top of the target's first layers: predictions along texts, first weights and whitening."""

from collections.abc import Iterator

import torch
from torch import Tensor

from jakiro.heads.kind import Texts
from jakiro.heads.layer_learning import layer_whitening, start_from_rows
from jakiro.heads.learning import Rows, fit, randomise, whitening_matrix
from lab.layers.exit_head import ExitHead, NestedHead, scaled


def levels(head: ExitHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """Yield the prediction of each exit; see `HeadKind.levels`. All exits predict the same feature."""
    embeddings = head.embed(ids[:, :-1])
    positions = torch.arange(embeddings.shape[1], device=embeddings.device)[None]
    _, *lower = map(scaled, features.split(head.config.hidden_size, dim=-1))
    if isinstance(head, NestedHead):
        exits = head.all_exits(embeddings, lower, positions)
    else:
        exits = [head.block(embeddings, lower[-1], positions).features]
    # A row of an exit predicts the feature at its own position, a row of other heads the next one
    yield from (torch.cat([rows[:, 1:], rows[:, -1:]], dim=1) for rows in exits)


@torch.no_grad()
def exit_rows(head: ExitHead, texts: Texts) -> tuple[Rows, list[Tensor]]:
    """Return the rows of `sample_rows` and the state of each exit at t.

    The rows are [E[x_t]; the deepest lower state at t], h_t and h_{t+1}.
    """
    parts = []
    for ids, read in texts:
        features, *lower = read.split(head.config.hidden_size, dim=-1)
        lower = [scaled(state[:-1]) for state in lower]
        inputs = torch.cat([head.embed(ids[:-1]), lower[-1]], dim=-1)
        parts.append((inputs, features[:-1], features[1:], *lower))
    inputs, features, following, *lower = map(torch.cat, zip(*parts, strict=True))
    return (inputs, features, following), lower


@torch.no_grad()
def start_exits(head: ExitHead, texts: Texts, seed: int) -> None:
    """Initialise the own layer like that of any head, and every other exit by least squares to the last feature."""
    torch.manual_seed(seed)
    randomise(head)
    rows, lower = exit_rows(head, texts)
    start_from_rows(head, rows)
    if isinstance(head, NestedHead):
        for leave, states in zip(head.exits, lower, strict=True):
            fit(leave, states, rows[1])


def whitening(head: ExitHead, texts: Texts) -> dict[str, Tensor]:
    """Return the whitening matrices; see `HeadKind.whitening`."""
    rows, lower = exit_rows(head, texts)
    matrices = layer_whitening(head, rows)
    if isinstance(head, NestedHead):
        matrices |= {f"exits.{number}.weight": whitening_matrix(states) for number, states in enumerate(lower)}
    return matrices
