"""Training of a head: `train(config)` extracts features, learns, calibrates, and returns the head.

`TrainConfig` has all settings as plain data; the command `train` only fills it in. `accelerate launch` starts several
processes, which share the extraction and each step's batches.
"""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from dataclasses import fields as fields_of
from functools import partial
from pathlib import Path

from accelerate import PartialState
from torch import Tensor

from jakiro.config import About, require, setting
from jakiro.drafters.registry import DEFAULT, METHODS, Methods
from jakiro.drafters.registry import methods_from as methods_of
from jakiro.heads.base import DraftHead
from jakiro.heads.card import write_training_card
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.kind import HeadKind
from jakiro.heads.kinds import make_head
from jakiro.loading import registry
from jakiro.loading.loader import read_target
from jakiro.loading.weights import load_config
from jakiro.training.calibrate import MAX_DEPTH, fit_calibration
from jakiro.training.corpus import Row, read_corpus, read_manifest
from jakiro.training.extract import extract, target_dtype
from jakiro.training.features import FeatureCache
from jakiro.training.schedule import TrainingOptions
from jakiro.training.split import (
    add_minutes,
    in_order_of_content,
    refuse_rows_that_were_learned,
    write_manifest,
)
from jakiro.training.start import (
    check_output_function,
    continue_weights,
    frequent_token_ids,
    head_config,
)
from jakiro.training.trainer import Trainer, TrainingFolders, join_processes
from jakiro.training.validation import NUM_STEPS, agreement, held_out, report

# Held-out texts that evaluate every checkpoint
NUM_CHECKED = 16
# Texts to which the first weights are fitted
START_TEXTS = 110
# Of Jakiro's heads; as the shipped ones, see docs/training.md
DEFAULT_FUSION = "decoupled"
log = logging.getLogger("jakiro")


@dataclass(frozen=True, slots=True)
class TrainConfig:
    """All settings of a training, as plain data.

    Attributes:
        options: how the head is trained; its seed also initialises the head.
        fusion: shape of the head, as `expert_width` and `draft_vocab`; see the config of its kind.
    """

    corpora: tuple[str, ...] = setting(About.CORPORA, argument=True)
    out: str = setting("Folder for the head.")
    work: str = setting("Folder for features and the training state; large, kept for --resume.")
    options: TrainingOptions
    target: str | None = setting(About.TARGET, None)
    init: str | None = setting(
        "A head of the same shape to start from, with a fresh schedule; width, fusion and vocabulary default to its.",
        None,
    )
    method: str | None = setting("The drafting method to train a head for, see `methods`; jakiro if not given.", None)
    methods_from: tuple[str, ...] = setting(About.METHODS_FROM, (), repeated=True)
    fusion: str | None = setting(
        "For jakiro: decoupled (default, as the shipped heads) or summed (with the contrastive branch).", None
    )
    expert_width: int | None = setting("Inner width of an expert; default: that of --init, else the hidden size.", None)
    draft_vocab: int | None = setting("Draft only this many of the corpus's most frequent tokens.", None)
    max_tokens: int | None = setting("Use at most this many tokens of the corpus.", None)
    features: str | None = setting("Folder of features, if several runs share them; if not given, in --work.", None)
    final_report: bool = setting("End with numbers on held-out rows.", True, "--report/--no-report")
    logdir: str | None = setting("Folder for tensorboard.", None)
    device: str | None = setting(About.DEVICE, None)
    resume: bool = setting("Continue from the last checkpoint in --work.", False, "--resume")


def train(config: TrainConfig) -> DraftHead:
    """Extract features, train, calibrate and report; the head is also saved, with its model card.

    Raises:
        ValueError, OSError: one sentence.
        TrainingStopped: see `Trainer.run`.
    """
    process = join_processes(config.device)
    plan = make_plan(config)
    material = read_features(plan, process)
    head = initialise(plan, material)
    trainer = learn(plan, material, head)
    if process.is_main_process:
        finish(plan, material, trainer)
    return head


@dataclass(frozen=True, slots=True)
class Plan:
    """The head to train, and the texts.

    Attributes:
        rows: texts of the corpus; the first ones are held out.
        methods: drafting methods with the kinds of their heads.
        head: not bound before `initialise`; with `init`, it has that head's weights.
        init: folder of the head to start from, or None.
    """

    config: TrainConfig
    rows: list[Row]
    methods: Methods
    head: DraftHead
    init: Path | None

    @property
    def held_out(self) -> list[Row]:
        """Texts that are not learned from."""
        return self.rows[: self.config.options.num_validation]


