"""The command `train`: features, training, calibration and report of a head for a target."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from accelerate import PartialState

from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.jakiro import JakiroHead
from jakiro.system import comma_list
from jakiro.target.features import check_feature_layers, features_of
from jakiro.training.commands.options import Device, Target, Threads, set_up
from jakiro.training.data.corpus import read_corpus, with_starts
from jakiro.training.data.features import FeatureCache, write_features
from jakiro.training.data.kept_features import KeptFeatures
from jakiro.training.measure.calibration import calibrate
from jakiro.training.measure.validation import agreement, held_out, report
from jakiro.training.recipe.losses import LossWeights
from jakiro.training.recipe.start import (
    adopt_stream,
    check_output_function,
    continue_weights,
    frequent_token_ids,
    head_config,
    start_weights,
)
from jakiro.training.recipe.trainer import Trainer, TrainingError, TrainingOptions
from jakiro.zoo import table as zoo
from jakiro.zoo import weights

# What `--loss` and `--optimizer` know beside their single values; "official" is the published recipe of the paper.
LOSSES = {"ours": LossWeights(), "official": LossWeights(token=0.1, feature=1.0, contrastive=0.5)}
OFFICIAL_OPTIMIZER = {"optimizer": "adamw", "learning_rate": 9e-5, "warmup_steps": 2000, "clip_value": 0.5}
log = logging.getLogger("jakiro")
_DEFAULTS = TrainingOptions(max_steps=1)


def train(
    data: Annotated[list[Path], typer.Argument(help="Corpus files (*.jsonl.gz) or folders with them.")],
    out: Annotated[Path, typer.Option(help="Folder for the head.")],
    work: Annotated[Path, typer.Option(help="Folder for features and the training state; large, kept for --resume.")],
    time_budget: Annotated[
        float | None, typer.Option(help="Minutes of training; the schedule ends exactly there, resumed parts included.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Optimizer steps, instead of a time budget.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the last checkpoint in --work.")] = False,
    init: Annotated[
        str | None,
        typer.Option(
            help="A head to start from, with a fresh schedule; its width and draft vocabulary are the default. "
            "A head of the other fusion gives all but its experts."
        ),
    ] = None,
    target: Target = None,
    fusion: Annotated[str, typer.Option(help="summed (with the contrastive branch) or decoupled.")] = "summed",
    experts: Annotated[int, typer.Option(help="2, or 1 for a dense head without routing.")] = 2,
    expert_width: Annotated[int | None, typer.Option(help="Inner width of an expert; else the hidden size.")] = None,
    draft_vocab: Annotated[
        int | None, typer.Option(help="Draft only the corpus' most frequent tokens; all when not given.")
    ] = None,
    feature_layers: Annotated[
        str | None,
        typer.Option(help="Layers read beside the last, from 1 on, as in 10,20; features take that much more room."),
    ] = None,
    loss: Annotated[
        str, typer.Option(help="ours or official: what the three weights below are when not given.")
    ] = "ours",
    token_weight: Annotated[float | None, typer.Option(help="Weight of the cross-entropy.")] = None,
    feature_weight: Annotated[float | None, typer.Option(help="Weight of the feature regression.")] = None,
    contrastive_weight: Annotated[float | None, typer.Option(help="Weight of the contrastive branch.")] = None,
    balance: Annotated[float, typer.Option(help="Weight of the term that evens out the router's mean weights.")] = 0.0,
    diversity: Annotated[float, typer.Option(help="Weight of the term that drives the experts' guesses apart.")] = 0.0,
    unroll: Annotated[int, typer.Option(help="Steps on the head's own features; 1 never unrolls.")] = _DEFAULTS.unroll,
    unroll_from: Annotated[float, typer.Option(help="Share of the run before unrolling.")] = _DEFAULTS.unroll_from,
    noise: Annotated[float, typer.Option(help="Noise on the features, in standard deviations.")] = (
        _DEFAULTS.feature_noise
    ),
    optimizer: Annotated[
        str, typer.Option(help="muon, adamw, or official: adamw with rate, warm-up and clipping of the paper.")
    ] = _DEFAULTS.optimizer,
    learning_rate: Annotated[float | None, typer.Option(help="Peak of the cosine.")] = None,
    warmup_steps: Annotated[int | None, typer.Option(help="Steps of linear warm-up.")] = None,
    batch_tokens: Annotated[
        int, typer.Option(help="Tokens per batch and process, padding included.")
    ] = _DEFAULTS.batch_tokens,
    accumulate: Annotated[int, typer.Option(help="Batches per step and process.")] = _DEFAULTS.accumulate,
    precision: Annotated[str, typer.Option(help="float32 or bfloat16 for the head's passes.")] = _DEFAULTS.precision,
    frequent_rows: Annotated[
        int, typer.Option(help="Output rows that every step computes with.")
    ] = _DEFAULTS.frequent_rows,
    sampled_rows: Annotated[
        int, typer.Option(help="Output rows sampled per step besides the frequent ones; a large number computes all.")
    ] = _DEFAULTS.sampled_rows,
    start: Annotated[str, typer.Option(help="least-squares or identity: how the input projection begins.")] = (
        "least-squares"
    ),
    validation_rows: Annotated[int, typer.Option(help="Corpus rows held out.")] = _DEFAULTS.num_validation,
    checkpoint_minutes: Annotated[float, typer.Option(help="Time between checkpoints.")] = _DEFAULTS.checkpoint_minutes,
    max_tokens: Annotated[int | None, typer.Option(help="Use at most this many tokens of the corpus.")] = None,
    features: Annotated[
        Path | None, typer.Option(help="Folder of features, for runs that share them; default: in --work.")
    ] = None,
    final_report: Annotated[
        bool, typer.Option("--report/--no-report", help="End with numbers on held-out rows.")
    ] = True,
    seed: Annotated[int, typer.Option(help="Keys weights, data order, noise.")] = 0,
    logdir: Annotated[Path | None, typer.Option(help="Folder for tensorboard.")] = None,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Train a draft head for a target: features, training, calibration, report."""
    set_up(threads)
    options = TrainingOptions(
        seed=seed, batch_tokens=batch_tokens, accumulate=accumulate, precision=precision, feature_noise=noise,
        unroll=unroll, unroll_from=unroll_from, frequent_rows=frequent_rows, sampled_rows=sampled_rows,
        num_validation=validation_rows, time_budget=time_budget, max_steps=max_steps,
        checkpoint_minutes=checkpoint_minutes,
        weights=_weights(loss, token_weight, feature_weight, contrastive_weight, balance, diversity),
        **_optimizer(optimizer, learning_rate, warmup_steps),
    )  # fmt: skip
    rows = read_corpus(data)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
    rows = _within_budget([rows[index] for index in order], max_tokens)
    if len(rows) <= validation_rows:
        raise ValueError(
            f"The corpus has {len(rows)} rows and {validation_rows} are held out; write more or hold out fewer."
        )
    trained = load_head(zoo.resolve(target, init).head_folder()) if init else None
    process = PartialState(cpu=device == "cpu")
    device = process.device if device == "cuda" else device
    model, tokenizer, sha256 = weights.load_target(target, device, "float32")
    check_output_function(model)
    rows = with_starts(rows, tokenizer)
    layers = _feature_layers(feature_layers, trained, model.config.get_text_config().num_hidden_layers)
    kept_ids = None
    if trained is not None:
        if trained.config.fusion == fusion:
            expert_width = expert_width or trained.config.expert_intermediate_size
        if draft_vocab is None and trained.config.draft_vocab_size:
            kept_ids, draft_vocab = trained.draft_token_ids, trained.config.draft_vocab_size
    config = head_config(
        model.config,
        expert_width or model.config.get_text_config().hidden_size,
        draft_vocab,
        fusion,
        num_experts=experts,
        feature_layers=layers,
        target_name=target or zoo.DEFAULT_TARGET,
        target_sha256=sha256 or "",
    )
    embedding, output_weight = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    features = features or work / "features"
    with process.main_process_first():
        extract(model, rows, features, layers, KeptFeatures(data, sha256 or target or zoo.DEFAULT_TARGET))
    cache = FeatureCache(features)
    head = JakiroHead(config)
    if config.draft_vocab_size:
        if kept_ids is None:
            kept_ids = frequent_token_ids(cache.ids, config.vocab_size, config.draft_vocab_size)
        head.draft_token_ids.copy_(kept_ids)
    head.to(device).bind(embedding, output_weight)
    if trained is None:
        start_weights(head, cache, seed, start, first=validation_rows)
    elif trained.config.fusion == fusion:
        continue_weights(head, trained)
    else:
        adopt_stream(head, trained, cache, seed, first=validation_rows)
    checked = held_out(cache, list(range(min(validation_rows, 16))), output_weight)
    try:
        trainer = Trainer(
            head, cache, options, out, work / "state", logdir, lambda trained: agreement(trained, checked, num_steps=5)
        )
        if resume:
            trainer.resume()
        trainer.run()
    except TrainingError as error:
        raise ValueError(str(error)) from error
    if trainer.accelerator.is_main_process:
        finish(head, cache, rows, list(range(validation_rows)), output_weight, out, seed, final_report)


