"""A model's folder, looked at before any weights are read: all shards are there, and no file was cut."""

import json
from collections.abc import Mapping
from pathlib import Path

from jakiro.heads.shards import shards_named_by, shards_of

_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_SINGLE = ("model.safetensors", "pytorch_model.bin")
_AGAIN = "fetch or copy it again"
# Types of whole numbers and of 8-bit floats: weights in them are read with scales that lie beside them
_SCALED = ("I", "U", "F8", "F4", "F6")


def check_files(folder: Path, quantised: bool = True) -> None:
    """Reads what is small, and of weights names, sizes and headers.

    Args:
        quantised: whether the config says how weights are quantised; where it does not, all have to be plain numbers.

    Raises:
        ValueError: the folder has no weights, a shard is missing, a file was cut or damaged at its beginning, or
            holds numbers that need scales.
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
            file = opened(path)
            if not quantised:
                refuse_scaled(path, {name: file.get_slice(name).get_dtype() for name in file.keys()})  # noqa: SIM118


def has_whole_weights(folder: Path) -> bool:
    """Whether weights lie in a folder with all of their shards."""
    index = next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
    if index is None:
        return any((folder / name).is_file() for name in _SINGLE)
    return all((folder / name).is_file() for name in shards_named_by(index))


def refuse_scaled(path: object, kinds: Mapping[str, str]) -> None:
    """Refuses weights that are read with scales, where no config says so.

    Args:
        path: the file that holds them. kinds: by tensor, as safetensors calls them.

    Raises:
        ValueError: a weight is no plain number.
    """
    for name, kind in kinds.items():
        if kind.startswith(_SCALED) and name.endswith("weight"):
            raise ValueError(
                f"{path} holds {name} as {kind}, and config.json does not say how its weights are quantised; "
                "use the config.json that belongs to them, or weights in 16 bits."
            )


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
