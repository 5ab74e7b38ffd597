"""Loads a target with its draft heads: resolves names, reads weights, checks that they fit together, starts a backend.

Small files that can be invalid are read first: names, the target's config, the headers of its weights, its tokenizer,
the head and the free memory, and only then the target's weights.
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
from jakiro.loading.checksums import weights_sha256_in_background
from jakiro.loading.options import AUTO, LoadOptions
from jakiro.models.families import makers_settings, refuse_what_cannot_work, unapplied
from jakiro.models.stored import SHAPES, StoredModel
from jakiro.models.target import TargetModel
from jakiro.models.weights import ROUNDED
from jakiro.ops.kernels import start_build
from jakiro.ops.linear import native_works, packing_works, round_linears
from jakiro.system import within_memory
from jakiro.text import find_omitted_messages, read_arguments, set_template_arguments

# Capturing costs about four eager runs, and a replay saves most of one, so it pays from this number of steps on
PAYS_FROM = 6
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class LoadedModels:
    """A loaded pair that has run no pass yet; a process without a GPU can hold it.

    Attributes:
        names: names of target and head.
        model, tokenizer, sha256: results of `jakiro.loading.weights`.
        head: the draft head, or None.
        options: the given options with the draft precision.
        seconds: duration of loading by step.
        head_sha256: checksum of the head's file, computed here because the time of a borrowed GPU is limited.
        draft_model: a small model that drafts, or None.
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
    """The parts of a generator.

    Attributes:
        drafters: loaded methods by name.
        notices: sentences for the user in addition to the target's.
        backend: runs the target's passes.
        seconds: total duration of loading and starting ("load"), and by step.
        methods: the registered drafting methods.
    """

    resources: Resources
    drafters: dict[str, Drafter]
    notices: list[str]
    backend: Backend
    seconds: dict[str, float] = field(default_factory=dict)
    methods: Methods = METHODS


def load_parts(options: LoadOptions) -> GeneratorParts:
    """Load and start a pair; progress is reported to the listener of `jakiro.progress.reporting_to`.

    Raises:
        ValueError, FileNotFoundError: one sentence with the value, what is expected, and what to do. If memory runs
            out, all parts of the pair are freed.
    """
    return within_memory(lambda: _start(_read(options), None), _out_of_memory(options.target))


def read_pair(options: LoadOptions) -> LoadedModels:
    """Load a pair without starting it; raises the errors of `load_parts`."""
    return within_memory(functools.partial(_read, options), _out_of_memory(options.target))


def start_pair(read: LoadedModels, device: torch.device | None = None) -> GeneratorParts:
    """Return the parts of a generator of loaded models; raises the errors of `load_parts`.

    Args:
        device: copy the models to this device and leave the originals unchanged; None uses the originals.
    """
    return within_memory(functools.partial(_start, read, device), _out_of_memory(read.names.target_name))


def _out_of_memory(target: str | None) -> str:
    return (
        f"Memory ran out while {target or 'the model'} was loaded; choose a smaller model or dtype, or free memory on "
        "the device first."
    )


def _read(options: LoadOptions) -> LoadedModels:
    with progress.timed() as steps, progress.step(progress.READ):
        read = _read_pair(options)
    return replace(read, seconds=steps)


def _start(read: LoadedModels, device: torch.device | None) -> GeneratorParts:
    with progress.timed() as steps, progress.step(progress.CHECK):
        parts = _start_pair(read, device)
    seconds = {name: steps.get(name, 0.0) + read.seconds.get(name, 0.0) for name in read.seconds | steps}
    return replace(parts, seconds=seconds | {"load": sum(seconds.values())})


def _read_pair(options: LoadOptions) -> LoadedModels:
    options = replace(options, draft_precision=known_precision(options.draft_precision or "int8"))
    device, _ = device_and_dtype(options)
    if device.type == "cpu":
        start_build()
    has_only_model = options.draft_model is not None and options.head is None
    pair = registry.resolve(options.target, registry.NO_HEAD if has_only_model else options.head)
    config, tokenizer = read_description(pair)
    set_template_arguments(tokenizer, read_arguments(options.template_arguments))
    if "the question" in find_omitted_messages(tokenizer):
        raise ValueError("The model's chat template omits the user's message; choose another model.")
    draft_head = None if pair.head_path is None else _read_head(pair, options, config)
    draft_model = None
    if options.draft_model is not None:
        on_one_device = replace(options, device=str(device), max_memory=None, offload_folder=None)
        draft_model = _read_draft_model(on_one_device, pair.target_name, tokenizer)
    model, sha256 = _read_model(pair, options, config)
    head_hash = None if draft_head is None else head_sha256(pair.head_path)
    return LoadedModels(pair, model, tokenizer, sha256, draft_head, options, {}, head_hash, draft_model)


