"""Training a head for a target: `train(config)` reads features, learns, calibrates, and returns the head.

`TrainConfig` is all of it as plain data, JSON both ways; the command `train` only fills it.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
from accelerate import PartialState

from jakiro.config import CORPORA, DEVICE, METHODS_FROM, TARGET, setting
from jakiro.heads.base import DraftHead
from jakiro.heads.card import write_training_card
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.config import NETWORKS, DraftConfig
from jakiro.heads.networks import make_head
from jakiro.methods import METHODS, Methods
from jakiro.methods import methods_from as methods_of
from jakiro.plots import MISSING
from jakiro.training.calibrate import MAX_DEPTH, fit_calibration
from jakiro.training.corpus import Row, read_corpus
from jakiro.training.curves import write_curves
from jakiro.training.extract import extract, target_dtype
from jakiro.training.features import FeatureCache
from jakiro.training.kept_features import KeptFeatures
from jakiro.training.losses import LossWeights, Objective
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
from jakiro.training.trainer import Trainer
from jakiro.training.validation import NUM_STEPS, agreement, held_out, report
from jakiro.zoo import table as zoo
from jakiro.zoo.loading import choose_device, read_target

LONGEST_WAIT = timedelta(days=2)
# Held-out texts that every checkpoint is judged on
NUM_CHECKED = 16
log = logging.getLogger("jakiro")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """All that a training is, as plain data.

    Attributes:
        options: how the head learns; its seed also draws the first weights, its held-out rows are the corpus' first.
        fusion, experts, expert_width, draft_vocab: the head's shape, see `DraftConfig`.
    """

    corpora: tuple[str, ...] = setting(CORPORA, argument=True)
    out: str = setting("Folder for the head.")
    work: str = setting("Folder for features and the training state; large, kept for --resume.")
    options: TrainingOptions
    target: str | None = setting(TARGET, None)
    init: str | None = setting(
        "A head to start from, with a fresh schedule; its width and draft vocabulary are the default. "
        "From a head of another shape everything before the experts is taken, as far as both have it.",
        None,
    )
    method: str | None = setting(
        "The drafting method that it is a head for, see `jakiro methods`; sets shape and experts.", None
    )
    methods_from: tuple[str, ...] = setting(METHODS_FROM, (), repeated=True)
    fusion: str = setting("summed (with the contrastive branch) or decoupled.", "summed")
    experts: int = setting("2, or 1 for a dense head without routing.", 2)
    expert_width: int | None = setting(
        "Inner width of an expert; default: as many parameters as --init has, else the hidden size.", None
    )
    draft_vocab: int | None = setting("Draft only this many of the corpus's most frequent tokens.", None)
    start: str = setting("Initial weights: least-squares or identity.", "least-squares")
    max_tokens: int | None = setting("Use at most this many tokens of the corpus.", None)
    features: str | None = setting("Folder of features, if several runs share them; else in --work.", None)
    final_report: bool = setting("End with numbers on held-out rows.", True, "--report/--no-report")
    logdir: str | None = setting("Folder for tensorboard and training.html.", None)
    device: str | None = setting(DEVICE, None)
    resume: bool = setting("Continue from the last checkpoint in --work.", False, "--resume")

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "TrainConfig":
        """Raises ValueError where the text is no such config."""
        try:
            values = json.loads(text)
            options = dict(values["options"])
            options["weights"] = LossWeights(**options.get("weights", {}))
            for name in ("corpora", "methods_from"):
                values[name] = tuple(values.get(name, ()))
            return cls(**values | {"options": TrainingOptions(**options)})
        except (KeyError, TypeError) as error:
            raise ValueError(f"This is no training's config ({error}); expected the fields of TrainConfig.") from error


def train(config: TrainConfig) -> DraftHead:
    """Features, training, calibration and report; the head is saved with its card, too.

    Raises:
        ValueError, OSError: one sentence.
    """
    options, out, work = config.options, Path(config.out), Path(config.work)
    data, target, init = [Path(path) for path in config.corpora], config.target, config.init
    validation_rows, seed = options.num_validation, options.seed
    known = METHODS.with_further(methods_of(config.methods_from))
    rows = in_order_of_content(read_corpus(data), config.max_tokens)
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
    chosen = choose_device(config.device)
    # The others wait while the main process extracts features; NCCL alone gives up after ten minutes
    process = PartialState(cpu=chosen.type == "cpu", timeout=LONGEST_WAIT)
    if config.device is not None and process.device.type != chosen.type:
        raise ValueError(
            f"Device {config.device} was asked for, but accelerate is set to {process.device.type}; change one."
        )
    device = process.device
    model, _, sha256 = read_target(target, device, target_dtype(device))
    check_output_function(model)
    target = target or zoo.DEFAULT_TARGET
    target_config = model.config.get_text_config()
    shape = {"fusion": config.fusion, "num_experts": config.experts} | _shape_of(config.method, known)
    kept_ids, expert_width, draft_vocab = None, config.expert_width, config.draft_vocab
    if trained is not None:
        expert_width = expert_width or equal_width(trained.config, shape["fusion"], shape["num_experts"])
        if draft_vocab is None and trained.config.draft_vocab_size:
            kept_ids, draft_vocab = trained.draft_token_ids, trained.config.draft_vocab_size
    shaped = head_config(
        target_config, expert_width or target_config.hidden_size, draft_vocab, **shape,
        target_name=target, target_sha256=sha256 or "",
    )  # fmt: skip
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    embedding, output_weight = (each.weight.detach().float() for each in tables)
    features = Path(config.features) if config.features else work / "features"
    if process.is_main_process:
        write_manifest(out, rows, validation_rows, target)
    with process.main_process_first():
        extract(model, rows, features, (), KeptFeatures(data, sha256 or target), options.precision)
    # Only its embedding and output rows are needed from here on
    del model
    cache = FeatureCache(features)
    head = make_head(shaped, known.networks)
    if shaped.draft_vocab_size:
        if kept_ids is None:
            kept_ids = frequent_token_ids(
                cache.learned_ids(validation_rows), shaped.vocab_size, shaped.draft_vocab_size
            )
        head.draft_token_ids.copy_(kept_ids)
    head.to(device).bind(embedding, output_weight)
    earlier = 0.0
    if trained is not None and _shape(trained.config) == _shape(shaped):
        continue_weights(head, trained)
        earlier = zoo.trained_minutes(zoo.resolve(target, init).head_folder()) or 0.0
    elif head.levels is not None:
        start_parallel(head, trained, cache, seed, config.start, first=validation_rows)
    elif trained is None:
        start_weights(head, cache, seed, config.start, first=validation_rows)
    else:
        adopt_stream(head, trained, cache, seed, first=validation_rows)
    logdir = config.logdir and Path(config.logdir)
    checked = held_out(cache, list(range(min(validation_rows, NUM_CHECKED))), output_weight)
    trainer = Trainer(head, cache, options, out, work / "state", logdir, partial(agreement, data=checked))
    if config.resume:
        trainer.resume()
    trainer.run()
    if trainer.accelerator.is_main_process:
        found = finish(trainer.objective, cache, rows[:validation_rows], output_weight, out, seed, config.final_report)
        recipe = _recipe(trainer, {"method": config.method or "not named", "start from": init or "least squares"}, rows)
        sections = {"Recipe": recipe} | ({"Numbers on held-out rows": found} if found else {})
        write_training_card(head, out, sections)
        add_minutes(out, earlier + trainer.elapsed / 60)
        if logdir:
            draw_curves(logdir)
    return head


def _shape(config: DraftConfig) -> tuple:
    """Equal for heads whose weights are of one kind."""
    return config.network, config.num_experts, config.fusion


def _refuse_short_rows(held_out: Sequence[Row]) -> None:
    """Raises ValueError where no held-out text is long enough to be judged on at every depth."""
    checked, steps = held_out[:NUM_CHECKED], max(MAX_DEPTH, NUM_STEPS)
    if not any(len(row.ids) > max(row.l0, steps + 2) for row in checked):
        raise ValueError(
            f"The first {len(checked)} held-out texts are too short to evaluate a head: each has at most {steps + 2} "
            "tokens, or none to learn from; hold out more rows, or write longer texts."
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
    if shape.get("network", NETWORKS[0]) not in NETWORKS:
        raise ValueError(f"{method} has a network of its own, {shape['network']}, which its own module has to train.")
    return shape


def finish(
    objective: Objective, cache: FeatureCache, rows: Sequence[Row], output_weight: torch.Tensor, out: Path, seed: int,
    final_report: bool = True,
) -> dict[str, str]:  # fmt: skip
    """Fits the calibration on the held-out rows, the first of the cache, saves the head with it and logs a report.

    Returns:
        The report's numbers, none without one.
    """
    head = objective.head.eval()
    data = held_out(cache, range(len(rows)), output_weight)
    head.config = replace(head.config, calibration=fit_calibration(objective, data, seed))
    save_head(head, out)
    found = report(objective, cache, rows, data) if final_report else {}
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
        "loss": f"cross-entropy × {options.weights.token:g} + feature × {options.weights.feature:g}",
        "noise": options.feature_noise,
        "unrolled steps": f"{options.unroll}, after {options.unroll_from:.0%}",
        "average": "none" if options.average_from is None else f"of the weights after {options.average_from:.0%}",
        "seed": options.seed,
    }
