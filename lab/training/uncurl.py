"""Merge two decoupled experts into one; the loss of τ shows whether they do different work.

    python -m lab.training.uncurl HEAD FEATURES OUT --rule aligned

UNCURL (arXiv 2409.01483) merges a model's experts before serving: inner neurons are paired by the similarity of their
activations on text, and experts are weighted by their use. FEATURES is a folder written by `train`.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from jakiro.cli.options import argument, option
from jakiro.config import require
from jakiro.heads.checkpoint import save_head
from jakiro.heads.layer_head import LayerHead
from jakiro.training.features import FeatureCache
from jakiro.training.losses import LossWeights, Objective
from lab.commands import run
from lab.training.heads import bound_heads

RULES = ("aligned", "mean", "first", "second")


@torch.no_grad()
def inner_activations(head: LayerHead, cache: FeatureCache, num_sequences: int = 40) -> tuple[Tensor, Tensor]:
    """Return (experts, rows, inner) activations along texts, and (experts,) mean router weights."""
    mixture = head.layers[0].mlp_moe
    objective, rows, shares = Objective(head, LossWeights()), [], []
    read: list[Tensor] = []
    watch = mixture.register_forward_hook(lambda _, inputs, __: read.append(inputs[0][0]))
    for index in range(min(num_sequences, len(cache))):
        output = next(objective.unroll(cache.batch([index]), 1, None))
        rows.append(torch.stack([mixture.inner(expert.fc(read[-1])) for expert in mixture.experts]))
        shares.append(output.router_weights[0])
    watch.remove()
    return torch.cat(rows, dim=1), torch.cat(shares).mean(0)


def standardised(activations: Tensor) -> Tensor:
    """Return (rows, inner) activations with mean 0 and variance 1 over the rows."""
    return (activations - activations.mean(0)) / activations.std(0).clamp(min=1e-9)


def match_neurons(first: Tensor, second: Tensor) -> Tensor:
    """Match the neurons of two experts one to one, greedily from the most similar pair on.

    Args:
        first, second: (rows, inner) activations; similarity is their correlation over the rows.

    Returns:
        (inner,) int64: the neuron of the second expert for each of the first.
    """
    correlation = standardised(first).T @ standardised(second)
    partner = torch.full((correlation.shape[0],), -1)
    for _ in range(correlation.shape[0]):
        place = int(correlation.argmax())
        ours, theirs = divmod(place, correlation.shape[1])
        partner[ours] = theirs
        correlation[ours], correlation[:, theirs] = -torch.inf, -torch.inf
    return partner


@torch.no_grad()
def merged(head: LayerHead, partner: Tensor, shares: Tensor) -> LayerHead:
    """Return a decoupled head with one expert instead of two.

    Args:
        partner: output of `match_neurons`.
        shares: (2,) weights of the experts, which sum to one.

    Raises:
        ValueError: the head is not a decoupled head with two experts.
    """
    is_decoupled_pair = head.mixes_experts and head.num_experts == 2
    require(is_decoupled_pair, "Only a decoupled head with two experts can be merged; use another head.")
    first, second = head.layers[0].mlp_moe.experts
    single = type(head)(replace(head.config, num_experts=1))
    tensors = head.state_dict()
    for name, tensor in single.state_dict().items():
        if "mlp_moe" not in name:
            tensor.copy_(tensors[name])
    expert = single.layers[0].mlp_moe.experts[0]
    expert.fc.weight.copy_(shares[0] * first.fc.weight + shares[1] * second.fc.weight[partner])
    expert.proj.weight.copy_(shares[0] * first.proj.weight + shares[1] * second.proj.weight[:, partner])
    return single.eval().requires_grad_(False)


def merge(
    head: Annotated[str, argument("A decoupled head: a known name, a folder, or a Hub id.")],
    features: Annotated[Path, argument("Folder of features written by train.")],
    out: Annotated[Path, argument("Folder for the head with one expert.")],
    rule: Annotated[str, option("aligned, mean, first or second.")] = "aligned",
) -> None:
    """Merge a head's experts: aligned and weighted by use, plain average, or only one of them."""
    require(rule in RULES, f"--rule must be one of {', '.join(RULES)}; got {rule!r}.")
    ((_, source, _),) = bound_heads(None, [head])
    inner, shares = inner_activations(source, FeatureCache(features))
    partner = torch.arange(inner.shape[-1])
    if rule == "aligned":
        partner = match_neurons(*inner)
    else:
        shares = {"mean": torch.full((2,), 0.5), "first": torch.eye(2)[0], "second": torch.eye(2)[1]}[rule]
    save_head(merged(source, partner, shares), out)
    first, second = map(standardised, inner)
    correlation = float((first * second[:, partner]).mean())
    typer.echo(f"{rule}: shares {shares[0]:.3f} and {shares[1]:.3f}, paired neurons correlate by {correlation:.3f}.")


if __name__ == "__main__":
    run(merge)