@dataclass(frozen=True, slots=True)
class Material:
    """Features of the target, and its matrices that a head shares.

    Attributes:
        cache: features of the corpus.
        embedding: (vocab_size, hidden) float32, on the device that trains.
        output_weight: (vocab_size, hidden) float32, on the device that trains.
        target_sha256: hash of the target's weights; empty if unknown.
    """

    cache: FeatureCache
    embedding: Tensor
    output_weight: Tensor
    target_sha256: str


def make_plan(config: TrainConfig) -> Plan:
    """Read the corpus and the head to start from, and check the settings before anything is computed."""
    methods, num_held_out = METHODS.with_further(methods_of(config.methods_from)), config.options.num_validation
    kind, fields = _head_shape(config, methods)
    text = load_config(config.target).get_text_config()
    rows = in_order_of_content(read_corpus(list(map(Path, config.corpora)), text.vocab_size), config.max_tokens)
    require(
        len(rows) > num_held_out,
        f"The corpus has {len(rows)} rows and {num_held_out} are held out; write more, or hold out fewer "
        "(--validation-rows).",
    )
    _check_held_out(rows[:num_held_out])
    fields |= {"target_name": config.target or registry.DEFAULT_TARGET}
    if not config.init:
        head = make_head(head_config(kind, text, config.expert_width, config.draft_vocab, **fields), methods.kinds)
        return Plan(config, rows, methods, head, None)
    folder = registry.resolve(config.target, config.init).head_folder()
    refuse_rows_that_were_learned(folder, rows, num_held_out)
    source = load_head(folder, kinds=methods.kinds)
    if "fusion" not in fields and source.config.kind == kind.name and hasattr(source.config, "fusion"):
        fields |= {"fusion": source.config.fusion}
    width = config.expert_width or getattr(source.config, "expert_intermediate_size", None)
    vocabulary = source.config.draft_vocab_size if config.draft_vocab is None else config.draft_vocab
    head = make_head(head_config(kind, text, width, vocabulary, **fields), methods.kinds)
    continue_weights(head, source)
    if config.draft_vocab is None and head.config.draft_vocab_size:
        head.draft_token_ids.copy_(source.draft_token_ids)
    return Plan(config, rows, methods, head, folder)


def read_features(plan: Plan, process: PartialState) -> Material:
    """Extract this process's share of the features, and write the manifest of the corpus into the head's folder."""
    config = plan.config
    model, _, sha256 = read_target(config.target, process.device, target_dtype(process.device))
    check_output_function(model)
    target = plan.head.config.target_name
    folder = Path(config.features) if config.features else Path(config.work) / "features"
    if process.is_main_process:
        write_manifest(Path(config.out), plan.rows, config.options.num_validation, target)
    layers = plan.head.config.layers_of(model.config.get_text_config().num_hidden_layers)
    part = process.process_index, process.num_processes
    extract(model, plan.rows, folder, layers, sha256 or target, config.options.precision, part)
    process.wait_for_everyone()
    tables = (model.get_input_embeddings(), model.get_output_embeddings())
    return Material(FeatureCache(folder), *(table.weight.detach().float() for table in tables), sha256 or "")


def initialise(plan: Plan, material: Material) -> DraftHead:
    """Return the head, bound to its target and with its first weights."""
    head, cache, options = plan.head, material.cache, plan.config.options
    head.config = replace(head.config, target_sha256=material.target_sha256)
    first, device, shape = options.num_validation, material.output_weight.device, head.config
    if plan.config.draft_vocab is not None and shape.draft_vocab_size:
        ids = frequent_token_ids(cache.learned_ids(first), shape.vocab_size, shape.draft_vocab_size)
        head.draft_token_ids.copy_(ids)
    head.to(device).bind(material.embedding, material.output_weight)
    if plan.init is None:
        plan.methods.kinds[shape.kind].start(head, cache.texts(first, START_TEXTS, device), options.seed)
    return head


