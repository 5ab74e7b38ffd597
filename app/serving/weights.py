"""How large weights on disk are: numbers in them and bytes, read from the headers of their files alone."""

import json
import math
from functools import lru_cache
from pathlib import Path

from app.words import page as words

_LONGEST_HEADER = 64 * 2**20


def size_words(target: Path | None, head: Path | None) -> str:
    """Parameters and bytes of target and head in one sentence; empty where the target's files are not here."""
    parts = [(words.SIZE_TARGET, target), (words.SIZE_HEAD, head)]
    found = [(what, *weights_of(folder)) for what, folder in parts if folder is not None]
    said = [
        words.SIZE_PART.format(what=what, parameters=parameters / 1e6, gigabytes=num_bytes / 1e9)
        for what, parameters, num_bytes in found
        if parameters
    ]
    return f"{', '.join(said)}." if said else ""


@lru_cache(maxsize=64)
def weights_of(folder: Path) -> tuple[int, int]:
    """(parameters, bytes) of all safetensors files in a folder; zeros where there are none to read."""
    parameters = num_bytes = 0
    for path in folder.glob("*.safetensors"):
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > _LONGEST_HEADER:
                continue
            header = _read(file.read(length))
        parameters += sum(math.prod(tensor["shape"]) for tensor in header.values())
        num_bytes += path.stat().st_size
    return parameters, num_bytes


def _read(header: bytes) -> dict:
    """The tensors of a header; none where it is not one."""
    try:
        tensors = json.loads(header)
    except ValueError:
        return {}
    return {name: tensor for name, tensor in tensors.items() if name != "__metadata__"}
