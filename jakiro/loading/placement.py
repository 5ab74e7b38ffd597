"""Whether a target's weights have room: how much memory they need, what is free, 4 or 8 bits.

Everything is decided from the config, before a byte of the weights is read.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch

from jakiro.loading.incompatibilities import one_sentence
from jakiro.models.families import num_kv_heads

BITS = {"4bit": 4, "8bit": 8}
CACHE_TOKENS = 2048
# Of what is free, for weights and cache; the rest is for what a pass needs.
USABLE_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class MemoryNeeded:
    """Bytes a target needs.

    Attributes:
        weights: all parameters in the dtype they are loaded in.
        cache: keys and values of `CACHE_TOKENS` tokens.
        as_what: the dtype in words.
    """

    weights: int
    cache: int
    as_what: str

    @property
    def total(self) -> int:
        return self.weights + self.cache

    def __str__(self) -> str:
        return (
            f"{gigabytes(self.total)} in {self.as_what} ({gigabytes(self.weights)} of weights, "
            f"{gigabytes(self.cache)} of cache for {CACHE_TOKENS:,} tokens)"
        )


class NoRoom(ValueError):
    """A target needs more memory than is free.

    Attributes:
        fits_alone: whether it would fit if what this process holds on the device were let go.
    """

    def __init__(self, sentence: str, fits_alone: bool) -> None:
        super().__init__(sentence)
        self.fits_alone = fits_alone


def gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.1f} MB"


def bytes_per_weight(bits: int) -> float:
    """Of layers in 4 or 8 bits, which carry their scales: about a tenth more."""
    return 1.1 * bits / 8


def empty_model(config, dtype: torch.dtype):
    """Return a model without storage for a transformers config.

    Raises:
        ValueError: transformers cannot build such a model.
    """
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    # Drawing numbers that have no storage would import torch's compiler, which takes seconds
    with torch.device("meta"), no_init_weights(), one_sentence("target model", config.name_or_path, "config"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.tie_weights()
    return model


def memory_needed(config, dtype: torch.dtype, bits: int | None = None) -> MemoryNeeded:
    """Return the estimate for a transformers config; raises the errors of `empty_model`."""
    model = empty_model(config, dtype)
    tables = {
        id(module.weight): module.weight for module in (model.get_input_embeddings(), model.get_output_embeddings())
    }
    in_tables = sum(weight.numel() for weight in tables.values())
    in_layers = sum(parameter.numel() for parameter in model.parameters()) - in_tables
    per_weight = dtype.itemsize if bits is None else bytes_per_weight(bits)
    text = config.get_text_config()
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    as_what = f"{bits} bits" if bits else str(dtype).removeprefix("torch.")
    return MemoryNeeded(
        weights=int(in_tables * dtype.itemsize + in_layers * per_weight),
        cache=2 * text.num_hidden_layers * num_kv_heads(text) * head_dim * dtype.itemsize * CACHE_TOKENS,
        as_what=as_what,
    )


def free_memory(device: torch.device) -> int:
    """Bytes that are free on a device; on a CPU no more than a container's limit leaves."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil

    free = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and limit.read_text().strip().isdigit() and used.is_file():
        free = min(free, max(int(limit.read_text()) - int(used.read_text()), 0))
    return free


def most_gpu_memory(device: torch.device) -> int | None:
    """The most bytes that torch has held at once on a GPU; None on other devices."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def place(
    name: str, config, device: torch.device, dtype: torch.dtype, bits: int | None = None
) -> tuple[MemoryNeeded, dict]:
    """Whether a target has room on a device, and how its weights get there.

    Args:
        name: what the target is called in errors.
        config: its transformers config.
        dtype, bits: what its weights are loaded as; 4 or 8 bits need bitsandbytes.

    Returns:
        The memory that it needs, and options for `from_pretrained`: device map and quantisation.

    Raises:
        NoRoom: too large for the device, with both numbers.
        ValueError: bits without bitsandbytes.
    """
    options = {} if bits is None else {"quantization_config": _quantisation(bits, dtype)}
    needed, free = memory_needed(config, dtype, bits), free_memory(device)
    if needed.total > USABLE_SHARE * free:
        held = torch.cuda.memory_reserved(device) if device.type == "cuda" else 0
        raise NoRoom(
            f"{name} needs about {needed}, and {device} has {gigabytes(free)} free; "
            f"{_way_out(config, device, dtype, bits)}choose a smaller model or dtype.",
            fits_alone=needed.total <= USABLE_SHARE * (free + held),
        )
    # Straight to a GPU, file by file: a machine with little memory of its own can load what the GPU holds
    straight = {"device_map": {"": str(device)}} if bits or device.type == "cuda" else {}
    return needed, options | straight


def check_room(name: str, needed: float) -> None:
    """Raises NoRoom where a target's weights, in so many bytes, are more than this machine has free."""
    free = free_memory(torch.device("cpu"))
    if needed > USABLE_SHARE * free:
        raise NoRoom(
            f"{name} needs about {gigabytes(needed)} for its weights, and this machine has {gigabytes(free)} free; "
            "choose a smaller model or file, or end other programs.",
            fits_alone=False,
        )


def _way_out(config, device: torch.device, dtype: torch.dtype, bits: int | None) -> str:
    """On a GPU, the dtype of fewer bits in which a target fits, as the beginning of a list of choices."""
    if device.type != "cuda" or bits is not None:
        return ""
    for name, fewer in sorted(BITS.items(), key=lambda each: -each[1]):
        needed = memory_needed(config, dtype, fewer)
        if needed.total <= USABLE_SHARE * free_memory(device):
            return f"with --dtype {name} it needs {gigabytes(needed.total)} and fits; else "
    return ""


def _quantisation(bits: int, dtype: torch.dtype):
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ValueError(
            f"Loading in {bits} bits needs the package bitsandbytes, which is not installed; run “pip install "
            "bitsandbytes”, or choose bfloat16."
        )
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(load_in_4bit=bits == 4, load_in_8bit=bits == 8, bnb_4bit_compute_dtype=dtype)
