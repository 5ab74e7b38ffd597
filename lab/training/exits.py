"""Train a draft on top of the target's first layers: `python -m lab.training.exits CORPUS --out HEAD --work WORK`.

It uses the package's features, trainer and calibration. This module adds the inputs and predictions of such a head, and
the divergences that DistillSpec (arXiv 2310.08461) compares. "forward-kl" is the cross-entropy to the target's whole
distribution. "total-variation" is half the sum of |p − q|, one minus the acceptance rate of the best test.
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
from jakiro.training.losses import LossWeights, Objective, learnable_positions, target_of
from jakiro.training.schedule import TrainingOptions
from jakiro.training.split import in_order_of_content, refuse_rows_that_were_learned, write_manifest
from jakiro.training.start import continue_weights, frequent_token_ids, head_config
from jakiro.training.trainer import Trainer, TrainingFolders
from jakiro.training.validation import HeldOut, agreement, held_out
from lab import KNOWN
from lab.layers.exit_head import ExitHead, NestedHead, scaled

DIVERGENCES = ("forward-kl", "total-variation")
TAUGHT = ("exit", "s2d", "distillspec")
START_TEXTS = 110
log = logging.getLogger("jakiro")


def total_variation(predicted: Tensor, rows: Tensor, log_weights: Tensor | None, target: Tensor) -> Tensor:
    """Return the mean total variation over positions.

    Args:
        predicted: (positions, hidden) features.
        rows, log_weights: output rows of draft and target, see `VocabularySlice`.
        target: (positions, kept) probabilities.
    """
    logits = functional.linear(predicted, rows.to(predicted.dtype)).float()
    draft = (logits if log_weights is None else logits + log_weights).softmax(-1)
    return (draft - target).abs().sum(-1).mean() / 2


class ExitObjective(Objective):
    """The sum of one of `DIVERGENCES` over all exits; lower layers are frozen, so exits do not affect each other.

    The loss of the features is reported, but not learned from.
    """

    def __init__(self, head: ExitHead, divergence: str = DIVERGENCES[0]) -> None:
        super().__init__(head, LossWeights(feature=0.0), exit_levels)
        self.divergence = divergence

    def forward(
        self, batch: Batch, vocabulary: VocabularySlice, num_steps: int, noise: Tensor | None = None
    ) -> tuple[Tensor, dict[str, float]]:
        """Compute the loss as `Objective.forward`; all exits predict the same token, so `num_steps` is ignored."""
        sequence, position = learnable_positions(batch, self.head.levels).nonzero(as_tuple=True)
        features, target, entropy = target_of(batch, sequence, position, vocabulary)
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


def exit_levels(head: ExitHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """Yield the prediction of each exit; see `HeadKind.levels`."""
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
def exit_rows(head: ExitHead, texts: Texts) -> tuple[Rows, Tensor]:
    """Return the rows of `sample_rows` and all lower states at t.

    The rows are [E[x_t]; the deepest lower state at t], h_t and h_{t+1}.
    """
    parts = []
    for ids, read in texts:
        features, *lower = read.split(head.config.hidden_size, dim=-1)
        lower = [scaled(state[:-1]) for state in lower]
        inputs = torch.cat([head.embed(ids[:-1]), lower[-1]], dim=-1)
        parts.append((inputs, features[:-1], features[1:], torch.cat(lower, dim=-1)))
    *rows, lower = map(torch.cat, zip(*parts, strict=True))
    return tuple(rows), lower


@torch.no_grad()
def start_exits(head: ExitHead, rows: Rows, lower: Tensor, seed: int) -> None:
    """Initialise the own layer like that of any head, and every other exit by least squares to the last feature."""
    torch.manual_seed(seed)
    randomise(head)
    start_from_rows(head, rows)
    if isinstance(head, NestedHead):
        for leave, states in zip(head.exits, lower.split(head.config.hidden_size, dim=-1), strict=True):
            fit(leave, states, rows[1])


class ExitTrainer(Trainer):
    """The package's training loop with the inputs and the objective of an exit head."""

    def __init__(self, head: ExitHead, cache: FeatureCache, options: TrainingOptions, divergence: str, *where, **more):
        self._sampled = exit_rows(head, cache.texts(options.num_validation, START_TEXTS, torch.device("cpu")))
        objective = ExitObjective(head, divergence)
        super().__init__(head, cache, options, *where, kinds=KNOWN.kinds, objective=objective, **more)

    def whitening(self) -> dict[str, Tensor]:
        rows, lower = self._sampled
        matrices = layer_whitening(self.head, rows)
        if isinstance(self.head, NestedHead):
            read = lower.split(self.head.config.hidden_size, dim=-1)
            matrices |= {f"exits.{number}.weight": whitening_matrix(states) for number, states in enumerate(read)}
        return matrices


def calibration_of(objective: ExitObjective, data: HeldOut, seed: int) -> dict[str, float]:
    """Return the fitted calibration; with a single exit, all levels share it, because they read the same inputs."""
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
    draft_vocab: Annotated[int | None, option("Size of the draft vocabulary; as in --init, else all.")] = None,
    max_steps: Annotated[int, option("Optimizer steps.")] = 200,
    learning_rate: Annotated[float, option("Peak of the cosine schedule.")] = 1e-3,
    batch_tokens: Annotated[int, option("Tokens per batch.")] = 2048,
    precision: Annotated[str, option("float32, or bfloat16 for the passes.")] = "float32",
    average_from: Annotated[float | None, option("Share of the run after which weights are averaged.")] = None,
    validation_rows: Annotated[int, option("Rows of the corpus held out.")] = 60,
    max_tokens: Annotated[int | None, option("Use at most this many tokens of the corpus.")] = None,
    seed: Annotated[int, option("Seed of the first weights, the order of data and the noise.")] = 0,
    threads: Threads = None,
) -> None:
    """Train the layer that drafts on top of the target's first layers, calibrate and save it."""
    set_up(threads)
    for value, choices in ((divergence, DIVERGENCES), (method, TAUGHT)):
        if value not in choices:
            raise ValueError(f"Choose one of {', '.join(choices)}; got {value!r}.")
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
        token_ids = frequent_token_ids(cache.learned_ids(validation_rows), config.vocab_size, config.draft_vocab_size)
        head.draft_token_ids.copy_(token_ids if trained is None else trained.draft_token_ids)
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
