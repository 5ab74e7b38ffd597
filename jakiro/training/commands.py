"""The commands `corpus`, `train` and `evaluate`: options in, work handed on, one sentence when something is wrong."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch
import typer
from accelerate import PartialState

from jakiro import zoo
from jakiro.bench.questions import load_questions
from jakiro.draft.checkpoint import load_head, save_head
from jakiro.draft.jakiro import JakiroHead
from jakiro.training.calibration import calibrate
from jakiro.training.corpus import CorpusOptions, CorpusWriter, read_corpus
from jakiro.training.evaluate_command import evaluate
from jakiro.training.features import FeatureCache, write_features
from jakiro.training.losses import LossWeights
from jakiro.training.options import Device, Target, Threads, comma_list, set_up
from jakiro.training.start import continue_weights, frequent_token_ids, head_config, start_weights
from jakiro.training.trainer import Trainer, TrainingError, TrainingOptions
from jakiro.training.validation import agreement, held_out, report

__all__ = ["corpus", "evaluate", "train"]
log = logging.getLogger("jakiro")

_DEFAULTS, _WEIGHTS, _CORPUS = TrainingOptions(max_steps=1), LossWeights(), CorpusOptions()


def corpus(
    out: Annotated[Path, typer.Argument(help="Folder for the corpus; an unfinished one is continued.")],
    rows: Annotated[int, typer.Option(help="How many texts to write.")] = 1000,
    target: Target = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Prompts in Spec-Bench form; without them the target writes its own.")
    ] = None,
    temperatures: Annotated[str, typer.Option(help="Comma list, taken in turn for the answers.")] = ",".join(
        map(str, _CORPUS.temperatures)
    ),
    top_k: Annotated[int, typer.Option(help="Sample from this many tokens.")] = _CORPUS.top_k,
    max_new_tokens: Annotated[int, typer.Option(help="Longest answer.")] = _CORPUS.max_new_tokens,
    max_message_tokens: Annotated[
        int, typer.Option(help="Longest message that the target writes itself.")
    ] = _CORPUS.max_message_tokens,
    batch_size: Annotated[int, typer.Option(help="Texts written at once.")] = _CORPUS.batch_size,
    min_distinct: Annotated[
        float, typer.Option(help="Drop answers with a smaller share of distinct 4-grams; 0 keeps all.")
    ] = _CORPUS.min_distinct,
    seed: Annotated[int, typer.Option(help="The same seed writes the same texts.")] = 0,
    device: Device = "cpu",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    threads: Threads = None,
) -> None:
    """Let a target write the text that its head is trained on."""
    set_up(threads)
    if min(rows, batch_size, max_new_tokens, max_message_tokens) < 1:
        raise ValueError("Rows, batch size and lengths must be at least 1.")
    options = replace(
        _CORPUS, seed=seed, temperatures=tuple(comma_list("--temperatures", temperatures, float)), top_k=top_k,
        max_new_tokens=max_new_tokens, max_message_tokens=max_message_tokens, batch_size=batch_size,
        min_distinct=min_distinct,
    )  # fmt: skip
    messages = None
    if prompts is not None:
        messages = [question.turns[0] for question in load_questions(prompts)]
    model, tokenizer, _ = zoo.load_target(target, device, dtype)
    kept = CorpusWriter(model, tokenizer, out, options, messages).write(rows)
    log.info("Wrote %d tokens to %s.", kept, out)


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
            help="A head to start from, with a fresh schedule; its width and draft vocabulary are the default."
        ),
    ] = None,
    target: Target = None,
    fusion: Annotated[str, typer.Option(help="summed (with the contrastive branch) or decoupled.")] = "summed",
    experts: Annotated[int, typer.Option(help="2, or 1 for a dense head without routing.")] = 2,
    expert_width: Annotated[int | None, typer.Option(help="Inner width of an expert; else the hidden size.")] = None,
    draft_vocab: Annotated[
        int | None, typer.Option(help="Draft only the corpus' most frequent tokens; all when not given.")
    ] = None,
    token_weight: Annotated[float, typer.Option(help="Weight of the cross-entropy.")] = _WEIGHTS.token,
    feature_weight: Annotated[float, typer.Option(help="Weight of the feature regression.")] = _WEIGHTS.feature,
    contrastive_weight: Annotated[float, typer.Option(help="Weight of the contrastive branch.")] = _WEIGHTS.contrastive,
    unroll: Annotated[int, typer.Option(help="Steps on the head's own features; 1 never unrolls.")] = _DEFAULTS.unroll,
    unroll_from: Annotated[float, typer.Option(help="Share of the run before unrolling.")] = _DEFAULTS.unroll_from,
    noise: Annotated[float, typer.Option(help="Noise on the features, in standard deviations.")] = (
        _DEFAULTS.feature_noise
    ),
    optimizer: Annotated[str, typer.Option(help="muon or adamw.")] = _DEFAULTS.optimizer,
    learning_rate: Annotated[float, typer.Option(help="Peak of the cosine.")] = _DEFAULTS.learning_rate,
    warmup_steps: Annotated[int, typer.Option(help="Steps of linear warm-up.")] = _DEFAULTS.warmup_steps,
    batch_tokens: Annotated[int, typer.Option(help="Tokens per step, padding included.")] = _DEFAULTS.batch_tokens,
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
    seed: Annotated[int, typer.Option(help="Keys weights, data order, noise.")] = 0,
    logdir: Annotated[Path | None, typer.Option(help="Folder for tensorboard.")] = None,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Train a draft head for a target: features, training, calibration, report."""
    set_up(threads)
    options = TrainingOptions(
        seed=seed, batch_tokens=batch_tokens, optimizer=optimizer, learning_rate=learning_rate,
        warmup_steps=warmup_steps, feature_noise=noise, unroll=unroll, unroll_from=unroll_from,
        frequent_rows=frequent_rows, sampled_rows=sampled_rows, num_validation=validation_rows,
        time_budget=time_budget, max_steps=max_steps, checkpoint_minutes=checkpoint_minutes,
        weights=LossWeights(token_weight, feature_weight, contrastive_weight),
    )  # fmt: skip
    rows = read_corpus(data)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed)).tolist()
    rows = _within_budget([rows[index] for index in order], max_tokens)
    if len(rows) <= validation_rows:
        raise ValueError(
            f"The corpus has {len(rows)} rows and {validation_rows} are held out; write more or hold out fewer."
        )
    trained = load_head(zoo.resolve(target, init).head_path) if init else None
    model, _, sha256 = zoo.load_target(target, device, "float32")
    kept_ids = None
    if trained is not None:
        expert_width = expert_width or trained.config.expert_intermediate_size
        if draft_vocab is None and trained.config.draft_vocab_size:
            kept_ids, draft_vocab = trained.draft_token_ids, trained.config.draft_vocab_size
    config = head_config(
        model.config,
        expert_width or model.config.hidden_size,
        draft_vocab,
        fusion,
        num_experts=experts,
        target_name=target or zoo.DEFAULT_TARGET,
        target_sha256=sha256 or "",
    )
    embedding, output_weight = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    with PartialState().main_process_first():
        extract(model, rows, work / "features")
    cache = FeatureCache(work / "features")
    head = JakiroHead(config)
    if config.draft_vocab_size:
        if kept_ids is None:
            kept_ids = frequent_token_ids(cache.ids, config.vocab_size, config.draft_vocab_size)
        head.draft_token_ids.copy_(kept_ids)
    head.to(device).bind(embedding, output_weight)
    if trained is None:
        start_weights(head, cache, seed, start, first=validation_rows)
    else:
        continue_weights(head, trained)
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
        finish(head, cache, rows, list(range(validation_rows)), output_weight, out, seed)


