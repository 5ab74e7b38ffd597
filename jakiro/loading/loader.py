"""Names to the parts of a generator: resolves a pair, loads both models, checks that they belong together.

What is small and can fail comes first: names, the target's config, a look at its files, its tokenizer, the head, the
free memory, and only then the target's weights.
"""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import torch
from torch import nn

from jakiro import progress
from jakiro.backends.select import select_backend
from jakiro.config import require
from jakiro.core.backend import Backend
from jakiro.drafters.base import Drafter, Resources, why_not
from jakiro.drafters.registry import METHODS, PLAIN, Methods
from jakiro.heads.base import DraftHead, known_precision
from jakiro.heads.checkpoint import head_sha256, load_head, misfits
from jakiro.heads.kind import Kinds
from jakiro.heads.kinds import KINDS
from jakiro.heads.model_head import ModelHead, refuse_other_tokens
from jakiro.loading import placement, registry, spread, weights
from jakiro.loading.checksums import hashed_aside
from jakiro.loading.options import AUTO, LoadOptions
from jakiro.models.families import makers_settings, refuse_what_cannot_work, unapplied
from jakiro.models.stored import SHAPES, StoredModel
from jakiro.models.target import TargetModel
from jakiro.models.weights import ROUNDED
from jakiro.ops.kernels import start_build
from jakiro.ops.linear import native_works, packing_works, round_linears
from jakiro.system import within_memory
from jakiro.text import find_omitted_messages, read_arguments, set_template_arguments

# From so many steps on, capturing is taken to pay: it takes about four eager runs, and a replay saves most of one
PAYS_FROM = 6
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """A pair whose weights are read and with which nothing has been computed yet: a process can hold it without a GPU.

    Attributes:
        names: names of target and head in the registry.
        model, tokenizer, sha256: as `weights` reads them.
        head: the draft head, or None.
        draft_model: a small model that drafts, or None.
        options: as they were given, draft precision filled in.
        seconds: what reading took, by step.
        head_sha256: of the head's file, hashed here because a borrowed GPU's seconds are few.
    """

    names: registry.Pair
    model: nn.Module | StoredModel
    tokenizer: object
    sha256: str | Callable[[], str | None] | None
    head: DraftHead | None
    options: LoadOptions
    seconds: dict[str, float] = field(default_factory=dict)
    head_sha256: str | None = None
    draft_model: "LoadedModels | None" = None


@dataclass(frozen=True, slots=True)
class GeneratorParts:
    """What a generator is made of.

    Attributes:
        drafters: methods that are loaded already, by name.
        notices: sentences for the user beside the target's, such as a head trained for other weights.
        backend: runs the target's passes.
        seconds: what reading and starting took, as a whole ("load") and by step.
        methods: the drafting methods that there are.
    """

    resources: Resources
    drafters: dict[str, Drafter]
    notices: list[str]
    backend: Backend
    seconds: dict[str, float] = field(default_factory=dict)
    methods: Methods = METHODS


def load_parts(options: LoadOptions) -> GeneratorParts:
    """Reads and starts a pair; who listens (`jakiro.progress.reporting_to`) hears how far it is.

    Raises:
        ValueError, FileNotFoundError: one sentence that says what came, what was expected, what to do. Where memory
            ran out nothing of the pair stays in it.
    """

    return within_memory(lambda: _start(_read(options), None), _no_memory(options.target))


def read_pair(options: LoadOptions) -> LoadedModels:
    """Resolves and reads a pair, the target onto its device; errors are `load_parts`'."""
    return within_memory(functools.partial(_read, options), _no_memory(options.target))


def start_pair(read: LoadedModels, device: torch.device | None = None) -> GeneratorParts:
    """The parts of a generator from what was read; errors are `load_parts`'.

    Args:
        device: copies the modules there first, and leaves what was read as it is; None takes the modules over.
    """
    return within_memory(functools.partial(_start, read, device), _no_memory(read.names.target_name))


