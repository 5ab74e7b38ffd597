"""A draft head's losses: cross-entropy to the target's whole distribution, and feature regression.

Summed fusion, per position: the main branch learns the target's next distribution and feature, the contrastive branch
the next position's (Jakiro, arXiv 2502.06282). Decoupled fusion: the likelihood of the mixture, and regression
for the responsible expert only. Unrolled steps read the head's own features (the training-time test of EAGLE-3, arXiv
2503.01840). A head that predicts all levels in one pass learns each level as such a step.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn import functional

from jakiro.config import require, setting
from jakiro.heads.base import DraftHead
from jakiro.heads.kind import Kinds
from jakiro.heads.kinds import KINDS, kind_named
from jakiro.heads.layers import HeadOutput, row_output
from jakiro.heads.learning import UnrolledRows, unrolled_mask
from jakiro.training.cross_entropy import (
    CHUNK_ROWS,
    MixtureCrossEntropy,
    SoftCrossEntropy,
    VocabularySlice,
    dot,
    logits_of,
    normalisers_of,
)
from jakiro.training.features import Batch


@dataclass(frozen=True, slots=True)
class LossWeights:
    """Weights of the loss terms.

    Attributes:
        token: cross-entropy to the target's distribution.
        feature: SmoothL1 regression to the target's feature.
        contrastive: factor of both terms for that branch.
        unroll_decay: factor from one unrolled step to the next.
    """

    token: float = setting("Weight of the cross-entropy.", 1.0, "--token-weight")
    feature: float = setting("Weight of the feature regression.", 3.0, "--feature-weight")
    contrastive: float = setting("Weight of the contrastive branch.", 0.3, "--contrastive-weight")
    unroll_decay: float = 0.8


class Objective(nn.Module):
    """A head and its loss over a batch.

    Args:
        head: bound to its target.
        weights: of the loss terms.
        levels_of: see `HeadKind.levels`; None for a head that continues with its own features.
    """

    def __init__(
        self, head: DraftHead, weights: LossWeights, levels_of: Callable[..., Iterator[Tensor]] | None = None
    ) -> None:
        super().__init__()
        self.head, self.weights, self.levels_of = head, weights, levels_of

    def forward(
        self, batch: Batch, vocabulary: VocabularySlice, num_steps: int, noise: Tensor | None = None
    ) -> tuple[Tensor, dict[str, float]]:
        """Return the loss and its parts by name.

        Args:
            batch: padded texts with the target's features.
            vocabulary: selected output rows.
            num_steps: 1 reads only the target's features; k also unrolls k − 1 steps on the head's own features.
                Ignored by heads that predict all levels in one pass.
            noise: added to the target's features; None adds none.
        """
        num_steps = num_steps if self.levels_of is None else self.head.levels
        learned = learnable_positions(batch, num_steps)
        sequence, position = learned.nonzero(as_tuple=True)
        true_features, target, entropy = target_of(batch, sequence, position, vocabulary)
        parts = {"positions": float(len(position)), "target_entropy": float(entropy)}
        total = batch.features.new_zeros(())
        rows, expected = (sequence, position - 1), (target, true_features, vocabulary)
        before, computed = rows_before(learned, num_steps), None

        def normalisers(output: HeadOutput) -> Tensor:
            """Return this step's normalisers, and compute missing ones at positions before the learned ones."""
            result = output.features.new_zeros(output.features.shape[:-1], dtype=torch.float32)
            result[:, before] = normalisers_of(output.features[:, before], vocabulary)
            result[:, *rows] = computed
            return result

        for step, output in enumerate(self.unroll(batch, num_steps, noise, normalisers), start=1):
            if self.head.mixes_experts:
                router_log = output.router_weights[rows].log()
                *main, computed = mixture_and_feature_loss(output.features[:, *rows], router_log, *expected)
            else:
                main = self.main_loss(output.features[rows], *expected)
            branches = {"main": main}
            if output.contrastive is not None and self.weights.contrastive > 0:
                branches["contrastive"] = token_and_feature_loss(output.contrastive[sequence, position - 2], *expected)
            for name, (token, feature) in branches.items():
                factor = self.weights.unroll_decay ** (step - 1)
                factor *= self.weights.contrastive if name == "contrastive" else 1.0
                total = total + factor * (self.weights.token * token + self.weights.feature * feature)
                parts |= {f"{name}_{step}/token": token.item(), f"{name}_{step}/feature": feature.item()}
        return total, parts

    def main_loss(
        self, predicted: Tensor, target: Tensor, true_features: Tensor, vocabulary: VocabularySlice
    ) -> tuple[Tensor, Tensor]:
        """Return token and feature loss of one step of a head without a mixture; a subclass may learn another loss."""
        return token_and_feature_loss(predicted, target, true_features, vocabulary)

    def unroll(
        self,
        batch: Batch,
        num_steps: int,
        noise: Tensor | None,
        normalisers: Callable[[HeadOutput], Tensor] | None = None,
    ) -> Iterator[HeadOutput]:
        """Yield the head's output of each step; position s of every step predicts feature s + 1.

        At step k, position s reads token s + 1 and the feature that step k − 1 predicted for s; positions s < k − 1
        have no such feature and are not learned from. Level d of one pass at s belongs to a tree with root s − d + 1.

        Args:
            batch: padded texts with the target's features.
            num_steps: see `forward`.
            noise: see `forward`.
            normalisers: from a step's output to (experts, batch, length − 1) float32, log Σ exp of the logits of each
                decoupled expert; None computes them over all output rows.
        """
        features = batch.inputs[:, :-1] if noise is None else batch.inputs[:, :-1] + noise[:, :-1]
        if self.levels_of is not None:
            yield from map(row_output, islice(self.levels_of(self.head, batch.ids, features), num_steps))
            return
        # Only the first step reads the target's features; later steps read the head's own states
        features = self.head.map_features(features)
        embeddings = self.head.embed(batch.ids[:, 1:])
        length = embeddings.shape[1]
        positions = torch.arange(length, device=embeddings.device)[None]
        rows = UnrolledRows()
        for step in range(1, num_steps + 1):
            mask = None if step == 1 else unrolled_mask(length, step, embeddings.device)
            output = self.head(embeddings, features, positions, mask, rows)
            yield output
            if step < num_steps:
                predicted = self._next_features(output, batch.ids, normalisers)
                # There is no prediction for position 0, which is not learned from
                features = torch.cat([predicted[:, :1], predicted[:, :-1]], dim=1)

    def _next_features(
        self, output: HeadOutput, ids: Tensor, normalisers: Callable[[HeadOutput], Tensor] | None
    ) -> Tensor:
        """Return the features that the next step reads; of two decoupled experts, the one that proposes the token."""
        if not self.head.mixes_experts:
            return output.features
        following = torch.cat([ids[:, 2:], ids[:, -1:]], dim=1)
        with torch.no_grad():
            index = torch.searchsorted(self.head.draft_token_ids, following).clamp(max=len(self.head.output_weight) - 1)
            logit = (output.features * self.head.output_weight[index]).sum(-1)
            if normalisers is None:
                normaliser = normalisers_of(output.features, VocabularySlice(self.head.output_weight, None))
            else:
                normaliser = normalisers(output)
            joint = logit - normaliser
            proposer = (joint + output.router_weights.log().movedim(-1, 0)).argmax(0)
        index = proposer[None, ..., None].expand(1, *output.features.shape[1:])
        return output.features.gather(0, index)[0]


