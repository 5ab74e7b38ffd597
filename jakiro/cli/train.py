"""The command `train`: fills a `TrainConfig` from its options."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from jakiro.cli.loading import set_up
from jakiro.cli.options import CorpusPaths, MethodsFrom, OneDevice, Target, Threads, option
from jakiro.system import comma_list
from jakiro.training import train as library
from jakiro.training.losses import LossWeights
from jakiro.training.schedule import LOSSES, OFFICIAL_OPTIMIZER, TrainingOptions
from jakiro.training.train import TrainConfig

_OURS = TrainingOptions(max_steps=1)


def train(
    data: CorpusPaths,
    out: Annotated[Path, option("Folder for the head.")],
    work: Annotated[Path, option("Folder for features and the training state; large, kept for --resume.")],
    time_budget: Annotated[float | None, option("Minutes until the schedule ends, resumed parts included.")] = None,
    time_budget_clock: Annotated[
        str, option("wall, or processor: minutes that this process computed, equal shares of a busy machine.")
    ] = _OURS.time_budget_clock,
    max_steps: Annotated[int | None, option("Optimizer steps until it ends, instead of a time budget.")] = None,
    resume: Annotated[bool, option("Continue from the last checkpoint in --work.", "--resume")] = False,
    init: Annotated[
        str | None,
        option(
            "A head to start from, with a fresh schedule; its width and draft vocabulary are the default. "
            "From a head of another shape everything before the experts is taken, as far as both have it."
        ),
    ] = None,
    target: Target = None,
    method: Annotated[
        str | None, option("The drafting method that it is a head for, see `jakiro methods`; sets shape and experts.")
    ] = None,
    fusion: Annotated[str, option("summed (with the contrastive branch) or decoupled.")] = "summed",
    experts: Annotated[int, option("2, or 1 for a dense head without routing.")] = 2,
    expert_width: Annotated[
        int | None, option("Inner width of an expert; as --init has parameters, else the hidden size.")
    ] = None,
    draft_vocab: Annotated[int | None, option("Draft only this many of the corpus's most frequent tokens.")] = None,
    feature_layers: Annotated[
        str | None, option("Layers read besides the last, as in 10,20; each one adds the same amount of features.")
    ] = None,
    loss: Annotated[str, option("ours or official: sets those of the next three weights that are not given.")] = "ours",
    token_weight: Annotated[float | None, option("Weight of the cross-entropy.")] = None,
    feature_weight: Annotated[float | None, option("Weight of the feature regression.")] = None,
    contrastive_weight: Annotated[float | None, option("Weight of the contrastive branch.")] = None,
    unroll: Annotated[int, option("Steps on the head's own features; 1 never unrolls.")] = _OURS.unroll,
    unroll_from: Annotated[float, option("Share of the run before unrolling starts.")] = _OURS.unroll_from,
    noise: Annotated[float, option("Noise on the features, in standard deviations.")] = _OURS.feature_noise,
    optimizer: Annotated[str, option("muon, adamw, or official (adamw as in the paper's code).")] = _OURS.optimizer,
    learning_rate: Annotated[float | None, option("Peak of the cosine schedule.")] = None,
    warmup_steps: Annotated[int | None, option("Steps of linear warm-up.")] = None,
    batch_tokens: Annotated[int, option("Tokens per batch and process, padding included.")] = _OURS.batch_tokens,
    accumulate: Annotated[int, option("Batches per step and process.")] = _OURS.accumulate,
    precision: Annotated[
        str, option("float32 or bfloat16 for the head's passes; on a CPU that has it also for the target's features.")
    ] = _OURS.precision,
    frequent_rows: Annotated[int, option("Output rows that every step computes.")] = _OURS.frequent_rows,
    sampled_rows: Annotated[int, option("Output rows sampled besides; a large number takes all.")] = _OURS.sampled_rows,
    start: Annotated[str, option("Initial weights: least-squares or identity.")] = "least-squares",
    validation_rows: Annotated[int, option("Corpus rows held out.")] = _OURS.num_validation,
    average_from: Annotated[
        float | None, option("Share of the run after which weights are averaged; the average is the head.")
    ] = _OURS.average_from,
    checkpoint_minutes: Annotated[float, option("Time between checkpoints.")] = _OURS.checkpoint_minutes,
    max_tokens: Annotated[int | None, option("Use at most this many tokens of the corpus.")] = None,
    features: Annotated[Path | None, option("Folder of features, if several runs share them; else in --work.")] = None,
    final_report: Annotated[bool, option("End with numbers on held-out rows.", "--report/--no-report")] = True,
    seed: Annotated[int, option("The same seed gives the same first weights, order of data and noise.")] = 0,
    logdir: Annotated[Path | None, option("Folder for tensorboard and training.html.")] = None,
    device: OneDevice = None,
    threads: Threads = None,
    methods_from: MethodsFrom = None,
) -> None:
    """Train a draft head for a target: features, training, calibration, report."""
    set_up(threads)
    config = TrainConfig(
        corpora=tuple(map(str, data)), out=str(out), work=str(work), options=TrainingOptions(
            seed=seed, batch_tokens=batch_tokens, accumulate=accumulate, precision=precision, feature_noise=noise,
            unroll=unroll, unroll_from=unroll_from, frequent_rows=frequent_rows, sampled_rows=sampled_rows,
            num_validation=validation_rows, time_budget=time_budget, time_budget_clock=time_budget_clock,
            max_steps=max_steps, checkpoint_minutes=checkpoint_minutes, average_from=average_from,
            weights=_weights(loss, token_weight, feature_weight, contrastive_weight),
            **_optimizer(optimizer, learning_rate, warmup_steps),
        ),
        target=target, init=init, method=method, methods_from=tuple(methods_from or ()), fusion=fusion, experts=experts,
        expert_width=expert_width, draft_vocab=draft_vocab,
        feature_layers=None if feature_layers is None else tuple(comma_list("--feature-layers", feature_layers, int)),
        start=start, max_tokens=max_tokens, features=features and str(features), final_report=final_report,
        logdir=logdir and str(logdir), device=device, resume=resume,
    )  # fmt: skip
    library.train(config)


def _weights(loss: str, token: float | None, feature: float | None, contrastive: float | None) -> LossWeights:
    if loss not in LOSSES:
        raise ValueError(f"Loss must be one of {', '.join(LOSSES)}; you gave {loss!r}.")
    return replace(LOSSES[loss], **_given(token=token, feature=feature, contrastive=contrastive))


def _optimizer(name: str, learning_rate: float | None, warmup_steps: int | None) -> dict:
    preset = OFFICIAL_OPTIMIZER if name == "official" else {"optimizer": name}
    return preset | _given(learning_rate=learning_rate, warmup_steps=warmup_steps)


def _given(**values) -> dict:
    return {name: value for name, value in values.items() if value is not None}