def _no_memory(target: str | None) -> str:
    return (
        f"Memory ran out while {target or 'the model'} was loaded; choose a smaller model or dtype, or free memory on "
        "the device first."
    )


def _read(options: LoadOptions) -> LoadedModels:
    with progress.timed() as steps, progress.step(progress.READ):
        read = _read_pair(options)
    return replace(read, seconds=steps)


def _read_pair(options: LoadOptions) -> LoadedModels:
    draft_precision, known = known_precision(options.draft_precision or "int8"), options.known_methods
    device, dtype = device_and_dtype(options)
    if device.type == "cpu":
        start_build()
    alone = options.draft_model is not None and options.head is None
    pair = registry.resolve(options.target, registry.NO_HEAD if alone else options.head)
    config, tokenizer = described(pair)
    _check_template(tokenizer, options.template_arguments)
    draft_head = None
    if pair.head_path is not None:
        # Rounded matrices are read in a quarter of float32's bytes; the rest of the head is small
        rounds = draft_precision == "int8" and device.type == "cpu"
        draft_head = load_head(pair.head_path, dtype=torch.float32 if rounds else dtype, kinds=known.kinds)
        try:
            refuse_another_targets_head(draft_head, config)
        except ValueError as error:
            if options.target is not None or registry.named_in(pair.head_path) is not None:
                raise
            raise ValueError(f"{error} The head's config names no target: give the target, too.") from error
    options, draft_model = replace(options, draft_precision=draft_precision), None
    if options.draft_model is not None:
        on_one_device = replace(options, device=None, max_memory=None, offload_folder=None)
        draft_model = _read_draft_model(on_one_device, pair.target_name, tokenizer, device, dtype)
    model, sha256 = _read_model(pair, options, config, device, dtype)
    hashed = None if draft_head is None else head_sha256(pair.head_path)
    return LoadedModels(pair, model, tokenizer, sha256, draft_head, options, {}, hashed, draft_model)


def described(pair: registry.Pair) -> tuple:
    """A model's config and tokenizer, after what cannot work and damaged files were refused."""
    config = weights.load_config(pair.target_name)
    refuse_what_cannot_work(config)
    weights.check_target(pair.target_name)
    return config, weights.load_tokenizer(pair.target_name)


def _read_model(pair: registry.Pair, options: LoadOptions, config, device: torch.device, dtype: torch.dtype) -> tuple:
    """A model and its hash, as `LoadedModels` has them."""
    places = plan_places(pair, options, config, dtype)
    if places is not None:
        model, sha256 = weights.load_model(pair.target_name, device, dtype, hashing=hashed_aside, **places.load_options)
    elif reads_stored(pair, options, config, device, dtype):
        model, sha256 = weights.load_stored(pair.target_name, config, hashed_aside)
    else:
        in_blocks = options.dtype == "8bit" and packing_works(device, dtype) and native_works()
        bits = None if in_blocks else placement.BITS.get(options.dtype)
        _, placed = placement.place(pair.target_name, config, device, dtype, bits)
        model, sha256 = weights.load_model(pair.target_name, device, dtype, hashing=hashed_aside, **placed)
        if in_blocks:
            round_linears(model)
            setattr(model, ROUNDED, True)
    return model, sha256


def plan_places(pair: registry.Pair, options: LoadOptions, config, dtype: torch.dtype) -> spread.Spread | None:
    """Return where --device auto puts a target's layers; None for a target on one device.

    Raises:
        ValueError: see `plan_spread`, or 4 or 8 bits were requested.
    """
    if options.device != AUTO:
        return None
    places = spread.plan_spread(pair.target_name, config, dtype, options.max_memory, options.offload_folder)
    require(
        places is None or options.dtype not in placement.BITS,
        f"--device auto cannot spread weights in {options.dtype}; choose bfloat16, or --device cuda.",
    )
    return places


