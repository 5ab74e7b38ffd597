"""Calibration: weights a and b that make softmax(a · log q + b · g) the chance that the target chooses a child, and
the shares of these chances that are observed in trees.

Greedy decoding has no noise, so only a is fitted. For sampling, at temperatures 0.7 and 1, g is the target's own Gumbel
noise: a head that cannot distinguish several sharp distributions predicts their flatter mean, so log q needs a larger
weight than the noise, more so at higher temperatures. Keys are those of `jakiro.heads.calibration`;
"contrastive/3/greedy" is predicted from the row of a node at depth 1.

Weights that are fitted at random positions overestimate the chances in trees: a step starts at a token that the
previous tree missed, a tree selects the best candidates, and tokens outside the draft vocabulary cannot be drafted. So
trees are grown along answers of the target, and accepted candidates are divided by expected ones.

`train` fits the weights only, because the target is not in memory at the end; `calibrate` fits both.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from jakiro.config import About, SamplingParams, TreeConfig, is_count, require, setting
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.registry import METHODS, Methods, methods_from
from jakiro.heads.base import DraftHead
from jakiro.heads.calibration import HIGH, LOW
from jakiro.heads.checkpoint import WEIGHTS_NAME, load_head, weights_file, write_config
from jakiro.loading.loader import choose_device
from jakiro.training.bound import BoundHead
from jakiro.training.corpus import Row, read_corpus
from jakiro.training.extract import extract, target_dtype
from jakiro.training.features import Batch, FeatureCache
from jakiro.training.losses import LossWeights, Objective, draft_index, learnable_positions, objective_for
from jakiro.training.replay import Answer, ReplayedStep, replay
from jakiro.training.split import held_out_rows, in_order_of_content
from jakiro.training.validation import HeldOut, branch_features, held_out, log_q

MAX_DEPTH = 6
# Keys of a and b by temperature
REGIMES = {0.0: ("greedy",), HIGH: ("sampled", "noise"), LOW: (f"sampled-{LOW}", f"noise-{LOW}")}
# Each position takes 4 bytes of memory per draft token
MAX_POSITIONS = 2000
BOUNDS = (0.25, 6.0)
TREE_NODES = 14
# Number of candidates, accepted as often as expected, with which the counts start
PRIOR = 10.0
log = logging.getLogger("jakiro")


@dataclass(frozen=True, slots=True)
class CalibrateConfig:
    """Settings of a calibration, as plain data."""

    head: str = setting("Folder of the head; only its config is rewritten.", argument=True)
    corpora: tuple[str, ...] = setting(About.CORPORA, argument=True)
    target: str | None = setting("Target model; if not given, the one that the head's config names.", None)
    rows: int = setting("Held-out rows of the corpus to fit weights on.", 100)
    texts: int = setting("How many of their questions the target answers at each temperature.", 40)
    max_new_tokens: int = setting(About.MAX_NEW_TOKENS, 96)
    methods_from: tuple[str, ...] = setting(About.METHODS_FROM, (), repeated=True)
    unread: bool = setting("Use rows that the head's manifest does not list as held out.", False)
    seed: int = setting("The same seed gives the same positions, noise and answers.", 1)
    device: str | None = setting(About.DEVICE, None)

    def __post_init__(self) -> None:
        for name in ("rows", "texts", "max_new_tokens"):
            value = getattr(self, name)
            require(is_count(value, 1), f"{name} must be 1 or more; got {value}.")


def calibrate(config: CalibrateConfig) -> dict[str, float]:
    """Fit weights on texts of a corpus and shares on the target's answers, and write both into the head's config.

    Returns:
        The shares.

    Raises:
        ValueError, OSError: one sentence.
    """
    methods = METHODS.with_further(methods_from(config.methods_from))
    bound, rows = _read(config, methods)
    head = bound.head
    with TemporaryDirectory() as work:
        extract(bound.model, rows, Path(work), bound.layers, bound.source)
        data = held_out(FeatureCache(Path(work)), range(len(rows)), bound.tables[1].float())
        objective = objective_for(head, LossWeights(), methods.kinds)
        head.config = replace(head.config, calibration=fit_calibration(objective, data, config.seed))
    answers = _answers(config, bound, rows)
    # As in decoding: the target's dtype, and on a CPU rounded matrices
    head.to(bound.model.dtype).bind(*bound.tables).pack("int8")
    shares = kept_shares(methods.drafter_of(head), answers)
    write_config(replace(head.config, calibration=head.config.calibration | shares), Path(config.head))
    return shares


def _read(config: CalibrateConfig, methods: Methods) -> tuple[BoundHead, list[Row]]:
    """Return the head with its target, and texts that it has not learned from.

    Raises:
        ValueError: the head has another project's form, or no target is given and its config has none.
    """
    folder, device = Path(config.head), choose_device(config.device)
    if weights_file(folder).name != WEIGHTS_NAME:
        raise ValueError(
            f"{folder} has a head in another project's format, which cannot store a calibration; convert it to "
            "Jakiro's format first, with export --format hub."
        )
    head = load_head(folder, device, kinds=methods.kinds)
    corpus = read_corpus(list(map(Path, config.corpora)), head.config.vocab_size)
    target = config.target or head.config.target_name
    if not target:
        raise ValueError(
            f"The config of {folder} names no target; give --target, the model for which the head was trained."
        )
    bound = BoundHead.read(head, target, device, target_dtype(device))
    rows = in_order_of_content(corpus)[: config.rows] if config.unread else held_out_rows(folder, corpus, config.rows)
    return bound, rows


def _answers(
    config: CalibrateConfig, bound: BoundHead, rows: Sequence[Row]
) -> list[tuple[SamplingParams, list[Answer]]]:
    """Return the target's answers to the texts' messages at every temperature."""
    answers, prompts = bound.answers(config.texts), [row.ids[: row.a0] for row in rows[: config.texts]]
    limits = {"seed": config.seed, "max_new_tokens": config.max_new_tokens}
    samplings = [SamplingParams(temperature, **limits) for temperature in REGIMES]
    return [(sampling, answers.answers_to_ids(prompts, sampling)) for sampling in samplings]


@torch.no_grad()
def fit_calibration(objective: Objective, data: HeldOut, seed: int) -> dict[str, float]:
    """Return every weight, fitted by maximum likelihood on at most `MAX_POSITIONS` positions of held-out text.

    Choices outside the draft vocabulary cannot be drafted and are left out.

    Args:
        objective: of a head that is bound to its target.
        data: held-out texts.
        seed: of the positions and the noise.
    """
    head = objective.head
    generator = torch.Generator().manual_seed(seed)
    picked = _pick_positions(data.batches, generator)
    choices, noise = _choices(head, data, picked, generator)
    fits: dict[str, float] = {}
    features = _features_by_key(objective, data.batches, picked)
    start: dict[str, Sequence[float]] = {}
    for name, rows in features.items():
        branch = name.split("/")[0]
        for (temperature, keys), chosen in zip(REGIMES.items(), choices, strict=True):
            log_probs = log_q(head, *rows, temperature or 1.0)
            terms = (log_probs, noise) if temperature else (log_probs,)
            kind = f"{branch}/{keys[0]}"
            start[kind] = fit_weights(terms, chosen, start.get(kind))
            fits.update({f"{name}/{key}": weight for key, weight in zip(keys, start[kind], strict=True)})
    return {name: round(weight, 4) for name, weight in fits.items()}


def fit_weights(terms: Sequence[Tensor], chosen: Tensor, start: Sequence[float] | None = None) -> list[float]:
    """Return the weights w in `BOUNDS` that maximise Σ log softmax(Σ_i w_i · terms_i)[chosen], which is concave in w.

    Args:
        terms: each (positions, choices), finite.
        chosen: (positions,) int64; positions with −1 are left out.
        start: initial weights; by default 1 each.
    """
    weights = torch.tensor(start or [1.0] * len(terms), dtype=torch.float64)
    for _ in range(12):
        slope, curvature = _derivatives(terms, chosen, weights.tolist())
        ridge = 1e-9 * torch.eye(len(terms), dtype=torch.float64)
        # Steps of at most 1, because Newton's method overshoots if the sum is nearly flat
        step = torch.linalg.solve(curvature + ridge, slope).clamp(-1.0, 1.0)
        moved = (weights + step).clamp(*BOUNDS)
        change, weights = (moved - weights).abs().max().item(), moved
        if change < 1e-3:
            break
    return weights.tolist()


def _derivatives(terms: Sequence[Tensor], chosen: Tensor, weights: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Return slope and negative curvature of the sum in `fit_weights`, (terms,) and (terms, terms) float64."""
    slope = torch.zeros(len(terms), dtype=torch.float64)
    curvature = torch.zeros(len(terms), len(terms), dtype=torch.float64)
    for *parts, choices in zip(*(term.split(512) for term in terms), chosen.split(512), strict=True):
        is_used = choices >= 0
        rows = torch.stack([part[is_used] for part in parts])
        probs = torch.einsum("i,irv->rv", rows.new_tensor(weights), rows).softmax(-1)
        weighted = probs * rows
        means = weighted.sum(-1)
        expected = rows.gather(-1, choices[is_used].expand(len(parts), -1)[..., None])[..., 0]
        slope += (expected - means).double().sum(-1).to(slope)
        products = torch.einsum("irv,jrv->ijr", weighted, rows)
        curvature += (products - means[:, None] * means).double().sum(-1).to(curvature)
    return slope, curvature