def objective_for(head: DraftHead, weights: LossWeights, kinds: Kinds = KINDS) -> Objective:
    """Return the objective of a head.

    Raises:
        ValueError: the head has another project's form.
    """
    require(
        not head.config.only_drafts,
        "This head's MLPs have their published format, which Jakiro can draft with but not train; train a new head "
        "with --method.",
    )
    return Objective(head, weights, kind_named(head.config.kind, kinds).levels)


def token_and_feature_loss(
    predicted: Tensor, target: Tensor, true: Tensor, vocabulary: VocabularySlice
) -> tuple[Tensor, Tensor]:
    """Return cross-entropy to a target distribution, and regression loss, of (positions, hidden) features."""
    token = SoftCrossEntropy.apply(predicted, vocabulary.rows, vocabulary.log_weights, target)
    return token, functional.smooth_l1_loss(predicted, true)


def mixture_and_feature_loss(
    predicted: Tensor, router_log: Tensor, target: Tensor, true: Tensor, vocabulary: VocabularySlice
) -> tuple[Tensor, Tensor, Tensor]:
    """Return both losses of decoupled experts, and (experts, positions) normalisers of each expert's logits.

    The expert with the larger share of a position's probability regresses.

    Args:
        predicted: (experts, positions, hidden) features.
        router_log: (positions, experts) log of the router weights.
        target: (positions, selected) probabilities.
        true: (positions, hidden) features of the target.
        vocabulary: selected output rows.
    """
    token, shares, normalisers = MixtureCrossEntropy.apply(
        predicted, router_log, vocabulary.rows, vocabulary.log_weights, target
    )
    responsible = predicted[shares.argmax(-1), torch.arange(len(shares), device=shares.device)]
    return token, functional.smooth_l1_loss(responsible, true), normalisers


