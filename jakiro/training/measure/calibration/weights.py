"""Calibration: weights a and b that make softmax(a · log q + b · g) the chance that the target chooses a child.

Greedy decoding has no noise, so only a is fitted. For sampling, at temperatures 0.7 and 1, g is the target's own Gumbel
noise: a head that cannot tell several sharp distributions apart predicts their flatter mean, so log q deserves more
weight than the noise, the more the warmer. Keys are those of `jakiro.heads.calibration`; "contrastive/3/greedy" was
predicted from the row of a node at depth 1.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.heads.calibration import HIGH, LOW
from jakiro.training.data.features import Batch
from jakiro.training.measure.validation import HeldOut, branch_rows, log_q
from jakiro.training.recipe.losses import LossWeights, draft_index, learnable_positions
from jakiro.training.recipe.parallel import objective_for

MAX_DEPTH = 6
# By temperature, the keys of a and b
REGIMES = {0.0: ("greedy",), HIGH: ("sampled", "noise"), LOW: (f"sampled-{LOW}", f"noise-{LOW}")}
# Each takes 4 bytes of memory per draft token.
MAX_POSITIONS = 2000
BOUNDS = (0.25, 6.0)


@torch.no_grad()
def calibrate(head: DraftHead, data: HeldOut, seed: int, max_depth: int = MAX_DEPTH) -> dict[str, float]:
    """Fits every weight by maximum likelihood on at most `MAX_POSITIONS` positions of held-out text.

    Positions whose choice lies outside the draft vocabulary can't be drafted and are left out.

    Args:
        head: bound to its target.
        seed: draws the positions and the noise.
    """
    generator = torch.Generator().manual_seed(seed)
    picked = _pick_positions(data.batches, max_depth, generator)
    choices, noise = _choices(head, data, picked, generator)
    fits: dict[str, float] = {}
    features = _features_by_key(head, data.batches, picked, max_depth)
    start: dict[str, Sequence[float]] = {}
    for name, rows in features.items():
        branch = name.split("/")[0]
        for (temperature, keys), chosen in zip(REGIMES.items(), choices, strict=True):
            said = log_q(head, *rows, temperature or 1.0)
            terms = (said, noise) if temperature else (said,)
            kind = f"{branch}/{keys[0]}"
            start[kind] = fit_weights(terms, chosen, start.get(kind))
            fits.update({f"{name}/{key}": weight for key, weight in zip(keys, start[kind], strict=True)})
    if head.config.network == "stacked":
        # A language model of its own: each level is guessed from the text's own tokens, as the first one is
        depths = range(1, max_depth + 1)
        fits = {name.replace("/1/", f"/{depth}/"): weight for name, weight in fits.items() for depth in depths}
    return {name: round(weight, 4) for name, weight in fits.items()}


def fit_weights(terms: Sequence[Tensor], chosen: Tensor, start: Sequence[float] | None = None) -> list[float]:
    """The weights w in `BOUNDS` that maximise Σ log softmax(Σ_i w_i · terms_i)[chosen]; the sum is concave in w.

    Args:
        terms: each (rows, choices), finite.
        chosen: (rows,) int64, −1 leaves a row out.
        start: a first guess, 1 each if not given.
    """
    weights = torch.tensor(start or [1.0] * len(terms), dtype=torch.float64)
    for _ in range(12):
        slope, curvature = _derivatives(terms, chosen, weights.tolist())
        ridge = 1e-9 * torch.eye(len(terms), dtype=torch.float64)
        # Steps of at most one keep Newton from overshooting where the sum is nearly flat.
        step = torch.linalg.solve(curvature + ridge, slope).clamp(-1.0, 1.0)
        moved = (weights + step).clamp(*BOUNDS)
        change, weights = (moved - weights).abs().max().item(), moved
        if change < 1e-3:
            break
    return weights.tolist()


def _derivatives(terms: Sequence[Tensor], chosen: Tensor, weights: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Slope and negative curvature of the sum that `fit_weights` maximises, (terms,) and (terms, terms) float64."""
    slope = torch.zeros(len(terms), dtype=torch.float64)
    curvature = torch.zeros(len(terms), len(terms), dtype=torch.float64)
    for *parts, choices in zip(*(term.split(512) for term in terms), chosen.split(512), strict=True):
        kept = choices >= 0
        rows = torch.stack([part[kept] for part in parts])
        probs = torch.einsum("i,irv->rv", rows.new_tensor(weights), rows).softmax(-1)
        weighted = probs * rows
        means = weighted.sum(-1)
        wanted = rows.gather(-1, choices[kept].expand(len(parts), -1)[..., None])[..., 0]
        slope += (wanted - means).double().sum(-1).to(slope)
        products = torch.einsum("irv,jrv->ijr", weighted, rows)
        curvature += (products - means[:, None] * means).double().sum(-1).to(curvature)
    return slope, curvature


def _pick_positions(batches: list[Batch], max_depth: int, generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Random learnable positions of each batch, as (sequence, position)."""
    found = [learnable_positions(batch, max_depth).nonzero() for batch in batches]
    total = sum(len(rows) for rows in found)
    keep = torch.zeros(total, dtype=torch.bool)
    keep[torch.randperm(total, generator=generator)[:MAX_POSITIONS]] = True
    parts = keep.split([len(rows) for rows in found])
    return [tuple(rows[part].unbind(1)) for rows, part in zip(found, parts, strict=True)]


def _choices(
    head: DraftHead, data: HeldOut, picked: list[tuple[Tensor, Tensor]], generator: torch.Generator
) -> tuple[list[Tensor], Tensor]:
    """By regime, draft indices of the target's choices (−1 outside the draft vocabulary); and the noise of all."""
    index = draft_index(head)
    features = torch.cat([batch.features[where] for batch, where in zip(data.batches, picked, strict=True)])
    choices = {0.0: [torch.cat([choice[where] for choice, where in zip(data.choices, picked, strict=True)])]}
    kept_noise = []
    for rows in features.split(128):
        logits = rows @ data.output_weight.T
        noise = -torch.empty(logits.shape).exponential_(generator=generator).log_().to(logits)
        for temperature in REGIMES:
            if temperature:
                choices.setdefault(temperature, []).append((logits / temperature + noise).argmax(-1))
        kept_noise.append(noise[:, head.draft_token_ids])
    return [index[torch.cat(choices[temperature])] for temperature in REGIMES], torch.cat(kept_noise)


def _features_by_key(
    head: DraftHead, batches: list[Batch], picked: list[tuple[Tensor, Tensor]], max_depth: int
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Features and log router weights at the picked positions, as `branch_rows` gives them, by "branch/depth"."""
    parts: dict[str, list[tuple[Tensor, Tensor | None]]] = {}
    objective = objective_for(head, LossWeights())
    for batch, (sequence, position) in zip(batches, picked, strict=True):
        for branch, step, *rows in branch_rows(objective, batch, sequence, position, max_depth):
            # A contrastive feature lies one position further, that of the last step deeper than any tree.
            depth = step + (branch == "contrastive")
            if depth <= max_depth:
                parts.setdefault(f"{branch}/{depth}", []).append(rows)
    joined = {}
    for name, pieces in parts.items():
        features, router_log = zip(*pieces, strict=True)
        joined[name] = torch.cat(features, dim=-2), None if router_log[0] is None else torch.cat(router_log)
    return joined