def _read_draft_model(
    options: LoadOptions, target: str, tokenizer, device: torch.device, dtype: torch.dtype
) -> LoadedModels:
    """A small model that drafts for a target.

    Raises:
        ValueError: it cannot be read, or its tokens are not the target's.
    """
    pair = registry.resolve(options.draft_model, registry.NO_HEAD)
    config, own = described(pair)
    refuse_other_tokens(tokenizer.get_vocab(), own.get_vocab(), pair.target_name, target)
    model, sha256 = _read_model(pair, options, config, device, dtype)
    return LoadedModels(pair, model, own, sha256, None, options)


def reads_stored(pair: registry.Pair, options: LoadOptions, config, device: torch.device, dtype: torch.dtype) -> bool:
    """Whether a GGUF target is read in its own bits: on a CPU with compiled code that runs such layers."""
    fits = config.model_type in SHAPES and dtype == torch.float32 and options.dtype != "4bit"
    return weights.is_gguf(pair) and fits and packing_works(device, dtype) and native_works()


def _check_template(tokenizer, arguments: str | None) -> None:
    """Lets a tokenizer's chat template know the arguments, and refuses one that writes no question."""
    set_template_arguments(tokenizer, read_arguments(arguments))
    if "the question" in find_omitted_messages(tokenizer):
        raise ValueError(
            "The model's chat template does not write the question that it is given; choose another model."
        )


def _start(read: LoadedModels, device: torch.device | None) -> GeneratorParts:
    with progress.timed() as steps, progress.step(progress.CHECK):
        parts = _start_pair(read, device)
    seconds = {name: steps.get(name, 0.0) + read.seconds.get(name, 0.0) for name in read.seconds | steps}
    return replace(parts, seconds=seconds | {"load": sum(seconds.values())})


def _start_pair(read: LoadedModels, device: torch.device | None) -> GeneratorParts:
    if device is not None:
        small = read.draft_model
        read = replace(
            read,
            model=_copied(read.model, device),
            head=read.head and _copied(read.head, device),
            draft_model=small and replace(small, model=_copied(small.model, device)),
        )
    pair, model, draft_head = read.names, read.model, read.head
    # cuDNN's attention spends tens of milliseconds on planning for each new number of keys
    torch.backends.cuda.enable_cudnn_sdp(False)
    stored = isinstance(model, StoredModel)
    where = torch.device("cpu") if stored else model.get_output_embeddings().weight.device
    numerics, notice = choose_numerics(read.options.numerics, where)
    target_model, notices = _target_of(read, model, numerics)
    notices += [notice] if notice else []
    precision, known = read.options.draft_precision, read.options.known_methods
    resources = Resources(target_model)
    if draft_head is not None:
        layers = draft_head.config.layers_of(target_model.config.num_hidden_layers)
        target_model = target_model.with_feature_layers(layers)
        info = _bound(draft_head.to(target_model.device), pair.head_name, read.head_sha256, target_model, precision)
        notices += [each for each in (_shorter(draft_head, target_model),) if each]
        further = further_heads(pair, target_model, precision, known.kinds)
        resources = Resources(target_model, draft_head, info, further)
    if read.draft_model is not None:
        resources, notice = _with_draft_model(resources, read.draft_model)
        notices += [notice] if notice else []
    if resources.head is None:
        notices.append("No draft head fits this model; plain decoding and methods without a head are available.")
    usual = [method for method in (PLAIN, known.usual(resources)) if why_not(method, resources) is None]
    drafters = {method.name: method.load(resources) for method in usual}
    with progress.step(progress.CAPTURE):
        options = read.options
        fewest_steps = 0 if options.capture_at_load else PAYS_FROM
        backend, backend_notices = select_backend(
            target_model, list(drafters.values()), options.graphs, options.side_by_side, fewest_steps
        )
    notices += backend_notices
    resources = replace(resources, target=backend.target)
    return GeneratorParts(resources, drafters, notices, backend, methods=known)