def target_of(
    batch: Batch, sequence: Tensor, position: Tensor, vocabulary: VocabularySlice
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the target's features at these positions, its distribution in float32, and the mean entropy."""
    features = batch.features[sequence, position]
    probs = features.new_empty(len(features), len(vocabulary.rows))
    entropy = torch.zeros((), dtype=torch.float64, device=features.device)
    with torch.autocast(features.device.type, enabled=False):
        for start in range(0, len(features), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            logits = logits_of(features[part], vocabulary.rows, vocabulary.log_weights)
            logits -= logits.logsumexp(dim=-1, keepdim=True)
            probs[part] = logits.exp()
            entropy -= dot(logits, probs[part])
    return features, probs, entropy / max(len(features), 1)


def draft_index(head: DraftHead) -> Tensor:
    """Return (vocab_size,) int64: the index in the draft vocabulary of every target token, or −1."""
    draft_ids = head.draft_token_ids
    index = torch.full((head.config.vocab_size,), -1, device=draft_ids.device)
    index[draft_ids] = torch.arange(len(draft_ids), device=draft_ids.device)
    return index


def learnable_positions(batch: Batch, num_steps: int) -> Tensor:
    """Return (batch, length) bool: True at u if the target's feature at u is learned.

    The main branch predicts feature u at u − 1, the contrastive one at u − 2; both must exist in every step, so that
    all terms of a batch have the same positions. The token at u + 1 must be one to learn from.
    """
    predicted = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None] + 1
    first = batch.loss_start.clamp(min=num_steps + 2)
    return (predicted >= first[:, None]) & (predicted < batch.lengths[:, None])


def rows_before(learned: Tensor, num_steps: int) -> Tensor:
    """Return the positions that are not learned from, but whose features a later unrolled step reads.

    Args:
        learned: (batch, length) bool, see `learnable_positions`.
        num_steps: number of unrolled steps.

    Returns:
        (batch, length − 1) bool; the feature at u is predicted at u − 1.
    """
    rows = learned[:, 1:]
    read = torch.zeros_like(rows)
    for back in range(1, num_steps):
        read[:, :-back] |= rows[:, back:]
    return read & ~rows


def sample_vocabulary(
    output_rows: Tensor, frequent: Tensor, labels: Tensor, num_sampled: int, generator: torch.Generator
) -> VocabularySlice:
    """Return output rows for one step: the frequent ones, the tokens of this batch, and a random sample of the rest.

    Sampled rows represent the rest: log weights make the normalisers of target and draft unbiased.

    Args:
        output_rows: (vocabulary, hidden).
        frequent: (vocabulary,) bool, rows that are always selected.
        labels: indices of the rows of this batch's tokens.
        num_sampled: number of random rows, at least 1; if the rest has no more, all rows are selected.
        generator: of the sample, on the CPU.
    """
    selected = frequent.clone()
    selected[labels] = True
    rest = (~selected).nonzero().squeeze(-1)
    if num_sampled >= len(rest):
        return VocabularySlice(output_rows, None)
    sampled = rest[torch.randperm(len(rest), generator=generator)[:num_sampled].to(rest.device)]
    positions = torch.cat([selected.nonzero().squeeze(-1), sampled])
    log_weights = output_rows.new_zeros(len(positions))
    log_weights[len(positions) - num_sampled :] = torch.tensor(len(rest) / num_sampled).log()
    return VocabularySlice(output_rows[positions], log_weights)