def extract(model, rows, folder: Path) -> None:
    """Runs the target over the corpus and keeps its features on disk; continues where it stopped."""
    sequences = [(row.ids, row.loss_start) for row in rows]
    total = sum(len(ids) for ids, _ in sequences)
    size = total * model.config.hidden_size * 2 / 1e9
    log.info("Features of %d sequences, %d tokens, %.1f GB in %s.", len(sequences), total, size, folder)

    @torch.inference_mode()
    def features_of(ids: torch.Tensor) -> torch.Tensor:
        return model.get_decoder()(input_ids=ids.to(model.device), use_cache=False).last_hidden_state

    for done in write_features(folder, sequences, model.config.hidden_size, features_of):
        log.info("Features of %d of %d sequences.", done, len(sequences))


def finish(
    head: JakiroHead, cache: FeatureCache, rows, indices: list[int], output_weight: torch.Tensor, out: Path, seed: int
) -> dict[str, float]:
    """Fits the calibration on held-out rows, stores it in the head's config and logs what the head is worth."""
    head.eval()
    data = held_out(cache, indices, output_weight)
    calibration = calibrate(head, data.batches, output_weight, seed)
    head.config = replace(head.config, calibration=calibration)
    save_head(head, out)
    numbers = report(head, cache, [rows[index] for index in indices], indices, data, output_weight)
    for name, value in numbers.items():
        log.info("%s %.3f", name, value)
    return numbers


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
