"""Train a draft on top of the target's first layers: `python -m lab.training.exits CORPUS --out HEAD --work WORK`.

It uses the package's features, trainer and calibration. This module adds the inputs and predictions of such a head, and
the divergences that DistillSpec (arXiv 2310.08461) compares. "forward-kl" is the cross-entropy to the target's whole
distribution. "total-variation" is half the sum of |p − q|, one minus the acceptance rate of the best test.
"""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from jakiro.cli.loading import set_up
from jakiro.cli.options import CorpusPaths, Target, Threads, option
from jakiro.config import require
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.kinds import make_head
from jakiro.loading import registry, weights
from jakiro.models.features import check_feature_layers
from jakiro.training.calibrate import MAX_DEPTH, fit_calibration
from jakiro.training.corpus import read_corpus
from jakiro.training.cross_entropy import logits_of
from jakiro.training.extract import extract
from jakiro.training.features import FeatureCache
from jakiro.training.losses import LossWeights, Objective
from jakiro.training.schedule import TrainingOptions
from jakiro.training.split import in_order_of_content, refuse_rows_that_were_learned, write_manifest
from jakiro.training.start import continue_weights, frequent_token_ids, head_config
from jakiro.training.train import START_TEXTS
from jakiro.training.trainer import Trainer, TrainingFolders
from jakiro.training.validation import HeldOut, agreement, held_out
from lab import KNOWN
from lab.commands import run
from lab.layers.exit_head import ExitHead, NestedHead
from lab.layers.exit_learning import levels, start_exits

DIVERGENCES = ("forward-kl", "total-variation")
TAUGHT = ("exit", "s2d", "distillspec")
log = logging.getLogger("jakiro")


def total_variation(predicted: Tensor, rows: Tensor, log_weights: Tensor | None, target: Tensor) -> Tensor:
    """Return the mean total variation over positions.

    Args:
        predicted: (positions, hidden) features.
        rows, log_weights: output rows of draft and target, see `VocabularySlice`.
        target: (positions, kept) probabilities.
    """
    draft = logits_of(predicted, rows, log_weights).softmax(-1)
    return (draft - target).abs().sum(-1).mean() / 2


class ExitObjective(Objective):
    """The sum of one of `DIVERGENCES` over all exits; lower layers are frozen, so exits do not affect each other.

    The loss of the features is reported, but not learned from.
    """

    def __init__(self, head: ExitHead, divergence: str = DIVERGENCES[0]) -> None:
        super().__init__(head, LossWeights(feature=0.0, unroll_decay=1.0), levels)
        self.divergence = divergence

    def main_loss(self, predicted, target, true_features, vocabulary):
        token, feature = super().main_loss(predicted, target, true_features, vocabulary)
        if self.divergence == "total-variation":
            token = total_variation(predicted, vocabulary.rows, vocabulary.log_weights, target)
        return token, feature.detach()


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
        require(value in choices, f"Choose one of {', '.join(choices)}; got {value!r}.")
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
        start_exits(head, cache.texts(validation_rows, START_TEXTS, torch.device("cpu")), seed)
    else:
        continue_weights(head, trained)
    checked = held_out(cache, range(validation_rows), output)
    trainer = Trainer(
        head, cache, options, TrainingFolders(out, work / "state"), partial(agreement, data=checked),
        kinds=KNOWN.kinds, objective=ExitObjective(head, divergence),
    )  # fmt: skip
    trainer.run()
    head.eval()
    head.config = replace(head.config, calibration=calibration_of(trainer.objective, checked, seed))
    save_head(head, out)
    log.info("Trained %s for %d steps.", out, trainer.step)


if __name__ == "__main__":
    run(train_exit)