def _feature_layers(given: str | None, trained: JakiroHead | None, num_layers: int) -> tuple[int, ...]:
    """As given, else those of the head that is continued."""
    kept = trained.config.feature_layers if trained else ()
    if given is None:
        return kept
    layers = tuple(sorted(set(comma_list("--feature-layers", given, int))))
    check_feature_layers(layers, num_layers)
    if kept and layers != kept:
        raise ValueError(
            f"The head to start from reads layers {list(kept)} beside the last, {list(layers)} were asked for; leave "
            "--feature-layers out, or start from a head that reads the last layer alone."
        )
    return layers


def _weights(
    loss: str, token: float | None, feature: float | None, contrastive: float | None, balance: float, diversity: float
) -> LossWeights:
    if loss not in LOSSES:
        raise ValueError(f"Loss must be one of {', '.join(LOSSES)}; you gave {loss!r}.")
    given = {"token": token, "feature": feature, "contrastive": contrastive}
    given = {name: value for name, value in given.items() if value is not None}
    return replace(LOSSES[loss], balance=balance, diversity=diversity, **given)


def _optimizer(name: str, learning_rate: float | None, warmup_steps: int | None) -> dict:
    preset = OFFICIAL_OPTIMIZER if name == "official" else {"optimizer": name}
    given = {"learning_rate": learning_rate, "warmup_steps": warmup_steps}
    return preset | {name: value for name, value in given.items() if value is not None}


