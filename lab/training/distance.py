"""Distance of heads from their target on the same rows: `python -m lab.training.distance FEATURES HEAD…`.

FEATURES is a folder written by `train`; its first rows are those that the training holds out. It compares DistillSpec's
drafts, because the report of each training is measured on its own text.
"""

from pathlib import Path
from typing import Annotated

import torch
import typer

from jakiro.cli.loading import set_up
from jakiro.cli.options import Target, Threads, argument, option
from jakiro.training.features import FeatureCache
from jakiro.training.losses import LossWeights, Objective, learnable_positions, objective_for
from jakiro.training.validation import NUM_STEPS, HeldOut, agreement, branch_features, held_out, log_q
from lab import KNOWN
from lab.commands import run
from lab.training.heads import bound_heads


@torch.no_grad()
def distances(objective: Objective, data: HeldOut, most: int = 4000) -> dict[int, float]:
    """Return the mean total variation between draft and target at temperature 1, by level or exit, after true tokens.

    Tokens outside the draft vocabulary have draft probability 0.

    Args:
        most: maximum number of positions.
    """
    head, totals, count = objective.head, {}, 0
    for batch in data.batches:
        sequence, position = learnable_positions(batch, NUM_STEPS).nonzero(as_tuple=True)
        sequence, position = sequence[: most - count], position[: most - count]
        count += len(position)
        rows = list(branch_features(objective, batch, sequence, position, NUM_STEPS))
        for part in torch.arange(len(position)).split(256):
            target = batch.features[sequence[part], position[part]].to(data.output_weight) @ data.output_weight.T
            target = target.softmax(-1)[:, head.draft_token_ids]
            for branch, step, features, router_log in rows:
                if branch == "main":
                    draft = log_q(head, features[..., part, :], router_log if router_log is None else router_log[part])
                    # Half of Σ|p − q| equals the sum over p > q, which includes p outside the draft vocabulary
                    overlap = torch.minimum(draft.exp(), target).sum(-1)
                    totals[step] = totals.get(step, 0.0) + float((1 - overlap).sum())
    return {step: total / count for step, total in totals.items()}


def distance(
    features: Annotated[Path, argument("Folder of features with the layers that the heads read.")],
    heads: Annotated[list[str], argument("Heads for one target: folders or Hub ids.")],
    target: Target = None,
    rows: Annotated[int, option("Rows to compare on, from the first one.")] = 100,
    threads: Threads = None,
) -> None:
    """Print total variation at temperature 1 and correct first choices of each head, by level or exit."""
    set_up(threads)
    for name, head, output in bound_heads(target, heads):
        objective = objective_for(head, LossWeights(), KNOWN.kinds)
        data = held_out(FeatureCache(features), range(rows), output)
        guesses = agreement(objective, data)
        for level, value in distances(objective, data).items():
            right = guesses[f"main_{level}/top1"]
            typer.echo(f"{name}, {level}: total variation {value:.3f}, first choice right {right:.3f}")


if __name__ == "__main__":
    run(distance)
