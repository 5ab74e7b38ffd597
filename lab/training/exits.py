"""Trains a draft on top of the target's first layers: `python -m lab.training.exits CORPUS --out HEAD --work WORK`.

The product's features, trainer and calibration are used; what such a head reads and predicts along a text stands here,
and the measures that DistillSpec (arXiv 2310.08461) compares. "forward-kl": cross-entropy to the target's whole
distribution. "total-variation": half the sum of |p − q|, one minus the chance that the best test keeps a draft token.
"labels": cross-entropy to the text's own next token.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor
from torch.nn import functional

from jakiro.cli.loading import set_up
from jakiro.cli.options import CorpusPaths, Target, Threads, option
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.kind import Texts
from jakiro.heads.kinds import make_head
from jakiro.heads.layer_learning import layer_whitening, start_from_rows
from jakiro.heads.learning import Rows, fit, randomise, whitening_matrix
from jakiro.loading import registry, weights
from jakiro.models.features import check_feature_layers
from jakiro.system import errors_as_one_sentence
from jakiro.training.calibrate import MAX_DEPTH, fit_calibration
from jakiro.training.corpus import read_corpus
from jakiro.training.cross_entropy import SoftCrossEntropy, VocabularySlice
from jakiro.training.extract import extract
from jakiro.training.features import Batch, FeatureCache
from jakiro.training.losses import LossWeights, Objective, draft_index, learnable_positions, target_of
from jakiro.training.schedule import TrainingOptions
from jakiro.training.split import in_order_of_content, refuse_rows_that_were_learned, write_manifest
from jakiro.training.start import continue_weights, frequent_token_ids, head_config
from jakiro.training.trainer import Trainer, TrainingFolders
from jakiro.training.validation import HeldOut, agreement, held_out
from lab import KNOWN
from lab.layers.exit_head import ExitHead, NestedHead, scaled

DIVERGENCES = ("forward-kl", "total-variation", "labels")
TAUGHT = ("exit", "s2d", "distillspec")
START_TEXTS = 110
log = logging.getLogger("jakiro")


def total_variation(predicted: Tensor, rows: Tensor, log_weights: Tensor | None, target: Tensor) -> Tensor:
    """Mean over positions.

    Args:
        predicted: (positions, hidden) features. target: (positions, kept) probabilities.
        rows, log_weights: the output rows of both, see `VocabularySlice`.
    """
    logits = functional.linear(predicted, rows.to(predicted.dtype)).float()
    draft = (logits if log_weights is None else logits + log_weights).softmax(-1)
    return (draft - target).abs().sum(-1).mean() / 2


def labels_at(batch: Batch, sequence: Tensor, position: Tensor, places: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The text's next tokens as distributions.

    Args:
        places: (vocab_size,) int64, the column of every token among the kept output rows; −1 where it has none.
        count: kept output rows.

    Returns:
        (positions,) bool, those whose next token has a column, and for these (…, count) float32 with a single one.
    """
    columns = places[batch.ids[sequence, position + 1]]
    known = columns >= 0
    target = torch.zeros((int(known.sum()), count), device=columns.device)
    return known, target.scatter_(1, columns[known][:, None], 1.0)


class ExitObjective(Objective):
    """Every exit of a head, one of `DIVERGENCES` to the target at each; what lies below is frozen, so none disturbs
    another.
    """

    def __init__(self, head: ExitHead, divergence: str = DIVERGENCES[0]) -> None:
        super().__init__(head, LossWeights(feature=0.0), exit_levels)
        self.divergence = divergence

    def forward(
        self, batch: Batch, vocabulary: VocabularySlice, num_steps: int, noise: Tensor | None = None
    ) -> tuple[Tensor, dict[str, float]]:
        """As `Objective.forward`, where all exits predict the same token."""
        sequence, position = learnable_positions(batch, self.head.levels).nonzero(as_tuple=True)
        labels = None
        if self.divergence == "labels":
            known, labels = labels_at(batch, sequence, position, self._places(vocabulary), len(vocabulary.rows))
            sequence, position = sequence[known], position[known]
        features, target, entropy = target_of(batch, sequence, position, vocabulary)
        target = target if labels is None else labels
        measure = total_variation if self.divergence == "total-variation" else SoftCrossEntropy.apply
        parts = {"positions": float(len(position)), "target_entropy": float(entropy)}
        total = batch.features.new_zeros(())
        for number, output in enumerate(self.unroll(batch, self.head.levels, noise), start=1):
            predicted = output.features[sequence, position - 1]
            token = measure(predicted, vocabulary.rows, vocabulary.log_weights, target)
            total = total + token
            feature = functional.smooth_l1_loss(predicted.detach(), features)
            parts |= {f"main_{number}/token": token.item(), f"main_{number}/feature": feature.item()}
        return total, parts

    def _places(self, vocabulary: VocabularySlice) -> Tensor:
        """The column of every token of the target among the kept output rows, −1 where it has none."""
        places = draft_index(self.head)
        if vocabulary.kept is None:
            return places
        columns = places.new_full((len(self.head.draft_token_ids) + 1,), -1)
        columns[vocabulary.kept] = torch.arange(len(vocabulary.kept), device=places.device)
        return columns[places]


