"""Names to a ready generator: resolves a pair, loads both models, checks that they belong together.

What can be refused is refused before the target's weights are read: from its config, the head, and the free memory.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from jakiro.drafting.base import Drafter, HeadDrafter
from jakiro.drafting.limited import LimitedDrafter
from jakiro.engine.budget import DeviceProfile
from jakiro.engine.profile import load_or_measure
from jakiro.generator import JakiroGenerator
from jakiro.graphs.pool import Lanes
from jakiro.heads.checkpoint import file_sha256, load_head, misfits, weights_file
from jakiro.heads.jakiro import JakiroHead, known_precision
from jakiro.system import cache_folder
from jakiro.target.families import refuse_what_cannot_work
from jakiro.target.model import NUMERICS, TargetModel
from jakiro.zoo import placement, weights
from jakiro.zoo import table as zoo

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True)
class ReadPair:
    """A pair whose weights are read and with which nothing has been computed yet: a process can hold it without a GPU.

    Attributes:
        names: what the zoo calls target and head.
        model, tokenizer, sha256: as `weights.load_target` gives them.
        head: the draft head, or None.
        numerics: "exact" or "fast".
        draft_precision: how the head's matrices are packed on a CPU; see `JakiroHead.pack`.
    """

    names: zoo.Pair
    model: nn.Module
    tokenizer: object
    sha256: str | None
    head: JakiroHead | None
    numerics: str
    draft_precision: str = "int8"


def load_generator(
    target: str | None,
    head: str | None,
    device: str | None,
    dtype: str | None,
    numerics: str | None,
    prepare: Callable[[ReadPair], ReadPair] | None = None,
    graphs: bool = True,
    progress: Callable[[int, int], None] | None = None,
    draft_precision: str | None = None,
) -> JakiroGenerator:
    """See `JakiroGenerator.from_pretrained`; `prepare` changes what was read before anything is computed with it."""
    read = read_pair(target, head, device, dtype, numerics, draft_precision)
    generator = start_pair(read if prepare is None else prepare(read), None, graphs, progress)
    model = generator.target
    rounds_alike = model.bit_identical or numerics == "fast" or model.device.type != "cpu"
    if dtype is None and model.dtype is not torch.float32 and not rounds_alike:
        # Some processors pick another bfloat16 kernel for each number of rows; packed float32 has one for all.
        del generator, model, read
        return load_generator(target, head, device, "float32", numerics, prepare, graphs, progress, draft_precision)
    return generator


def read_pair(
    target: str | None,
    head: str | None,
    device: str | None,
    dtype: str | None,
    numerics: str | None,
    draft_precision: str | None = None,
) -> ReadPair:
    """Resolves and reads a pair, the target onto its device; arguments and errors are `load_generator`'s."""
    numerics = numerics or "exact"
    if numerics not in NUMERICS:
        raise ValueError(f"Numerics must be one of {', '.join(NUMERICS)}; you gave {numerics!r}.")
    draft_precision = known_precision(draft_precision or "int8")
    everywhere = device == placement.AUTO
    chosen_device = choose_device(None if everywhere else device)
    bits = placement.BITS.get(dtype)
    chosen_dtype = choose_dtype(None if bits else dtype, chosen_device)
    pair = zoo.resolve(target, head)
    config = weights.load_config(pair.target_name)
    refuse_what_cannot_work(config)
    draft_head = None
    if pair.head_path is not None:
        # Rounded matrices are read in a quarter of float32's bytes; the rest of the head is small
        rounds = draft_precision == "int8" and chosen_device.type == "cpu"
        draft_head = load_head(pair.head_path, dtype=torch.float32 if rounds else chosen_dtype)
        refuse_another_targets_head(draft_head, config)
    place = placement.place(
        pair.target_name,
        config,
        None if everywhere else chosen_device,
        chosen_dtype,
        bits,
        cache_folder() / "offload",
    )
    model, tokenizer, sha256 = weights.load_target(pair.target_name, place.device, chosen_dtype, **place.options)
    return ReadPair(pair, model, tokenizer, sha256, draft_head, numerics, draft_precision)


