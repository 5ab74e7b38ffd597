"""Checks of a model folder before any weights are read: all shards exist, and no file is truncated."""

import json
from collections.abc import Mapping
from pathlib import Path

from jakiro.heads.shards import shards_named_by, shards_of

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE = ("model.safetensors", "pytorch_model.bin")
_REMEDY = "fetch or copy it again"
# Integers and 8-bit floats: weights of these types need scales
_SCALED_TYPES = ("I", "U", "F8", "F4", "F6")


def check_files(folder: Path, is_quantised: bool = True) -> None:
    """Check the small files of a folder, and the headers and lengths of its weights.

    Args:
        is_quantised: True if the config describes a quantisation; otherwise no weight may need scales.

    Raises:
        ValueError: the folder has no weights, a shard is missing, a file is truncated or corrupted at its beginning, or
            weights need scales.
    """
    # transformers ignores an invalid file, and answers would not end at end tokens
    generation = folder / "generation_config.json"
    if generation.is_file():
        try:
            json.loads(generation.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{generation} is not JSON ({error}); correct it, or {_REMEDY}.") from error
    index = _index_of(folder)
    single = [folder / name for name in _SINGLE if (folder / name).is_file()]
    if index is None and not single:
        raise ValueError(f"{folder} holds no weights; expected {' or '.join(_SINGLE)}, or shards with their index.")
    for path in single or shards_of(index):
        if path.suffix == ".safetensors":
            file = open_safetensors(path)
            if not is_quantised:
                types = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
                reject_scaled_weights(path, types)


def has_all_shards(folder: Path) -> bool:
    """Return whether a folder has weights with all of their shards."""
    index = _index_of(folder)
    if index is None:
        return any((folder / name).is_file() for name in _SINGLE)
    return all((folder / name).is_file() for name in shards_named_by(index))


def reject_scaled_weights(path: object, types: Mapping[str, str]) -> None:
    """Raise ValueError if a weight needs scales that no config describes.

    Args:
        path: file of the weights.
        types: type of each tensor, as safetensors names it.
    """
    for name, type_name in types.items():
        if type_name.startswith(_SCALED_TYPES) and name.endswith("weight"):
            raise ValueError(
                f"{path} holds {name} as {type_name}, and config.json does not describe a quantisation; use the "
                "config.json of these weights, or weights in 16 bits."
            )


def open_safetensors(path: Path, framework: str = "numpy"):
    """Open a safetensors file; the library checks its header and its length.

    Raises:
        ValueError: the file is truncated or no safetensors file.
    """
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework)
    except SafetensorError as error:
        raise ValueError(f"{path} is corrupted ({error}); {_REMEDY}.") from error


def _index_of(folder: Path) -> Path | None:
    return next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
