"""Features that were computed while a corpus was written: `part-….safetensors` beside the rows of `part-….jsonl.gz`.

A file holds `ids` and `features` of its rows one after the other and each row's length; its metadata names the target's
weights. Training finds a row by its ids, so parts may be filtered, shuffled and merged, and a row that is not found is
read by the target again.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from jakiro.heads.checkpoint import write_tensors
from jakiro.system import atomic_file

_SUFFIX = ".safetensors"
log = logging.getLogger(__name__)


def features_path(part: Path) -> Path:
    """The file of features that belongs to a file of rows."""
    return part.with_name(part.name.removesuffix(".jsonl.gz") + _SUFFIX)


def write_kept(path: Path, texts: Sequence[tuple[Sequence[int], Tensor]], target_sha256: str) -> None:
    """Writes the features of some texts.

    Args:
        texts: at least one; ids and (ids, hidden) float16 features of each.
        target_sha256: of the target's weights, or its name where that is unknown.
    """
    tensors = {
        "ids": torch.cat([torch.tensor(ids, dtype=torch.int32) for ids, _ in texts]),
        "lengths": torch.tensor([len(ids) for ids, _ in texts]),
        "features": torch.cat([features for _, features in texts]),
    }
    with atomic_file(path) as unfinished:
        write_tensors(tensors, unfinished, {"target_sha256": target_sha256})


class KeptFeatures:
    """Finds the kept features of a row.

    Args:
        corpora: corpus files or folders; other files in the folders are not looked at.
        target_sha256: of the target's weights, or its name where that is unknown; features of other weights are left
            aside, as are files that can't be read.
    """

    def __init__(self, corpora: Sequence[Path], target_sha256: str) -> None:
        self.target = target_sha256
        self._rows: dict[bytes, tuple[object, int, int]] = {}
        for corpus in corpora:
            parts = sorted(corpus.glob("*.jsonl.gz")) if corpus.is_dir() else [corpus]
            for path in filter(Path.is_file, map(features_path, parts)):
                try:
                    self._add(safe_open(path, "numpy"), target_sha256)
                except (OSError, SafetensorError, ValueError) as error:
                    log.warning("The features in %s can't be read and are computed again: %s", path, error)

    def _add(self, file, target_sha256: str) -> None:
        if (file.metadata() or {}).get("target_sha256") != target_sha256:
            return
        ids, lengths, start = file.get_tensor("ids"), file.get_tensor("lengths"), 0
        if not len(ids) == lengths.sum() == file.get_slice("features").get_shape()[0]:
            raise ValueError("its parts have different lengths")
        for length in lengths.tolist():
            self._rows[ids[start : start + length].tobytes()] = (file, start, start + length)
            start += length

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, ids: Sequence[int]) -> np.ndarray | None:
        """The (ids, hidden) float16 features of a row, or None where none were kept."""
        found = self._rows.get(np.asarray(ids, dtype=np.int32).tobytes())
        if found is None:
            return None
        file, start, stop = found
        return file.get_slice("features")[start:stop]