def start_pair(
    read: ReadPair,
    device: torch.device | None = None,
    graphs: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> JakiroGenerator:
    """A generator from what was read; it takes the modules over.

    Args:
        device: moves the target there first; None leaves it where it is.
        graphs, progress: as in `JakiroGenerator.from_pretrained`.
    """
    pair, draft_head = read.names, read.head
    model = read.model if device is None else read.model.to(device)
    target_model, notices = _target_of(read, model)
    if draft_head is None:
        notices.append("No draft head fits this model, so only plain decoding is available.")
        lanes = lanes_for(target_model, None, graphs, progress, notices)
        return JakiroGenerator(target_model, None, None, notices, lanes=lanes)
    target_model = target_model.with_feature_layers(draft_head.config.feature_layers)
    draft_head = draft_head.to(target_model.device)
    draft_head.bind(target_model.embedding, target_model.output_weight).pack(read.draft_precision)
    warning = zoo.head_warning(pair.head_name, draft_head.config.target_sha256, pair.target_name, target_model.sha256)
    if warning:
        notices.append(warning)
    description = {
        "name": pair.head_name,
        "sha256": file_sha256(weights_file(pair.head_path)),
        "precision": draft_head.precision,
    }
    drafter, notice = limited(HeadDrafter(draft_head), draft_head.config.max_position_embeddings, target_model)
    if notice:
        notices.append(notice)
    lanes = lanes_for(target_model, drafter, graphs, progress, notices)

    def measure(target: TargetModel, lanes: Lanes | None = None) -> DeviceProfile:
        return load_or_measure(target, drafter, description, cache_folder() / "profiles", lanes)

    measure = None if target_model.chains_only else measure
    return JakiroGenerator(target_model, drafter, description, notices, measure, lanes)


def lanes_for(
    target: TargetModel,
    drafter: Drafter | None,
    graphs: bool,
    progress: Callable[[int, int], None] | None,
    notices: list[str],
) -> Lanes | None:
    """Lanes with their passes captured, on a GPU; `notices` get a sentence where that cannot be.

    Args:
        graphs: False runs the same passes eagerly.
        progress: see `Lanes.prepare`.
    """
    if target.device.type != "cuda":
        return None
    if target.lean is None or not target.lean.is_static:
        notices.append(f"CUDA graphs are for layers of Llama's shape; {target.config.model_type} runs without them.")
        return None
    lanes = Lanes(target, drafter, graphs)
    lanes.prepare(progress)
    if lanes.graphs.failure:
        notices.append(f"CUDA graphs could not be captured ({lanes.graphs.failure}); passes run one kernel at a time.")
    return lanes


def refuse_another_targets_head(head: JakiroHead, target_config) -> None:
    """Raises ValueError with the first thing in which a head is not made for this target."""
    for sentence in misfits(head.config, target_config):
        raise ValueError(sentence)


def limited(drafter: Drafter, head_positions: int, target: TargetModel) -> tuple[Drafter, str | None]:
    """The drafter within the limits of head and target, and the sentence to say where the head's is the shorter."""
    if head_positions >= target.max_positions and not target.chains_only:
        return drafter, None
    notice = None
    if head_positions < target.max_positions:
        notice = (
            f"The draft head was trained for {head_positions:,} positions, the target reads {target.max_positions:,}; "
            "behind the head's, decoding is plain."
        )
    return LimitedDrafter(drafter, head_positions, target.chains_only), notice


def _target_of(read: ReadPair, model: nn.Module) -> tuple[TargetModel, list[str]]:
    """The target model, and what is to be said about it."""
    target = TargetModel(model, read.tokenizer, read.names.target_name, read.sha256, read.numerics)
    notices = list(target.notices)
    spread = placement.where_layers_lie(getattr(model, "hf_device_map", None))
    if spread:
        notices.append(spread)
    if not getattr(read.tokenizer, "chat_template", None):
        notices.append("This model has no chat template; a plain dialogue form is used.")
    return target, notices


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
        raise ValueError(f"Unknown device {device!r}; use “cpu”, “cuda” or “auto”.") from error
    if chosen.type == "cuda" and not torch.cuda.is_available():
        raise ValueError("Device “cuda” was asked for, but no GPU is visible here; use “cpu”.")
    return chosen


def choose_dtype(dtype: str | None, device: torch.device) -> torch.dtype:
    """The asked dtype, or bfloat16 where the device computes it in hardware, else float32.

    Raises:
        ValueError: an unknown dtype.
    """
    if dtype is not None:
        if dtype not in DTYPES:
            known = ", ".join([*DTYPES, *placement.BITS])
            raise ValueError(f"Unknown dtype {dtype!r}; choose one of {known}.")
        return DTYPES[dtype]
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    return torch.bfloat16 if cpu_computes_bfloat16() else torch.float32


def cpu_computes_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 in hardware; with AVX-512 alone it would be emulated, slowly."""
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))