def read_description(pair: registry.Pair) -> tuple:
    """Return a target's config and tokenizer, after rejecting unsupported models and corrupted files."""
    config = weights.load_config(pair.target_name)
    refuse_what_cannot_work(config)
    weights.check_target(pair.target_name)
    return config, weights.load_tokenizer(pair.target_name)


def _read_head(pair: registry.Pair, options: LoadOptions, config) -> DraftHead:
    device, dtype = device_and_dtype(options)
    # Matrices that are rounded to 8 bits are read in float32; the other tensors of a head are small
    is_rounded = options.draft_precision == "int8" and device.type == "cpu"
    head = load_head(pair.head_path, dtype=torch.float32 if is_rounded else dtype, kinds=options.known_methods.kinds)
    try:
        refuse_another_targets_head(head, config)
    except ValueError as error:
        if options.target is not None or registry.named_in(pair.head_path) is not None:
            raise
        raise ValueError(f"{error} The head's config names no target: give the target, too.") from error
    return head


def _read_model(pair: registry.Pair, options: LoadOptions, config) -> tuple:
    """Return a model and its checksum, see `LoadedModels`."""
    name, hashing = pair.target_name, weights_sha256_in_background
    device, dtype = device_and_dtype(options)
    places = plan_places(pair, options, config, dtype)
    if places is not None:
        return weights.load_model(name, device, dtype, hashing=hashing, **places.load_options)
    # A GGUF target keeps the file's own bits on a CPU with compiled code for its layers
    keeps_bits = config.model_type in SHAPES and dtype == torch.float32 and options.dtype != "4bit"
    if keeps_bits and weights.is_gguf(pair) and packing_works(device, dtype) and native_works():
        return weights.load_stored(name, config, hashing)
    is_rounded = options.dtype == "8bit" and packing_works(device, dtype) and native_works()
    bits = None if is_rounded else placement.BITS.get(options.dtype)
    _, placed = placement.place(name, config, device, dtype, bits)
    model, sha256 = weights.load_model(name, device, dtype, hashing=hashing, **placed)
    if is_rounded:
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


def _read_draft_model(options: LoadOptions, target: str, tokenizer) -> LoadedModels:
    """Load a small model that drafts for a target.

    Raises:
        ValueError: it cannot be loaded, or its tokens differ from the target's.
    """
    pair = registry.resolve(options.draft_model, registry.NO_HEAD)
    config, draft_tokenizer = read_description(pair)
    refuse_other_tokens(tokenizer.get_vocab(), draft_tokenizer.get_vocab(), pair.target_name, target)
    model, sha256 = _read_model(pair, options, config)
    return LoadedModels(pair, model, draft_tokenizer, sha256, None, options)


def _start_pair(read: LoadedModels, device: torch.device | None) -> GeneratorParts:
    if device is not None:
        read = _copy_to(read, device)
    # cuDNN's attention spends tens of milliseconds on planning for each new number of keys
    torch.backends.cuda.enable_cudnn_sdp(False)
    options, methods = read.options, read.options.known_methods
    target, notices = _start_target(read)
    resources, head_notices = _add_heads(Resources(target), read)
    usual = [method for method in (PLAIN, methods.usual(resources)) if why_not(method, resources) is None]
    drafters = {method.name: method.load(resources) for method in usual}
    with progress.step(progress.CAPTURE):
        fewest_steps = 0 if options.capture_at_load else PAYS_FROM
        backend, backend_notices = select_backend(
            resources.target, list(drafters.values()), options.graphs, options.side_by_side, fewest_steps
        )
    resources = replace(resources, target=backend.target)
    return GeneratorParts(resources, drafters, notices + head_notices + backend_notices, backend, methods=methods)


def _copy_to(read: LoadedModels, device: torch.device) -> LoadedModels:
    """Return loaded models on a device; the originals are unchanged, also if memory runs out."""
    head, small = read.head, read.draft_model
    return replace(
        read,
        model=_copied(read.model, device),
        head=head and _copied(head, device),
        draft_model=small and replace(small, model=_copied(small.model, device)),
    )


