"""Size of weights on disk: number of parameters and bytes, from file headers."""

import math
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from safetensors import SafetensorError, safe_open

from app.words import page as words


def size_words(target: Path | None, head: Path | None) -> str:
    """Return parameters and bytes of target and head in one sentence; empty without local files."""
    parts = [(words.SIZE_TARGET, target), (words.SIZE_HEAD, head)]
    sizes = [(label, *weights_of(folder)) for label, folder in parts if folder is not None]
    said = [
        words.SIZE_PART.format(part=label, parameters=parameters / 1e6, gigabytes=num_bytes / 1e9)
        for label, parameters, num_bytes in sizes
        if parameters
    ]
    return f"{', '.join(said)}." if said else ""


@lru_cache(maxsize=64)
def weights_of(folder: Path) -> tuple[int, int]:
    """Return (parameters, bytes) of all safetensors files in a folder; zeros without readable files."""
    parameters = num_bytes = 0
    for path in folder.glob("*.safetensors"):
        with suppress(SafetensorError), safe_open(path, "numpy") as file:
            parameters += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
            num_bytes += path.stat().st_size
    return parameters, num_bytes
