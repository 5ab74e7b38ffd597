"""Targets that are larger than one device: accelerate spreads their layers over GPUs, memory and disk.

`plan_spread` decides from the config which layer goes where; transformers then loads each layer to its place, and
accelerate's hooks move it to the main device for each pass. Embeddings, the final norm and the output function stay on
the main device, next to the draft head. Layers on other GPUs run there.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

from jakiro.config import require
from jakiro.loading.placement import (
    USABLE_SHARE,
    MemoryNeeded,
    empty_model,
    free_memory,
    gigabytes,
    memory_of,
)
from jakiro.models.weights import describe_device_map
from jakiro.system import cache_folder

CPU, DISK = "cpu", "disk"
# Assumed speeds in bytes per second of an estimate: from memory to a GPU, and from an SSD
COPY_SPEED, DISK_SPEED = 10e9, 2e9
_EXAMPLE = "0:20GiB,cpu:60GiB"


@dataclass(frozen=True, slots=True)
class Spread:
    """Places of a target's modules.

    Attributes:
        needed: memory of the target.
        device_map: device by module name; GPUs are numbers.
        sizes: bytes of the weights on each device.
        folder: folder for weights on disk that are not read from the target's own files.
    """

    needed: MemoryNeeded
    device_map: dict[str, int | str]
    sizes: dict[int | str, int]
    folder: Path

    @property
    def load_options(self) -> dict:
        """Return the options for transformers' `from_pretrained`."""
        return {"device_map": self.device_map, "offload_folder": str(self.folder)}

    @property
    def pass_bytes(self) -> tuple[int, int]:
        """Return the bytes that each pass copies from memory to a GPU, and the bytes that it reads from disk."""
        has_gpu = any(isinstance(device, int) for device in self.sizes)
        return self.sizes.get(CPU, 0) if has_gpu else 0, self.sizes.get(DISK, 0)

    def __str__(self) -> str:
        copied, read = self.pass_bytes
        seconds = copied / COPY_SPEED + read / DISK_SPEED
        return (
            f"{describe_device_map(self.device_map)}; a pass moves {gigabytes(copied + read)}, about {seconds:.1f} s "
            f"(estimate: {COPY_SPEED / 1e9:.0f} GB/s from memory, {DISK_SPEED / 1e9:.0f} GB/s from disk)"
        )


def parse_max_memory(text: str | None) -> dict[int | str, int] | None:
    """Return the bytes of weights by device, from a form such as "0:20GiB,cpu:60GiB"; None if not given.

    Raises:
        ValueError: a device is neither the number of a GPU here nor "cpu", or a size is invalid.
    """
    # Imported here: the import takes a second
    from accelerate.utils import convert_file_size_to_int

    if text is None:
        return None
    sizes: dict[int | str, int] = {}
    for part in text.split(","):
        name, _, size = (word.strip() for word in part.partition(":"))
        device = int(name) if name.isdecimal() else name
        try:
            sizes[device] = convert_file_size_to_int(size)
        except (ValueError, TypeError):
            sizes[device] = -1
        is_known = device == CPU or (isinstance(device, int) and device < torch.cuda.device_count())
        require(
            is_known and sizes[device] >= 0,
            f"--max-memory takes DEVICE:SIZE pairs such as {_EXAMPLE}, with cpu and the {torch.cuda.device_count()} "
            f"GPUs here as devices; got {part.strip()!r}.",
        )
    return sizes


def plan_spread(
    name: str, config, dtype: torch.dtype, max_memory: str | None = None, offload_folder: str | None = None
) -> Spread | None:
    """Return where accelerate puts a target's modules; None if all of them fit on the main device.

    Args:
        name: the target's name for errors and for its folder.
        config: its transformers config.
        dtype: of its weights.
        max_memory: bytes of weights per device, see `parse_max_memory`; None uses the free memory, less a reserve.
        offload_folder: folder for weights on disk; None uses the user's cache.

    Raises:
        ValueError: `max_memory` is invalid, the embeddings do not fit on the main device, or the family's layers
            cannot be spread.
    """
    from accelerate import infer_auto_device_map
    from accelerate.utils import compute_module_sizes

    model = empty_model(config, dtype)
    needed = memory_of(model, dtype)
    limits = parse_max_memory(max_memory)
    gpus = [device for device in limits or range(torch.cuda.device_count()) if isinstance(device, int)]
    main = min(gpus) if gpus else CPU
    if limits is None:
        devices = {gpu: torch.device("cuda", gpu) for gpu in gpus} | {CPU: torch.device(CPU)}
        limits = {device: int(USABLE_SHARE * free_memory(place)) for device, place in devices.items()}
        # Passes run on the main device, which also stores the cache
        limits[main] -= needed.cache
    blocks = tuple(model._no_split_modules or ())
    require(bool(blocks), f"{config.model_type} has no list of layers to spread; choose another device than auto.")
    names = [path for path, module in model.named_modules() if type(module).__name__ in blocks]
    sizes = compute_module_sizes(model)
    num_outside = sizes[""] - sum(sizes[path] for path in names)
    if num_outside > limits[main]:
        raise ValueError(
            f"The embeddings and the output layer of {name} need {gigabytes(num_outside)} on {main}, but its limit is "
            f"{gigabytes(max(limits[main], 0))}; raise --max-memory for it."
        )
    if sizes[""] <= limits[main]:
        return None
    # accelerate fills devices in the order of the modules, with the output function at the end
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    room = {**limits, main: limits[main] - (0 if output is embedding else output.numel() * dtype.itemsize)}
    room = {device: room[device] for device in sorted(room, key=lambda device: (device == CPU, device))}
    inferred = infer_auto_device_map(model, max_memory=room, no_split_module_classes=list(blocks), dtype=dtype)
    # Modules outside the layers stay on the main device; those that contain layers have no entry
    outside = [path for path, _ in model.named_modules() if path and not _is_within(path, names)]
    device_map = {path: main for path in outside if not any(layer.startswith(f"{path}.") for layer in names)}
    bytes_on = Counter({main: num_outside})
    for path in names:
        # The layer or a module that contains it has the entry
        device_map[path] = next(place for name, place in inferred.items() if not name or _is_within(path, [name]))
        bytes_on[device_map[path]] += sizes[path]
    folder = Path(offload_folder) if offload_folder else cache_folder() / "offload"
    return Spread(needed, device_map, dict(bytes_on), folder / f"{Path(name).name}-{str(dtype).removeprefix('torch.')}")


def _is_within(path: str, names: list[str]) -> bool:
    return any(path == name or path.startswith(f"{name}.") for name in names)