def _copied(module: nn.Module, device: torch.device) -> nn.Module:
    """The same module on a device; where memory runs out half-way, the one that was given is still whole."""
    tensors = {id(each): nn.Parameter(each.to(device), each.requires_grad) for each in module.parameters()}
    tensors |= {id(each): each.to(device) for each in module.buffers()}
    return copy.deepcopy(module, tensors)


def _with_draft_model(resources: Resources, read: LoadedModels) -> tuple[Resources, str | None]:
    """The same with a small model as a draft head, beside another one where there is one; and a notice."""
    small, _ = _target_of(read, read.model, "fast")
    head = ModelHead(small, resources.target.vocab_size)
    info = {"name": small.name, "sha256": small.sha256, "precision": head.precision}
    if resources.head is None:
        resources = replace(resources, head=head, head_info=info)
    else:
        resources = replace(resources, further={**resources.further, head.config.kind: lambda: (head, info)})
    return resources, _shorter(head, resources.target)


def further_heads(
    pair: registry.Pair, target: TargetModel, precision: str, kinds: Kinds = KINDS
) -> dict[str, Callable[[], tuple[DraftHead, dict]]]:
    """By kind, a reader of each known head that was trained for the pair's target and reads the same features."""

    def reader(name: str, path: Path) -> Callable[[], tuple[DraftHead, dict]]:
        @functools.cache
        def read() -> tuple[DraftHead, dict]:
            head = load_head(path, target.device, target.dtype, kinds)
            refuse_another_targets_head(head, target.config)
            return head, _bound(head, name, head_sha256(path), target, precision)

        return read

    known = registry.heads_of(pair.target_name)
    return {
        config.kind: reader(name, path)
        for name, (path, config) in reversed(known.items())
        if config.feature_layers == target.feature_layers
    }


def _bound(head: DraftHead, name: str, sha256: str | None, target: TargetModel, precision: str) -> dict:
    """Binds a head to its target and packs it; returns its info for traces."""
    head.bind(target.embedding, target.output_weight).pack(precision)
    return {"name": name, "sha256": sha256, "precision": head.precision}


def refuse_another_targets_head(head: DraftHead, target_config) -> None:
    """Raises ValueError with the first thing in which a head is not made for this target."""
    for sentence in misfits(head.config, target_config):
        raise ValueError(sentence)


def _shorter(head: DraftHead, target: TargetModel) -> str | None:
    """A notice where a head was trained for fewer positions than its target reads; else None."""
    positions = head.config.max_position_embeddings
    if positions >= target.max_positions:
        return None
    return (
        f"The draft head was trained for {positions:,} positions, the target reads {target.max_positions:,}; "
        "after the head's, decoding is plain."
    )


def _target_of(read: LoadedModels, model: nn.Module, numerics: str) -> tuple[TargetModel, list[str]]:
    """The target model, and notices about it beside its own."""
    target_name = read.names.target_name
    settings, ignored_keys = weights.recommended_settings(read.names)
    # Invalid settings and those equal to the defaults are omitted
    makers = makers_settings(SimpleNamespace(do_sample=True, **settings))
    try:
        target = TargetModel(model, read.tokenizer, target_name, read.sha256, numerics, makers)
    except ValueError:
        # Damaged weights compute something, and then it is no matter of the model or the dtype
        if isinstance(model, StoredModel):
            raise
        weights.refuse_damage(target_name)
        raise
    notices = []
    if weights.is_gguf(read.names) and not isinstance(model, StoredModel) and target.dtype == torch.float32:
        notices.append(
            "The file's weights are rounded to bfloat16 here: its own bits are read on a CPU in float32, by compiled "
            f"code, for {' and '.join(SHAPES)}."
        )
    if len(read.tokenizer) > target.vocab_size:
        notices.append(
            f"The tokenizer has {len(read.tokenizer):,} tokens, the model knows {target.vocab_size:,}: prompts that "
            "hold one of the others are refused. Resize the model's embedding to its tokenizer."
        )
    if target.makers_settings:
        asked = ", ".join(f"{name} {value}" for name, value in target.makers_settings.items())
        notices.append(f"The model's makers ask for {asked}; what you set counts alone until you take their settings.")
    if ignored_keys:
        notices.append(f"The GGUF file recommends {', '.join(ignored_keys)}; Jakiro does not apply this.")
    ignored = unapplied(getattr(model, "generation_config", None))
    if ignored:
        notices.append(f"The model's generation_config.json asks for {', '.join(ignored)}; none of this is applied.")
    if not getattr(read.tokenizer, "chat_template", None):
        notices.append("This model has no chat template; a plain dialogue form is used.")
    if missing := find_omitted_messages(read.tokenizer):
        notices.append(f"The model's chat template leaves out {' and '.join(missing)}: the model does not read them.")
    return target, notices


