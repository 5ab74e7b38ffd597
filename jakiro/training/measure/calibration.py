"""Calibration: weights a and b that make softmax(a · log q + b · g) the chance that the target chooses a child.

Greedy decoding has no noise, so a alone is fitted. For sampling at temperature 1, g is the target's own Gumbel noise: a
head that cannot tell several sharp distributions apart says their flatter mean, so log q deserves more weight than the
noise. Keys by branch, depth and regime as `DraftConfig.calibration` has them; "contrastive/3/greedy" was predicted from
the row of a node at depth 1.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from jakiro.heads.jakiro import JakiroHead, mixture
from jakiro.heads.layers import HeadOutput
from jakiro.training.data.features import Batch
from jakiro.training.recipe.losses import LossWeights, Objective, learnable_positions

MAX_DEPTH = 6
BOUNDS = (0.25, 6.0)


@torch.no_grad()
def calibrate(
    head: JakiroHead,
    batches: list[Batch],
    target_output: Tensor,
    seed: int,
    max_positions: int = 2000,
    max_depth: int = MAX_DEPTH,
) -> dict[str, float]:
    """Fits every weight by maximum likelihood on held-out text.

    Args:
        head: bound; batches: held-out sequences with the target's features.
        target_output: (vocab_size, hidden), the target's whole output function.
        seed: draws the positions and the noise.
        max_positions: positions to fit on; more cost memory, 4 bytes per position and draft token.

    Positions whose choice lies outside the draft vocabulary can't be drafted and are left out.
    """
    generator = torch.Generator().manual_seed(seed)
    picked = _pick_positions(batches, max_depth, max_positions, generator)
    greedy, sampled, noise = _choices(head, batches, picked, target_output, generator)
    fits: dict[str, float] = {}
    features = _features_by_key(head, batches, picked, max_depth)
    start: dict[str, Sequence[float]] = {}
    for name, (rows, router_log) in features.items():
        log_q = _log_probs(head, rows, router_log)
        branch = name.split("/")[0]
        for chosen, terms, keys in ((greedy, (log_q,), ("greedy",)), (sampled, (log_q, noise), ("sampled", "noise"))):
            kind = f"{branch}/{keys[0]}"
            start[kind] = fit_weights(terms, chosen, start.get(kind))
            fits.update({f"{name}/{key}": weight for key, weight in zip(keys, start[kind], strict=True)})
    return {name: round(weight, 4) for name, weight in fits.items()}


def fit_weights(
    terms: Sequence[Tensor],
    chosen: Tensor,
    start: Sequence[float] | None = None,
    iterations: int = 12,
    chunk: int = 512,
) -> list[float]:
    """The weights w in `BOUNDS` that maximise Σ log softmax(Σ_i w_i · terms_i)[chosen]; the sum is concave in w.

    Args:
        terms: each (rows, choices), finite.
        chosen: (rows,) int64, −1 leaves a row out.
        start: a first guess, 1 each if not given.
    """
    weights = torch.tensor(start or [1.0] * len(terms), dtype=torch.float64)
    for _ in range(iterations):
        slope, curvature = _derivatives(terms, chosen, weights.tolist(), chunk)
        ridge = 1e-9 * torch.eye(len(terms), dtype=torch.float64)
        # Steps of at most one keep Newton from overshooting where the sum is nearly flat.
        step = torch.linalg.solve(curvature + ridge, slope).clamp(-1.0, 1.0)
        moved = (weights + step).clamp(*BOUNDS)
        change, weights = (moved - weights).abs().max().item(), moved
        if change < 1e-3:
            break
    return weights.tolist()


def _derivatives(
    terms: Sequence[Tensor], chosen: Tensor, weights: Sequence[float], chunk: int
) -> tuple[Tensor, Tensor]:
    """Slope and negative curvature of the sum that `fit_weights` maximises, (terms,) and (terms, terms) float64."""
    slope = torch.zeros(len(terms), dtype=torch.float64)
    curvature = torch.zeros(len(terms), len(terms), dtype=torch.float64)
    for *parts, choices in zip(*(term.split(chunk) for term in terms), chosen.split(chunk), strict=True):
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


def _pick_positions(
    batches: list[Batch], max_depth: int, max_positions: int, generator: torch.Generator
) -> list[tuple[Tensor, Tensor]]:
    """Random learnable positions of each batch, as (sequence, position)."""
    found = [learnable_positions(batch, max_depth).nonzero() for batch in batches]
    total = sum(len(rows) for rows in found)
    keep = torch.zeros(total, dtype=torch.bool)
    keep[torch.randperm(total, generator=generator)[:max_positions]] = True
    parts = keep.split([len(rows) for rows in found])
    return [tuple(rows[part].unbind(1)) for rows, part in zip(found, parts, strict=True)]


def _choices(
    head: JakiroHead,
    batches: list[Batch],
    picked: list[tuple[Tensor, Tensor]],
    target_output: Tensor,
    generator: torch.Generator,
    chunk: int = 128,
) -> tuple[Tensor, Tensor, Tensor]:
    """Draft indices of the target's greedy and sampled choices (−1 outside the draft vocabulary), and the noise."""
    draft_ids = head.draft_token_ids
    index = torch.full((head.config.vocab_size,), -1, device=draft_ids.device)
    index[draft_ids] = torch.arange(len(draft_ids), device=draft_ids.device)
    greedy, sampled, kept_noise = [], [], []
    features = torch.cat([batch.features[where] for batch, where in zip(batches, picked, strict=True)])
    for rows in features.split(chunk):
        logits = rows @ target_output.T
        noise = -torch.empty(logits.shape).exponential_(generator=generator).log_().to(logits)
        greedy.append(index[logits.argmax(-1)])
        sampled.append(index[(logits + noise).argmax(-1)])
        kept_noise.append(noise[:, draft_ids])
    return torch.cat(greedy), torch.cat(sampled), torch.cat(kept_noise)


def _features_by_key(
    head: JakiroHead, batches: list[Batch], picked: list[tuple[Tensor, Tensor]], max_depth: int
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """The head's features at the picked positions by "branch/depth", with log router weights for decoupled fusion."""
    parts: dict[str, list[tuple[Tensor, Tensor | None]]] = {}
    objective = Objective(head, LossWeights())
    for batch, (sequence, position) in zip(batches, picked, strict=True):
        for depth, output in enumerate(objective.unroll(batch, max_depth, None, None), start=1):
            parts.setdefault(f"main/{depth}", []).append(_main_rows(output, sequence, position - 1))
            if output.contrastive is not None and depth < max_depth:
                rows = output.contrastive[sequence, position - 2], None
                parts.setdefault(f"contrastive/{depth + 1}", []).append(rows)
    joined = {}
    for name, pieces in parts.items():
        router_log = None if pieces[0][1] is None else torch.cat([weights for _, weights in pieces])
        joined[name] = torch.cat([rows for rows, _ in pieces], dim=-2), router_log
    return joined


def _main_rows(output: HeadOutput, sequence: Tensor, row: Tensor) -> tuple[Tensor, Tensor | None]:
    if output.features.ndim == 4:
        return output.features[:, sequence, row], output.router_weights[sequence, row].log()
    return output.features[sequence, row], None


def _log_probs(head: JakiroHead, rows: Tensor, router_log: Tensor | None) -> Tensor:
    log_probs = head.logits(rows).log_softmax(-1)
    if router_log is None:
        return log_probs
    return mixture(log_probs + router_log.T[..., None])
