"""Statistics of a head's experts on held-out text: `python -m lab.training.experts FEATURES HEAD…`.

FEATURES is a folder written by `train`; its first rows are those that the training holds out.
"""

from pathlib import Path
from typing import Annotated

import torch
import typer

from jakiro.cli.loading import set_up
from jakiro.cli.options import Target, Threads, argument, option
from jakiro.config import require
from jakiro.heads.layer_head import LayerHead
from jakiro.training.features import FeatureCache
from jakiro.training.losses import LossWeights, Objective, learnable_positions
from jakiro.training.validation import HeldOut, held_out
from lab.commands import run
from lab.training.heads import bound_heads


@torch.no_grad()
def expert_facts(head: LayerHead, data: HeldOut) -> dict[str, float]:
    """Return statistics of the experts on the target's true features.

    Returns:
        `differ`: share of positions where the experts, each added separately to the residual stream, have different
        first choices; `best_expert_top1`, `union_top1`: share of positions where the better expert, or at least one
        of them, has the target's choice; `gain`: the difference of these two; `entropy`: mean entropy of the routing
        weights in bits; `mean_weight_0`: mean weight of the first expert.
    """
    totals = {"differ": 0.0, "union_top1": 0.0, "entropy": 0.0, "mean_weight_0": 0.0}
    hits, count = torch.zeros(head.num_experts), 0
    objective = Objective(head, LossWeights())
    for batch, choice in zip(data.batches, data.choices, strict=True):
        sequence, position = learnable_positions(batch, 1).nonzero(as_tuple=True)
        output = next(objective.unroll(batch, 1, None))
        alone = output.residual[sequence, position - 1] + output.expert_outputs[:, sequence, position - 1]
        guesses = head.draft_token_ids[head.logits(alone).argmax(-1)]
        right = guesses == choice[sequence, position]
        weights = output.router_weights[sequence, position - 1]
        hits += right.sum(-1).cpu()
        count += len(position)
        totals["differ"] += (guesses[0] != guesses[-1]).sum().item()
        totals["union_top1"] += right.any(0).sum().item()
        totals["entropy"] += -torch.special.xlogy(weights, weights).sum().item() / torch.log(torch.tensor(2.0)).item()
        totals["mean_weight_0"] += weights[:, 0].sum().item()
    facts = {name: total / count for name, total in totals.items()} | {"best_expert_top1": hits.max().item() / count}
    facts["gain"] = facts["union_top1"] - facts["best_expert_top1"]
    return {f"experts/{name}": value for name, value in facts.items()}


def experts(
    features: Annotated[Path, argument("Folder of features written by train.")],
    heads: Annotated[list[str], argument("Heads of two experts for one target: known names, folders or Hub ids.")],
    target: Target = None,
    rows: Annotated[int, option("Rows to compare on, from the first one.")] = 100,
    threads: Threads = None,
) -> None:
    """Print how often the experts of each head differ and are right, and the router's weights."""
    set_up(threads)
    for name, head, output in bound_heads(target, heads):
        require(head.num_experts > 1, f"The head {name} has one expert; use heads with two.")
        facts = expert_facts(head, held_out(FeatureCache(features), range(rows), output))
        typer.echo(f"{name}: {', '.join(f'{fact} {value:.3f}' for fact, value in facts.items())}")


if __name__ == "__main__":
    run(experts)