def _copied(module: nn.Module, device: torch.device) -> nn.Module:
    tensors = {id(weight): nn.Parameter(weight.to(device), weight.requires_grad) for weight in module.parameters()}
    tensors |= {id(buffer): buffer.to(device) for buffer in module.buffers()}
    return copy.deepcopy(module, tensors)


def _start_target(read: LoadedModels) -> tuple[TargetModel, list[str]]:
    """Return the target of a pair, and notices about it."""
    is_stored = isinstance(read.model, StoredModel)
    device = torch.device("cpu") if is_stored else read.model.get_output_embeddings().weight.device
    numerics, numerics_notice = choose_numerics(read.options.numerics, device)
    target, notices = _make_target(read, numerics)
    return target, notices + ([numerics_notice] if numerics_notice else [])


def _add_heads(resources: Resources, read: LoadedModels) -> tuple[Resources, list[str]]:
    """Return the target with its draft head, its other heads and its draft model, and notices about them."""
    notices, target, pair, precision = [], resources.target, read.names, read.options.draft_precision
    if read.head is not None:
        target = target.with_feature_layers(read.head.config.layers_of(target.config.num_hidden_layers))
        head = read.head.to(target.device)
        info = _bind(head, pair.head_name, read.head_sha256, target, precision)
        notices += _length_notices(head, target)
        resources = Resources(
            target, head, info, further_heads(pair, target, precision, read.options.known_methods.kinds)
        )
    if read.draft_model is not None:
        small, _ = _make_target(read.draft_model, "fast")
        model_head = ModelHead(small, target.vocab_size)
        info = {"name": small.name, "sha256": small.sha256, "precision": model_head.precision}
        if resources.head is None:
            resources = replace(resources, head=model_head, head_info=info)
        else:
            further = {**resources.further, model_head.config.kind: lambda: (model_head, info)}
            resources = replace(resources, further=further)
        notices += _length_notices(model_head, target)
    if resources.head is None:
        notices.append("No draft head fits this model; plain decoding and methods without a head are available.")
    return resources, notices


def further_heads(
    pair: registry.Pair, target: TargetModel, precision: str, kinds: Kinds = KINDS
) -> dict[str, Callable[[], tuple[DraftHead, dict]]]:
    """Return, by kind, a function that loads a known head of the pair's target with the same features."""

    def load(name: str, path: Path) -> tuple[DraftHead, dict]:
        head = load_head(path, target.device, target.dtype, kinds)
        refuse_another_targets_head(head, target.config)
        return head, _bind(head, name, head_sha256(path), target, precision)

    return {
        config.kind: functools.cache(functools.partial(load, name, path))
        for name, (path, config) in reversed(registry.heads_of(pair.target_name).items())
        if config.feature_layers == target.feature_layers
    }


def _bind(head: DraftHead, name: str, sha256: str | None, target: TargetModel, precision: str) -> dict:
    """Bind a head to its target and pack it; return its info for traces."""
    head.bind(target.embedding, target.output_weight).pack(precision)
    return {"name": name, "sha256": sha256, "precision": head.precision}


def refuse_another_targets_head(head: DraftHead, target_config) -> None:
    """Raise ValueError with the first reason why a head does not fit a target."""
    for reason in misfits(head.config, target_config):
        raise ValueError(reason)


def _length_notices(head: DraftHead, target: TargetModel) -> list[str]:
    """Return a notice if a head was trained for fewer positions than its target supports."""
    num_positions = head.config.max_position_embeddings
    if num_positions >= target.max_positions:
        return []
    return [
        f"The draft head was trained for {num_positions:,} positions, the target supports {target.max_positions:,}; "
        "after the head's, decoding is plain."
    ]


