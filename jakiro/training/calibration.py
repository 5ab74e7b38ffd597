"""Calibration: one β per (branch, depth, regime), so that softmax(β · z) is the chance that the target chooses a child.

z = log q for greedy decoding and z = log q + g, with the target's own Gumbel noise g, for sampling at temperature 1.
Keys as `DraftConfig.calibration` has them; "contrastive/3/greedy" was predicted from the row of a node at depth 1.
"""

import torch
from torch import Tensor

from jakiro.draft.jakiro import HeadOutput, JakiroHead
from jakiro.training.features import Batch
from jakiro.training.losses import LossWeights, Objective, learnable_positions

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
    """Fits every β by maximum likelihood on held-out text.

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
    start: dict[str, float] = {}
    for name, (rows, router_log) in features.items():
        z = _log_probs(head, rows, router_log)
        branch = name.split("/")[0]
        for regime, chosen in (("greedy", greedy), ("sampled", sampled)):
            z = z if regime == "greedy" else z.add_(noise)
            kind = f"{branch}/{regime}"
            fits[f"{name}/{regime}"] = start[kind] = fit_beta(z, chosen, start.get(kind, 1.0))
    return {name: round(beta, 4) for name, beta in fits.items()}


def fit_beta(z: Tensor, chosen: Tensor, start: float = 1.0, iterations: int = 12, chunk: int = 512) -> float:
    """The β in `BOUNDS` that maximises Σ log softmax(β z)[chosen], by Newton steps; the sum is concave in β.

    Args:
        z: (rows, choices), finite.
        chosen: (rows,) int64, −1 leaves a row out.
        start: a first guess.
    """
    beta = start
    for _ in range(iterations):
        slope = curvature = 0.0
        for rows, choices in zip(z.split(chunk), chosen.split(chunk), strict=True):
            kept = choices >= 0
            probs = (beta * rows).softmax(-1)
            weighted = probs.mul_(rows)
            mean, square = weighted.sum(-1), torch.einsum("rv,rv->r", weighted, rows)
            wanted = rows.gather(-1, choices.clamp(min=0)[:, None])[:, 0]
            slope += (wanted - mean)[kept].sum().item()
            curvature += (square - mean.square())[kept].sum().item()
        # Steps of at most one keep Newton from overshooting where the sum is nearly flat.
        change = max(-1.0, min(1.0, slope / max(curvature, 1e-9)))
        beta = min(BOUNDS[1], max(BOUNDS[0], beta + change))
        if abs(change) < 1e-3:
            break
    return beta


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
    index = torch.full((head.config.vocab_size,), -1)
    index[head.draft_token_ids] = torch.arange(len(head.draft_token_ids))
    greedy, sampled, kept_noise = [], [], []
    features = torch.cat([batch.features[where] for batch, where in zip(batches, picked, strict=True)])
    for rows in features.split(chunk):
        logits = rows @ target_output.T
        noise = -torch.empty_like(logits).exponential_(generator=generator).log_()
        greedy.append(index[logits.argmax(-1)])
        sampled.append(index[(logits + noise).argmax(-1)])
        kept_noise.append(noise[:, head.draft_token_ids])
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
    return (log_probs + router_log.T[..., None]).logsumexp(0)