def device_and_dtype(options: LoadOptions) -> tuple[torch.device, torch.dtype]:
    """Where and in what the model computes: with 4 or 8 bits the dtype around them.

    Raises:
        ValueError: no such device here, or an unknown dtype.
    """
    device = choose_device(None if options.device == AUTO else options.device)
    return device, choose_dtype(None if options.dtype in placement.BITS else options.dtype, device)


def read_target(name: str | None, device: torch.device, dtype: torch.dtype):
    """A target alone, its weights read straight onto one device: model, tokenizer, hash as `weights.load_target` gives.

    Raises:
        ValueError: unknown name, it can't be fetched, or it does not fit there.
    """
    name = registry.resolve(name, registry.NO_HEAD).target_name
    _, placed = placement.place(name, weights.load_config(name), device, dtype)
    return weights.load_target(name, device, dtype, **placed)


_DEVICES = ("cpu", "cuda")


def choose_device(device: str | None) -> torch.device:
    """The asked device, or a GPU where there is one.

    Raises:
        ValueError: no such device here.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError as error:
        raise ValueError(f"Unknown device {device!r}; use “cpu” or “cuda”.") from error
    if chosen.type not in _DEVICES:
        raise ValueError(
            f"Device “{device}” is not supported: exact numerics needs float64, and kernels are tested on CPUs "
            "and CUDA only; use “cpu” or “cuda”."
        )
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("Device “cuda” was asked for, but no GPU is visible here; use “cpu”.")
    return chosen


def choose_dtype(dtype: str | None, device: torch.device) -> torch.dtype:
    """The asked dtype, or float32 on a CPU; on a GPU bfloat16 where it computes that in hardware, else float16.

    On a CPU float32 passes over weights in 16 bits are the fastest even with bfloat16 units: 6.7 ms a token in compiled
    code and 12.5 by torch's kernels, in bfloat16 24.5 (two cores of an AMD EPYC with AVX-512 and such units).

    Raises:
        ValueError: an unknown dtype.
    """
    if dtype is not None:
        if dtype not in DTYPES:
            known = ", ".join([*DTYPES, *placement.BITS])
            raise ValueError(f"Unknown dtype {dtype!r}; choose one of {known}.")
        return DTYPES[dtype]
    if device.type == "cuda":
        return torch.bfloat16 if gpu_computes_bfloat16(device) else torch.float16
    return torch.float32


# Compute capabilities of GPUs whose float64 runs at half of float32's rate; all others have 1/32 or 1/64 of it
_FAST_FLOAT64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}


def choose_numerics(numerics: str | None, device: torch.device) -> tuple[str, str | None]:
    """The asked numerics, or what suits the device, and a notice where that is not exact.

    Exact attention sums in float64.
    """
    if numerics is not None or device.type != "cuda" or torch.cuda.get_device_capability(device) in _FAST_FLOAT64:
        return numerics or "exact", None
    return "fast", (
        f"{torch.cuda.get_device_name(device)} computes float64 slowly, so numerics is fast; start with numerics exact "
        "for passes that round alike."
    )


def gpu_computes_bfloat16(device: torch.device) -> bool:
    """Whether this GPU multiplies bfloat16 in hardware; older ones (T4, V100) emulate it."""
    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)