def _pick_positions(batches: list[Batch], generator: torch.Generator) -> list[tuple[Tensor, Tensor]]:
    """Return random learnable positions of each batch, as (sequence, position)."""
    positions = [learnable_positions(batch, MAX_DEPTH).nonzero() for batch in batches]
    total = sum(len(rows) for rows in positions)
    is_picked = torch.zeros(total, dtype=torch.bool)
    is_picked[torch.randperm(total, generator=generator)[:MAX_POSITIONS]] = True
    parts = is_picked.split([len(rows) for rows in positions])
    return [tuple(rows[part].unbind(1)) for rows, part in zip(positions, parts, strict=True)]


def _choices(
    head: DraftHead, data: HeldOut, picked: list[tuple[Tensor, Tensor]], generator: torch.Generator
) -> tuple[list[Tensor], Tensor]:
    """Return draft indices of the target's choices by regime (−1 outside the draft vocabulary), and the noise."""
    index = draft_index(head)
    features = torch.cat([batch.features[where] for batch, where in zip(data.batches, picked, strict=True)])
    choices = {0.0: [torch.cat([choice[where] for choice, where in zip(data.choices, picked, strict=True)])]}
    draft_noise = []
    for rows in features.split(128):
        logits = rows @ data.output_weight.T
        noise = -torch.empty(logits.shape).exponential_(generator=generator).log_().to(logits)
        for temperature in REGIMES:
            if temperature:
                choices.setdefault(temperature, []).append((logits / temperature + noise).argmax(-1))
        draft_noise.append(noise[:, head.draft_token_ids])
    return [index[torch.cat(choices[temperature])] for temperature in REGIMES], torch.cat(draft_noise)