def learn(plan: Plan, material: Material, head: DraftHead) -> Trainer:
    """Train the head to the end of its schedule."""
    config, checked = plan.config, range(len(plan.held_out[:NUM_CHECKED]))
    folders = TrainingFolders(Path(config.out), Path(config.work) / "state", config.logdir and Path(config.logdir))
    validate = partial(agreement, data=held_out(material.cache, checked, material.output_weight))
    trainer = Trainer(head, material.cache, config.options, folders, validate, kinds=plan.methods.kinds)
    if config.resume:
        trainer.resume()
    trainer.run()
    return trainer


def finish(plan: Plan, material: Material, trainer: Trainer) -> None:
    """Calibrate the head on the held-out texts and save it; log a report if the config requests one; write the card.

    The training time that is stored with the head includes that of the head from which training started.
    """
    config, out, rows = plan.config, Path(plan.config.out), plan.held_out
    log.info("Calibrating on %d held-out rows.", len(rows))
    data = held_out(material.cache, range(len(rows)), material.output_weight)
    head = trainer.head.eval()
    head.config = replace(head.config, calibration=fit_calibration(trainer.objective, data, config.options.seed))
    save_head(head, out)
    sections = {"Recipe": _recipe(trainer, config, plan.rows)}
    if config.final_report:
        log.info("Saved to %s; a report on the held-out rows follows, which --no-report leaves out.", out)
        numbers = report(trainer.objective, material.cache, rows, data, plan.methods)
        for name, value in numbers.items():
            log.info("%s %.3f", name, value)
        sections["Numbers on held-out rows"] = {name: f"{value:.3f}" for name, value in numbers.items()}
    write_training_card(head, out, sections)
    earlier = 0.0 if plan.init is None else read_manifest(plan.init).get("minutes", 0.0)
    add_minutes(out, earlier + trainer.elapsed / 60)


def _head_shape(config: TrainConfig, methods: Methods) -> tuple[HeadKind, dict]:
    """Return the kind of a method's head, and the fields of its config that the method sets.

    Raises:
        ValueError: the method is unknown, or has no head that can be trained.
    """
    method = DEFAULT if config.method is None else methods.named(config.method)
    names = ", ".join(name for name, candidate in methods.items() if candidate.is_trainable)
    if method.trains is None:
        raise ValueError(f"No heads are trained for {method.name}; choose one of {names}.")
    kind = methods.kinds[method.needs.head[0]]
    if kind.start is None:
        raise ValueError(
            f"Heads of the kind {kind.name} cannot be trained: the kind has no function start; choose one of the "
            f"methods {names}, or define start for the kind."
        )
    shape = dict(method.trains)
    if config.fusion is None and config.init is None and method is DEFAULT:
        shape = shape | {"fusion": DEFAULT_FUSION}
    if config.fusion is not None:
        settable = {field.name for field in fields_of(kind.config)} - set(shape)
        require("fusion" in settable, f"--fusion has no effect on heads for {method.name}; leave it out.")
        shape = shape | {"fusion": config.fusion}
    return kind, shape


def _check_held_out(held_out: Sequence[Row]) -> None:
    """Raise ValueError if no held-out text is long enough to evaluate every depth."""
    checked, steps = held_out[:NUM_CHECKED], max(MAX_DEPTH, NUM_STEPS)
    if not any(len(row.ids) > max(row.l0, steps + 2) for row in checked):
        raise ValueError(
            f"The first {len(checked)} held-out texts are too short to evaluate a head: each has at most {steps + 2} "
            "tokens, or none to learn from; hold out more rows, or write longer texts."
        )


def _recipe(trainer: Trainer, config: TrainConfig, rows: Sequence[Row]) -> dict[str, object]:
    """Return how a head was trained, for its model card: duration, text, and every option."""
    options, learned = trainer.options, rows[trainer.options.num_validation :]
    recipe = {"method": config.method or DEFAULT.name, "start from": config.init or "least squares"}
    recipe["minutes, steps"] = f"{trainer.elapsed / 60:.1f}, {trainer.step:,}"
    recipe["batches per step"] = trainer.step_batches
    recipe["text"] = f"{len(learned):,} texts, {sum(len(row.ids) for row in learned):,} tokens (manifest.json)"
    values = asdict(options) | {f"{name} weight": value for name, value in asdict(options.weights).items()}
    return recipe | {name.replace("_", " "): values[name] for name in values if name != "weights"}