def _make_target(read: LoadedModels, numerics: str) -> tuple[TargetModel, list[str]]:
    """Return a target model, and notices about it in addition to its own."""
    model, tokenizer, target_name = read.model, read.tokenizer, read.names.target_name
    settings, ignored_keys = weights.recommended_settings(read.names)
    # Invalid settings and default values are omitted
    recommended = makers_settings(SimpleNamespace(do_sample=True, **settings))
    is_stored = isinstance(model, StoredModel)
    try:
        target = TargetModel(model, tokenizer, target_name, read.sha256, numerics, recommended)
    except ValueError:
        # Corrupted weights are the cause of an invalid result, rather than the model or the dtype
        if not is_stored:
            weights.refuse_corrupted(target_name)
        raise
    notices = []
    if weights.is_gguf(read.names) and not is_stored and target.dtype == torch.float32:
        notices.append(
            "The file's weights are rounded to bfloat16: its own bits are used on a CPU in float32, by compiled code, "
            f"for {' and '.join(SHAPES)}."
        )
    if len(tokenizer) > target.vocab_size:
        notices.append(
            f"The tokenizer has {len(tokenizer):,} tokens, the model {target.vocab_size:,}: prompts with one of the "
            "other tokens are refused. Resize the model's embedding to its tokenizer."
        )
    if target.makers_settings:
        listed = ", ".join(f"{name} {value}" for name, value in target.makers_settings.items())
        notices.append(f"The model recommends {listed}; these settings are used only if you request them.")
    if ignored_keys:
        notices.append(f"The GGUF file recommends {', '.join(ignored_keys)}; Jakiro does not apply this.")
    ignored = unapplied(getattr(model, "generation_config", None))
    if ignored:
        notices.append(f"The model's generation_config.json sets {', '.join(ignored)}; none of this is applied.")
    if not getattr(tokenizer, "chat_template", None):
        notices.append("This model has no chat template; a plain dialogue form is used.")
    if omitted := find_omitted_messages(tokenizer):
        notices.append(f"The model's chat template omits {' and '.join(omitted)}: the model does not read them.")
    return target, notices


def device_and_dtype(options: LoadOptions) -> tuple[torch.device, torch.dtype]:
    """Return the device and the dtype of the computation, also for weights in 4 or 8 bits.

    Raises:
        ValueError: the device is not available, or the dtype is unknown.
    """
    device = choose_device(None if options.device == AUTO else options.device)
    return device, choose_dtype(None if options.dtype in placement.BITS else options.dtype, device)


def read_target(name: str | None, device: torch.device, dtype: torch.dtype):
    """Load a target without a head directly onto a device; return the values of `weights.load_target`.

    Raises:
        ValueError: the name is unknown, the target cannot be downloaded, or it does not fit on the device.
    """
    name = registry.resolve(name, registry.NO_HEAD).target_name
    _, placed = placement.place(name, weights.load_config(name), device, dtype)
    return weights.load_target(name, device, dtype, **placed)


_DEVICES = ("cpu", "cuda")


def choose_device(device: str | None) -> torch.device:
    """Return the requested device, or a GPU if there is one.

    Raises:
        ValueError: the device is not available.
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
        raise ValueError("Device “cuda” is not available: no GPU is visible here; use “cpu”.")
    return chosen


def choose_dtype(dtype: str | None, device: torch.device) -> torch.dtype:
    """Return the requested dtype, or the device's default: float32 on a CPU, bfloat16 on a GPU that supports it.

    On a CPU, float32 passes over 16-bit weights are the fastest even with bfloat16 units: 6.7 ms per token in compiled
    code and 12.5 with torch's kernels, 24.5 in bfloat16 (two cores of an AMD EPYC with AVX-512 and such units).

    Raises:
        ValueError: the dtype is unknown.
    """
    if dtype is not None:
        if dtype not in DTYPES:
            raise ValueError(f"Unknown dtype {dtype!r}; choose one of {', '.join([*DTYPES, *placement.BITS])}.")
        return DTYPES[dtype]
    if device.type == "cuda":
        return torch.bfloat16 if gpu_computes_bfloat16(device) else torch.float16
    return torch.float32


# Compute capabilities with float64 at half of float32's rate; all others have 1/32 or 1/64 of it
_FAST_FLOAT64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}


def choose_numerics(numerics: str | None, device: torch.device) -> tuple[str, str | None]:
    """Return the requested numerics or the device's default, and a notice if the default is not exact.

    Exact attention sums in float64.
    """
    if numerics is not None or device.type != "cuda" or torch.cuda.get_device_capability(device) in _FAST_FLOAT64:
        return numerics or "exact", None
    return "fast", (
        f"{torch.cuda.get_device_name(device)} computes float64 slowly, so numerics is fast; start with numerics exact "
        "for batch-invariant passes."
    )


def gpu_computes_bfloat16(device: torch.device) -> bool:
    """Return whether a GPU multiplies bfloat16 in hardware; older ones (T4, V100) emulate it."""
    with torch.cuda.device(device):
        return torch.cuda.is_bf16_supported(including_emulation=False)