def extract(model, rows, folder: Path, feature_layers: Sequence[int], kept: KeptFeatures) -> None:
    """Fills a cache of features: those kept with the corpus, the others computed. Continues where it stopped."""
    sequences = [(row.ids, row.loss_start) for row in rows]
    total = sum(len(ids) for ids, _ in sequences)
    hidden_size = model.config.get_text_config().hidden_size
    size = total * (1 + len(feature_layers)) * hidden_size * 2 / 1e9
    log.info("Features of %d sequences, %d tokens, %.1f GB in %s.", len(sequences), total, size, folder)

    @torch.inference_mode()
    def run(ids: torch.Tensor) -> torch.Tensor:
        return features_of(model.get_decoder(), feature_layers, input_ids=ids.to(model.device), use_cache=False)

    # Kept features are those of the last layer alone.
    known = kept.of if not feature_layers else lambda ids: None
    for done in write_features(folder, sequences, hidden_size, run, feature_layers, known):
        log.info("Features of %d of %d sequences.", done, len(sequences))


def finish(
    head: JakiroHead,
    cache: FeatureCache,
    rows,
    indices: list[int],
    output_weight: torch.Tensor,
    out: Path,
    seed: int,
    final_report: bool = True,
) -> None:
    """Fits the calibration on held-out rows, stores it in the head's config and logs what the head is worth."""
    head.eval()
    data = held_out(cache, indices, output_weight)
    head.config = replace(head.config, calibration=calibrate(head, data.batches, output_weight, seed))
    save_head(head, out)
    if final_report:
        numbers = report(head, cache, [rows[index] for index in indices], indices, data, output_weight)
        for name, value in numbers.items():
            log.info("%s %.3f", name, value)


def _within_budget(rows: list, max_tokens: int | None) -> list:
    if max_tokens is None:
        return rows
    kept, total = [], 0
    for row in rows:
        total += len(row.ids)
        if total > max_tokens:
            break
        kept.append(row)
    return kept
