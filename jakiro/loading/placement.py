"""Memory of a target's weights: the bytes needed and free, and loading in 4 or 8 bits.

All decisions use the config, before any weights are read.
"""

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import torch

from jakiro.loading.incompatibilities import one_sentence
from jakiro.models.families import num_kv_heads

BITS = {"4bit": 4, "8bit": 8}
CACHE_TOKENS = 2048
# Share of the free memory for weights and cache; passes need the rest
USABLE_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class MemoryNeeded:
    """Bytes that a target needs.

    Attributes:
        weights: all parameters in their loaded dtype.
        cache: keys and values of `CACHE_TOKENS` tokens.
        dtype_name: the dtype in words.
    """

    weights: int
    cache: int
    dtype_name: str

    @property
    def total(self) -> int:
        return self.weights + self.cache

    def __str__(self) -> str:
        return (
            f"{gigabytes(self.total)} in {self.dtype_name} ({gigabytes(self.weights)} of weights, "
            f"{gigabytes(self.cache)} of cache for {CACHE_TOKENS:,} tokens)"
        )


class NoRoom(ValueError):
    """A target needs more memory than is free.

    Attributes:
        fits_alone: whether it fits after this process releases its memory on the device.
    """

    def __init__(self, message: str, fits_alone: bool = False) -> None:
        super().__init__(message)
        self.fits_alone = fits_alone


def gigabytes(num_bytes: float) -> str:
    """Return a number of bytes in words."""
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.1f} MB"


def bytes_per_weight(bits: int) -> float:
    """Return the bytes per weight of layers in 4 or 8 bits; their scales add about a tenth."""
    return 1.1 * bits / 8


def empty_model(config, dtype: torch.dtype):
    """Return a model without storage for a transformers config.

    Raises:
        ValueError: transformers cannot build the model.
    """
    from transformers import AutoModelForCausalLM
    from transformers.initialization import no_init_weights

    # Initialising weights without storage would import torch's compiler, which takes seconds
    with torch.device("meta"), no_init_weights(), one_sentence("target model", config.name_or_path, "config"):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.tie_weights()
    return model


def memory_needed(config, dtype: torch.dtype, bits: int | None = None) -> MemoryNeeded:
    """Return the estimate for a transformers config; raises the errors of `empty_model`."""
    return memory_of(empty_model(config, dtype), dtype, bits)


def memory_of(model, dtype: torch.dtype, bits: int | None = None) -> MemoryNeeded:
    """Return the estimate for a model, which needs no storage."""
    # A tied output function has the weight of the embedding
    tables = {layer.weight for layer in (model.get_input_embeddings(), model.get_output_embeddings())}
    num_in_tables = sum(weight.numel() for weight in tables)
    num_in_layers = sum(parameter.numel() for parameter in model.parameters()) - num_in_tables
    per_weight = dtype.itemsize if bits is None else bytes_per_weight(bits)
    text = model.config.get_text_config()
    head_dim = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return MemoryNeeded(
        weights=int(num_in_tables * dtype.itemsize + num_in_layers * per_weight),
        cache=2 * text.num_hidden_layers * num_kv_heads(text) * head_dim * dtype.itemsize * CACHE_TOKENS,
        dtype_name=f"{bits} bits" if bits else str(dtype).removeprefix("torch."),
    )


def free_memory(device: torch.device) -> int:
    """Return the free bytes of a device; for a CPU at most the container's limit."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    import psutil

    free = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.is_file() and limit.read_text().strip().isdigit() and used.is_file():
        free = min(free, max(int(limit.read_text()) - int(used.read_text()), 0))
    return free


def most_gpu_memory(device: torch.device) -> int | None:
    """Return the peak of torch's allocated bytes on a GPU; None on other devices."""
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None


def place(
    name: str, config, device: torch.device, dtype: torch.dtype, bits: int | None = None
) -> tuple[MemoryNeeded, dict]:
    """Check that a target fits on a device, and return how to load its weights there.

    Args:
        name: name of the target in errors.
        config: its transformers config.
        dtype, bits: format of the loaded weights; 4 or 8 bits need bitsandbytes.

    Returns:
        The memory needed, and options of `from_pretrained`: device map and quantisation.

    Raises:
        NoRoom: the target is too large for the device.
        ValueError: bitsandbytes is not installed.
    """
    options = {} if bits is None else {"quantization_config": _quantisation(bits, dtype)}
    needed, free = memory_needed(config, dtype, bits), free_memory(device)
    if needed.total > USABLE_SHARE * free:
        reserved = torch.cuda.memory_reserved(device) if device.type == "cuda" else 0
        raise NoRoom(
            f"{name} needs about {needed}, and {device} has {gigabytes(free)} free; "
            f"{_smaller_dtype(config, device, dtype, bits)}choose a smaller model or dtype.",
            fits_alone=needed.total <= USABLE_SHARE * (free + reserved),
        )
    # Directly to a GPU, file by file, because the machine may have less memory than the GPU
    device_map = {"device_map": {"": str(device)}} if bits or device.type == "cuda" else {}
    return needed, options | device_map


def check_room(name: str, num_bytes: float) -> None:
    """Raise NoRoom if a target's weights need more bytes than this machine has free."""
    free = free_memory(torch.device("cpu"))
    if num_bytes > USABLE_SHARE * free:
        raise NoRoom(
            f"{name} needs about {gigabytes(num_bytes)} for its weights, and this machine has {gigabytes(free)} free; "
            "choose a smaller model or file, or end other programs."
        )


def _smaller_dtype(config, device: torch.device, dtype: torch.dtype, bits: int | None) -> str:
    """Return the beginning of a remedy: the dtype of fewer bits in which a target fits on a GPU; may be empty."""
    if device.type != "cuda" or bits is not None:
        return ""
    for name in ("8bit", "4bit"):
        needed = memory_needed(config, dtype, BITS[name])
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