def _features_by_key(
    objective: Objective, batches: list[Batch], picked: list[tuple[Tensor, Tensor]]
) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Return features and log router weights at the picked positions by "branch/depth", see `branch_features`."""
    parts: dict[str, list[tuple[Tensor, Tensor | None]]] = {}
    for batch, (sequence, position) in zip(batches, picked, strict=True):
        for branch, step, *rows in branch_features(objective, batch, sequence, position, MAX_DEPTH):
            # A contrastive feature is one level deeper; that of the last step is deeper than any tree
            depth = step + (branch == "contrastive")
            if depth <= MAX_DEPTH:
                parts.setdefault(f"{branch}/{depth}", []).append(rows)
    joined = {}
    for name, pieces in parts.items():
        features, router_log = zip(*pieces, strict=True)
        joined[name] = torch.cat(features, dim=-2), None if router_log[0] is None else torch.cat(router_log)
    return joined


def kept_shares(drafter: HeadDrafter, answers: Sequence[tuple[SamplingParams, Sequence[Answer]]]) -> dict[str, float]:
    """Return the numbers "…-kept" of a calibration, from trees with `TREE_NODES` nodes.

    Args:
        drafter: of a head with fitted weights and without such numbers.
        answers: with their sampling settings, at temperatures of `REGIMES`.
    """
    contrastive, ratios = drafter.head.has_contrastive_branch, {}
    # A contrastive branch drafts only the deepest level, so trees of every depth are grown
    depths = range(2, MAX_DEPTH + 1) if contrastive else (MAX_DEPTH,)
    for sampling, texts in answers:
        kind = REGIMES[sampling.temperature][0]
        for depth in depths:
            tree = TreeConfig(nodes=TREE_NODES, depth=depth)
            shares = shares_by_level(step for answer in texts for step in replay(drafter, answer, sampling, tree))
            for level, share in shares.items():
                branch = "contrastive" if contrastive and level == depth else "main"
                ratios[f"{branch}/{level}/{kind}-kept"] = round(share, 4)
    return ratios


def shares_by_level(steps: Iterable[ReplayedStep]) -> dict[int, float]:
    """Return the accepted candidates of each level divided by the expected ones, if the level above was accepted.

    At most 1, because a child's score never exceeds its parent's; near 1 if there are few steps.
    """
    accepted, expected = Counter(), Counter()
    for step in steps:
        for level, chance in enumerate(step.chances, start=1):
            accepted[level] += level <= len(step.accepted_path)
            expected[level] += chance
    return {level: min((accepted[level] + PRIOR) / (expected[level] + PRIOR), 1.0) for level in sorted(expected)}