def exit_levels(head: ExitHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """What each exit in turn predicts, see `HeadKind.levels`."""
    embeddings = head.embed(ids[:, :-1])
    positions = torch.arange(embeddings.shape[1], device=embeddings.device)[None]
    _, *lower = map(scaled, features.split(head.config.hidden_size, dim=-1))
    if isinstance(head, NestedHead):
        found = head.all_exits(embeddings, lower, positions)
    else:
        found = [head.block(embeddings, lower[-1], positions).features]
    # A row of theirs is a token's own, where the others' predict the one after; the last one has none
    yield from (torch.cat([rows[:, 1:], rows[:, -1:]], dim=1) for rows in found)


@torch.no_grad()
def exit_rows(head: ExitHead, texts: Texts) -> tuple[Rows, Tensor]:
    """As `sample_rows`: [E[x_t]; the deepest lower state at t], h_t and h_{t+1}; and all lower states at t."""
    parts = []
    for ids, read in texts:
        features, *lower = read.split(head.config.hidden_size, dim=-1)
        lower = [scaled(each[:-1]) for each in lower]
        inputs = torch.cat([head.embed(ids[:-1]), lower[-1]], dim=-1)
        parts.append((inputs, features[:-1], features[1:], torch.cat(lower, dim=-1)))
    *rows, lower = map(torch.cat, zip(*parts, strict=True))
    return tuple(rows), lower


@torch.no_grad()
def start_exits(head: ExitHead, rows: Rows, lower: Tensor, seed: int) -> None:
    """The own layer starts as any head's, every further exit as the best linear guess of the last feature."""
    torch.manual_seed(seed)
    randomise(head)
    start_from_rows(head, rows)
    if isinstance(head, NestedHead):
        for leave, own in zip(head.exits, lower.split(head.config.hidden_size, dim=-1), strict=True):
            fit(leave, own, rows[1])


class ExitTrainer(Trainer):
    """The product's loop with what such a head reads and learns by."""

    def __init__(self, head: ExitHead, cache: FeatureCache, options: TrainingOptions, divergence: str, *where, **more):
        self._sampled = exit_rows(head, cache.texts(options.num_validation, START_TEXTS, torch.device("cpu")))
        objective = ExitObjective(head, divergence)
        super().__init__(head, cache, options, *where, kinds=KNOWN.kinds, objective=objective, **more)

    def whitening(self) -> dict[str, Tensor]:
        rows, lower = self._sampled
        found = layer_whitening(self.head, rows)
        if isinstance(self.head, NestedHead):
            read = lower.split(self.head.config.hidden_size, dim=-1)
            found |= {f"exits.{number}.weight": whitening_matrix(each) for number, each in enumerate(read)}
        return found


def calibration_of(objective: ExitObjective, data: HeldOut, seed: int) -> dict[str, float]:
    """`fit_calibration`'s; of one exit for every level, since it reads each level's tokens as it reads the first's."""
    fits = fit_calibration(objective, data, seed)
    if isinstance(objective.head, NestedHead):
        return fits
    depths = range(1, MAX_DEPTH + 1)
    return {name.replace("/1/", f"/{depth}/"): weight for name, weight in fits.items() for depth in depths}


def train_exit(
    data: CorpusPaths,
    out: Annotated[Path, option("Folder for the head.")],
    work: Annotated[Path, option("Folder for features and the training state.")],
    method: Annotated[str, option(f"One of {', '.join(TAUGHT)}.")] = TAUGHT[0],
    divergence: Annotated[str, option(f"One of {', '.join(DIVERGENCES)}.")] = DIVERGENCES[0],
    init: Annotated[str | None, option("A head of the same shape to start from.")] = None,
    target: Target = None,
    expert_width: Annotated[int | None, option("Inner width; the hidden size if not given.")] = None,
    draft_vocab: Annotated[int | None, option("Draft only this many tokens; as --init has, else all.")] = None,
    max_steps: Annotated[int, option("Optimizer steps.")] = 200,
    learning_rate: Annotated[float, option("Peak of the cosine schedule.")] = 1e-3,
    batch_tokens: Annotated[int, option("Tokens per batch.")] = 2048,
    precision: Annotated[str, option("float32, or bfloat16 for the passes.")] = "float32",
    average_from: Annotated[float | None, option("Share of the run after which weights are averaged.")] = None,
    validation_rows: Annotated[int, option("Rows of the corpus held out.")] = 60,
    max_tokens: Annotated[int | None, option("Use at most this many tokens of the corpus.")] = None,
    seed: Annotated[int, option("Of first weights, order of data and noise.")] = 0,
    threads: Threads = None,
) -> None:
    """Train the one layer that drafts on top of the target's first ones, calibrate and save it."""
    set_up(threads)
    for given, known in ((divergence, DIVERGENCES), (method, TAUGHT)):
        if given not in known:
            raise ValueError(f"Choose one of {', '.join(known)}; you gave {given!r}.")
    options = TrainingOptions(
        seed=seed, batch_tokens=batch_tokens, precision=precision, learning_rate=learning_rate, feature_noise=0.0,
        num_validation=validation_rows, max_steps=max_steps, average_from=average_from,
    )  # fmt: skip
    rows = in_order_of_content(read_corpus(data), max_tokens)
    trained = None
    if init is not None:
        folder = registry.resolve(target, init).head_folder()
        refuse_rows_that_were_learned(folder, rows, validation_rows)
        trained = load_head(folder, kinds=KNOWN.kinds)
        draft_vocab = draft_vocab or trained.config.draft_vocab_size
    model, _, sha256 = weights.load_target(target, "cpu", "float32")
    name, shape = target or registry.DEFAULT_TARGET, KNOWN[method].trains
    text = model.config.get_text_config()
    check_feature_layers(shape["exit_layers"], text.num_hidden_layers)
    named = {"target_name": name, "target_sha256": sha256 or ""}
    config = head_config(KNOWN[method].kind, text, expert_width, draft_vocab, **shape, **named)
    write_manifest(out, rows, validation_rows, name)
    extract(model, rows, work / "features", config.exit_layers, sha256 or name, precision)
    cache, head = FeatureCache(work / "features"), make_head(config, KNOWN.kinds)
    if config.draft_vocab_size:
        kept = frequent_token_ids(cache.learned_ids(validation_rows), config.vocab_size, config.draft_vocab_size)
        head.draft_token_ids.copy_(kept if trained is None else trained.draft_token_ids)
    output = model.get_output_embeddings().weight.detach().float()
    head.bind(model.get_input_embeddings().weight.detach().float(), output)
    if trained is None:
        texts = cache.texts(validation_rows, START_TEXTS, torch.device("cpu"))
        start_exits(head, *exit_rows(head, texts), seed)
    else:
        continue_weights(head, trained)
    checked = held_out(cache, range(validation_rows), output)
    trainer = ExitTrainer(
        head,
        cache,
        options,
        divergence,
        TrainingFolders(out, work / "state"),
        validate=partial(agreement, data=checked),
    )
    trainer.run()
    head.eval()
    head.config = replace(head.config, calibration=calibration_of(trainer.objective, checked, seed))
    save_head(head, out)
    log.info("Trained %s for %d steps.", out, trainer.step)


if __name__ == "__main__":
    with errors_as_one_sentence():
        typer.run(train_exit)
