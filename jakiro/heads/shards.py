"""Weights in several files (shards), listed in an index file."""

import json
from pathlib import Path

INDEX_ENDING = ".index.json"


def shards_named_by(index: Path) -> list[str]:
    """Return the names of the shards of an index, ascending.

    Raises:
        ValueError: the file is not an index.
    """
    try:
        files = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        return sorted({Path(name).name for name in files})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{index} is not an index of weight shards ({error}); fetch or copy it again.") from error


def shards_of(index: Path) -> list[Path]:
    """Return the paths of the shards of an index.

    Raises:
        ValueError: the file is not an index, or a shard is missing.
    """
    names = shards_named_by(index)
    missing = next((name for name in names if not (index.parent / name).is_file()), None)
    if missing is not None:
        raise ValueError(f"{index.parent} has no file {missing}, which {index.name} lists; fetch or copy it again.")
    return [index.parent / name for name in names]
