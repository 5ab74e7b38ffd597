"""A model's folder, looked at before any weights are read: all shards are there, and no file was cut."""

import json
from pathlib import Path

from jakiro.heads.shards import shards_of

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE = ("model.safetensors", "pytorch_model.bin")
_AGAIN = "fetch or copy it again"


def check_files(folder: Path) -> None:
    """Reads what is small, and of weights names, sizes and headers.

    Raises:
        ValueError: the folder has no weights, a shard is missing, or a file was cut or damaged at its beginning.
    """
    # transformers goes on without it, and answers would not end where they should
    generation = folder / "generation_config.json"
    if generation.is_file():
        try:
            json.loads(generation.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{generation} is not JSON ({error}); correct it, or {_AGAIN}.") from error
    index = next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
    single = [folder / name for name in _SINGLE if (folder / name).is_file()]
    if index is None and not single:
        raise ValueError(f"{folder} holds no weights; expected {' or '.join(_SINGLE)}, or shards with their index.")
    for path in single or shards_of(index):
        if path.suffix == ".safetensors":
            opened(path)


def opened(path: Path, framework: str = "numpy"):
    """A safetensors file, whose header and length the library checks.

    Raises:
        ValueError: it was cut, or is no safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework)
    except SafetensorError as error:
        raise ValueError(f"{path} is damaged ({error}); {_AGAIN}.") from error
