"""The command `train`: a target's features, then a head's training, calibration and report."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import torch
from accelerate import PartialState

from jakiro.heads.base import DraftHead
from jakiro.heads.card import write_training_card
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.config import DraftConfig
from jakiro.heads.networks import make_head
from jakiro.kernels.linear import packs_bfloat16
from jakiro.methods import METHODS, Methods
from jakiro.methods import methods_from as methods_of
from jakiro.plots import MISSING
from jakiro.system import comma_list
from jakiro.target.features import check_feature_layers, features_of
from jakiro.training.calibrate import MAX_DEPTH, calibrate
from jakiro.training.commands.options import CorpusPaths, Device, MethodsFrom, Target, Threads, option, set_up
from jakiro.training.corpus import Row, read_corpus, with_starts
from jakiro.training.curves import write_curves
from jakiro.training.divergences import DIVERGENCES
from jakiro.training.features import FeatureCache, write_features
from jakiro.training.kept_features import KeptFeatures
from jakiro.training.losses import LossWeights
from jakiro.training.schedule import TrainingOptions
from jakiro.training.split import (
    add_minutes,
    in_order_of_content,
    refuse_rows_that_were_learned,
    write_manifest,
)
from jakiro.training.start import (
    adopt_stream,
    check_output_function,
    continue_weights,
    equal_width,
    frequent_token_ids,
    head_config,
    start_weights,
)
from jakiro.training.start_parallel import start_parallel
from jakiro.training.trainer import Trainer, TrainingError
from jakiro.training.validation import NUM_STEPS, agreement, held_out, report
from jakiro.zoo import table as zoo
from jakiro.zoo.loading import choose_device, gpu_computes_bfloat16, read_target

# The named choices of `--loss` and `--optimizer`; "official" is the recipe that the paper's code published.
LOSSES = {"ours": LossWeights(), "official": LossWeights(token=0.1, feature=1.0, contrastive=0.5)}
OFFICIAL_OPTIMIZER = {"optimizer": "adamw", "learning_rate": 9e-5, "warmup_steps": 2000, "clip_value": 0.5}
LONGEST_WAIT = timedelta(days=2)
# Held-out texts that every checkpoint is judged on
NUM_CHECKED = 16
log = logging.getLogger("jakiro")
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
    draft_vocab: Annotated[int | None, option("Draft only so many of the corpus' most frequent tokens.")] = None,
    feature_layers: Annotated[
        str | None, option("Layers read besides the last, as in 10,20; each one adds the same amount of features.")
    ] = None,
    loss: Annotated[str, option("ours or official: sets those of the next three weights that are not given.")] = "ours",
    token_weight: Annotated[float | None, option("Weight of the cross-entropy.")] = None,
    feature_weight: Annotated[float | None, option("Weight of the feature regression.")] = None,
    contrastive_weight: Annotated[float | None, option("Weight of the contrastive branch.")] = None,
    balance: Annotated[float, option("Weight of the term that evens out the router's mean weights.")] = 0.0,
    diversity: Annotated[float, option("Weight of the term that makes the experts' guesses differ.")] = 0.0,
    divergence: Annotated[
        str, option("For an early exit: forward-kl, total-variation, or labels (the text's own next tokens).")
    ] = "forward-kl",
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
    device: Device = None,
    threads: Threads = None,
    methods_from: MethodsFrom = None,
) -> None:
    """Train a draft head for a target: features, training, calibration, report."""
    set_up(threads)
    known = METHODS.with_further(methods_of(methods_from or ()))
    options = TrainingOptions(
        seed=seed, batch_tokens=batch_tokens, accumulate=accumulate, precision=precision, feature_noise=noise,
        unroll=unroll, unroll_from=unroll_from, frequent_rows=frequent_rows, sampled_rows=sampled_rows,
        num_validation=validation_rows, time_budget=time_budget, time_budget_clock=time_budget_clock,
        max_steps=max_steps, checkpoint_minutes=checkpoint_minutes, average_from=average_from,
        weights=_weights(loss, token_weight, feature_weight, contrastive_weight, balance, diversity, divergence),
        **_optimizer(optimizer, learning_rate, warmup_steps),
    )  # fmt: skip
    rows = in_order_of_content(read_corpus(data), max_tokens)
    if len(rows) <= validation_rows:
        raise ValueError(
            f"The corpus has {len(rows)} rows and {validation_rows} are held out; write more or hold out fewer."
        )
    _refuse_short_rows(rows[:validation_rows])
    trained = None
    if init:
        folder = zoo.resolve(target, init).head_folder()
        refuse_rows_that_were_learned(folder, rows, validation_rows)
        trained = load_head(folder, networks=known.networks)
    chosen = choose_device(device)
    # The others wait while the main process extracts features; NCCL alone gives up after ten minutes
    process = PartialState(cpu=chosen.type == "cpu", timeout=LONGEST_WAIT)
    if device is not None and process.device.type != chosen.type:
        raise ValueError(f"Device {device} was asked for, but accelerate is set to {process.device.type}; change one.")
    device = process.device
    model, tokenizer, sha256 = read_target(target, device, target_dtype(device))
    check_output_function(model)
    rows, target = with_starts(rows, tokenizer), target or zoo.DEFAULT_TARGET
    target_config = model.config.get_text_config()
    shape = {"fusion": fusion, "num_experts": experts} | _shape_of(method, known)
    layers = _feature_layers(feature_layers, trained, target_config.num_hidden_layers)
    check_feature_layers(shape.get("exit_layers", ()), target_config.num_hidden_layers)
    kept_ids = None
    if trained is not None:
        expert_width = expert_width or equal_width(trained.config, shape["fusion"], shape["num_experts"])
        if draft_vocab is None and trained.config.draft_vocab_size:
            kept_ids, draft_vocab = trained.draft_token_ids, trained.config.draft_vocab_size
    config = head_config(
        target_config, expert_width or target_config.hidden_size, draft_vocab, **shape,
        feature_layers=layers, target_name=target, target_sha256=sha256 or "",
    )  # fmt: skip
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    embedding, output_weight = (each.weight.detach().float() for each in tables)
    features = features or work / "features"
    if process.is_main_process:
        write_manifest(out, rows, validation_rows, target)
    with process.main_process_first():
        extract(model, rows, features, config.read_layers, KeptFeatures(data, sha256 or target), precision)
    # Only its embedding and output rows are needed from here on
    del model
    cache = FeatureCache(features, config.read_layers)
    head = make_head(config, known.networks)
    if config.draft_vocab_size:
        if kept_ids is None:
            kept_ids = frequent_token_ids(
                cache.learned_ids(validation_rows), config.vocab_size, config.draft_vocab_size
            )
        head.draft_token_ids.copy_(kept_ids)
    head.to(device).bind(embedding, output_weight)
    earlier = 0.0
    if trained is not None and _shape(trained.config) == _shape(config):
        continue_weights(head, trained)
        earlier = zoo.trained_minutes(zoo.resolve(target, init).head_folder()) or 0.0
    elif head.levels is not None:
        start_parallel(head, trained, cache, seed, start, first=validation_rows)
    elif trained is None:
        start_weights(head, cache, seed, start, first=validation_rows)
    else:
        adopt_stream(head, trained, cache, seed, first=validation_rows)
    checked = held_out(cache, list(range(min(validation_rows, NUM_CHECKED))), output_weight)
    try:
        trainer = Trainer(head, cache, options, out, work / "state", logdir, lambda head: agreement(head, checked))
        if resume:
            trainer.resume()
        trainer.run()
    except TrainingError as error:
        raise ValueError(str(error)) from error
    if trainer.accelerator.is_main_process:
        found = finish(head, cache, rows[:validation_rows], output_weight, out, seed, final_report)
        recipe = _recipe(trainer, {"method": method or "not named", "start from": init or "least squares"}, rows)
        sections = {"Recipe": recipe} | ({"Numbers on held-out rows": found} if found else {})
        write_training_card(head, out, sections)
        add_minutes(out, earlier + trainer.elapsed / 60)
        if logdir:
            draw_curves(logdir)


def _shape(config: DraftConfig) -> tuple:
    """Equal for heads whose weights are of one kind."""
    return config.network, config.num_experts, config.fusion


def target_dtype(device: torch.device) -> torch.dtype:
    """What the target computes features in: on a GPU what it will answer in, which takes half the memory and less time.

    Its distribution over the tokens is float32 everywhere.
    """
    return torch.bfloat16 if device.type == "cuda" and gpu_computes_bfloat16(device) else torch.float32


def _refuse_short_rows(held_out: Sequence[Row]) -> None:
    """Raises ValueError where no held-out text is long enough to be judged on at every depth."""
    checked, steps = held_out[:NUM_CHECKED], max(MAX_DEPTH, NUM_STEPS)
    if not any(len(row.ids) > max(row.loss_start, steps + 2) for row in checked):
        raise ValueError(
            f"No more than {steps + 2} tokens, or none to learn from, are in each of the first {len(checked)} held-out "
            "texts, on which a head is judged; hold out more rows, or write longer texts."
        )


def draw_curves(logdir: Path) -> None:
    try:
        log.info("Curves in %s.", write_curves(logdir))
    except ModuleNotFoundError:
        log.info(MISSING)


def _shape_of(method: str | None, known: Methods) -> dict:
    """The fields of a head's config that its method sets.

    Raises:
        ValueError: an unknown method, or one that has no head of its own.
    """
    if method is None:
        return {}
    shape = known.named(method).trains
    if shape is None:
        names = ", ".join(name for name, each in known.items() if each.trains is not None)
        raise ValueError(f"No heads are trained for {method}; choose one of {names}.")
    return shape


def _feature_layers(given: str | None, trained: DraftHead | None, num_layers: int) -> tuple[int, ...]:
    """The layers that were asked for, else those of the head that is continued."""
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
    loss: str, token: float | None, feature: float | None, contrastive: float | None, balance: float, diversity: float,
    divergence: str = "forward-kl",
) -> LossWeights:  # fmt: skip
    if loss not in LOSSES:
        raise ValueError(f"Loss must be one of {', '.join(LOSSES)}; you gave {loss!r}.")
    if divergence not in DIVERGENCES:
        raise ValueError(f"Divergence must be one of {', '.join(DIVERGENCES)}; you gave {divergence!r}.")
    given = _given(token=token, feature=feature, contrastive=contrastive)
    return replace(LOSSES[loss], balance=balance, diversity=diversity, divergence=divergence, **given)


def _optimizer(name: str, learning_rate: float | None, warmup_steps: int | None) -> dict:
    preset = OFFICIAL_OPTIMIZER if name == "official" else {"optimizer": name}
    return preset | _given(learning_rate=learning_rate, warmup_steps=warmup_steps)


def _given(**values) -> dict:
    return {name: value for name, value in values.items() if value is not None}


def extract(
    model, rows: Sequence[Row], folder: Path, feature_layers: Sequence[int], kept: KeptFeatures,
    precision: str = "float32",
) -> None:  # fmt: skip
    """Fills a cache with features, those kept with the corpus and computed ones; continues where it stopped.

    With precision "bfloat16" a CPU that multiplies it in hardware does so: for the default target the features then
    differ by 0.7 % of their size, less than the noise that training adds to them.
    """
    sequences = [(row.ids, row.loss_start) for row in rows]
    total = sum(len(ids) for ids, _ in sequences)
    hidden_size = model.config.get_text_config().hidden_size
    size = total * (1 + len(feature_layers)) * hidden_size * 2 / 1e9
    log.info("Features of %d sequences, %d tokens, %.1f GB in %s.", len(sequences), total, size, folder)

    is_half = precision == "bfloat16" and packs_bfloat16(model.device, torch.bfloat16)

    @torch.inference_mode()
    def run(ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=is_half):
            return features_of(model.get_decoder(), feature_layers, input_ids=ids.to(model.device), use_cache=False)

    # Kept features are those of the last layer alone.
    known = (lambda ids: None) if feature_layers else kept.of
    for done in write_features(folder, sequences, hidden_size, run, feature_layers, known, target=kept.target):
        log.info("Features of %d of %d sequences.", done, len(sequences))


def finish(
    head: DraftHead, cache: FeatureCache, rows: Sequence[Row], output_weight: torch.Tensor, out: Path, seed: int,
    final_report: bool = True,
) -> dict[str, str]:  # fmt: skip
    """Fits the calibration on the held-out rows, the first of the cache, saves the head with it and logs a report.

    Returns:
        The report's numbers, none without one.
    """
    head.eval()
    data = held_out(cache, range(len(rows)), output_weight)
    head.config = replace(head.config, calibration=calibrate(head, data, seed))
    save_head(head, out)
    found = report(head, cache, rows, data) if final_report else {}
    for name, value in found.items():
        log.info("%s %.3f", name, value)
    return {name: f"{value:.3f}" for name, value in found.items()}


def _recipe(trainer: Trainer, given: dict, rows: Sequence[Row]) -> dict[str, object]:
    """How a head was trained, for its card."""
    options, learned = trainer.options, rows[trainer.options.num_validation :]
    of_what = " of the processor" if options.time_budget_clock == "processor" else ""
    return given | {
        "minutes, steps": f"{trainer.elapsed / 60:.1f}{of_what}, {trainer.step:,}",
        "text": f"{len(learned):,} texts, {sum(len(row.ids) for row in learned):,} tokens (manifest.json)",
        "optimizer": f"{options.optimizer}, peak rate {options.learning_rate:g}",
        "batches": f"{options.accumulate} × {options.batch_tokens:,} tokens",
        "precision": options.precision,
        "loss": f"{options.weights.divergence} × {options.weights.token:g} + feature × {options.weights.feature:g}",
        "noise": options.feature_noise,
        "unrolled steps": f"{options.unroll}, after {options.unroll_from:.0%}",
        "average": "none" if options.average_from is None else f"of the weights after {options.average_from:.0%}",
        "seed": options.seed,
    }
