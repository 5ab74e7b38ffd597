"""A cache of the target's features of a corpus: one file, written front to back.

Its folder holds `features.f16` (one float16 row per token), `index.safetensors` (`ids`; `offsets`: sequence i is
ids[offsets[i]:offsets[i + 1]]; `starts`: first indices to learn from; and, as metadata, whose features they are: the
target's hash or name, its width, and the layers whose hidden states a row holds after the last one's) and `progress`,
which counts the sequences that are finished.
"""

import errno
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from jakiro.heads.checkpoint import write_tensors
from jakiro.system import atomic_file, write_atomically
from jakiro.zoo.placement import gigabytes

FEATURES_NAME, INDEX_NAME, PROGRESS_NAME = "features.f16", "index.safetensors", "progress"
_ARRAYS, _SOURCE = ("ids", "offsets", "starts"), ("target", "hidden_size", "feature_layers")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """Sequences padded on the right.

    Attributes:
        ids: (batch, length) int64, padded with 0.
        inputs: (batch, length, feature_size) float32, the target's features that the head reads, padded with 0.
        lengths: (batch,) int64.
        loss_start: (batch,) int64, the first index to learn from.
        hidden_size: the target's.
    """

    ids: Tensor
    inputs: Tensor
    lengths: Tensor
    loss_start: Tensor
    hidden_size: int

    @property
    def features(self) -> Tensor:
        """The target's last hidden states, (batch, length, hidden), a view."""
        return self.inputs[..., : self.hidden_size]

    @property
    def deeper(self) -> Tensor:
        """Hidden states of further layers, (batch, length, feature_layers · hidden), a view."""
        return self.inputs[..., self.hidden_size :]

    def to(self, device: torch.device) -> "Batch":
        tensors = (self.ids, self.inputs, self.lengths, self.loss_start)
        return Batch(*(tensor.to(device) for tensor in tensors), self.hidden_size)


class FeatureCache:
    """Reads a cache folder.

    Raises:
        FileNotFoundError: a file of the cache is missing.
        ValueError: a file of the cache is damaged, or it does not hold the features of every sequence.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        for name in (FEATURES_NAME, INDEX_NAME, PROGRESS_NAME):
            if not (self.folder / name).is_file():
                raise FileNotFoundError(
                    f"No feature cache in {self.folder}: {name} is missing; extract features first."
                )
        source, (self.ids, self.offsets, self.loss_start) = _index(self.folder)
        finished = _progress(self.folder, len(self))
        if finished < len(self):
            raise ValueError(f"{self.folder} has the features of {finished} of {len(self)} sequences; extract all.")
        self.feature_layers, self.hidden_size = tuple(source["feature_layers"]), source["hidden_size"]
        features = np.memmap(self.folder / FEATURES_NAME, dtype=np.float16, mode="r")
        width = (1 + len(self.feature_layers)) * self.hidden_size
        if features.size != len(self.ids) * width:
            raise ValueError(
                f"{self.folder / FEATURES_NAME} holds {features.size} numbers, {len(self.ids)} tokens have {width} "
                "each; extract the features again."
            )
        self.features = features.reshape(len(self.ids), width)

    def __len__(self) -> int:
        """Sequences."""
        return len(self.loss_start)

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def learned_ids(self, num_held_out: int) -> np.ndarray:
        """The ids of all sequences but the first ones, which are held out."""
        return self.ids[self.offsets[num_held_out] :]

    def rows(self, place: slice) -> Tensor:
        """Features of these tokens, (tokens, feature_size) float32."""
        return torch.from_numpy(self.features[place].astype(np.float32))

    def texts(self, first: int, count: int, device: torch.device) -> list[tuple[Tensor, Tensor]]:
        """(tokens,) ids and (tokens, feature_size) features of up to `count` sequences from the first one on."""
        batches = [self.batch([index]).to(device) for index in range(first, min(first + count, len(self)))]
        return [(batch.ids[0], batch.inputs[0]) for batch in batches]

    def batch(self, indices: Sequence[int]) -> Batch:
        """The named sequences, padded to the longest."""
        indices = list(indices)
        places = [slice(self.offsets[index], self.offsets[index + 1]) for index in indices]
        ids = [torch.from_numpy(self.ids[place].astype(np.int64)) for place in places]
        inputs = [self.rows(place) for place in places]
        lengths, starts = (torch.from_numpy(each[indices].astype(np.int64)) for each in (self.lengths, self.loss_start))
        padded = (pad_sequence(each, batch_first=True) for each in (ids, inputs))
        return Batch(*padded, lengths, starts, self.hidden_size)


def write_features(
    folder: Path,
    sequences: Sequence[tuple[Sequence[int], int]],
    hidden_size: int,
    features_of: Callable[[Tensor], Tensor],
    feature_layers: Sequence[int] = (),
    kept: Callable[[Sequence[int]], np.ndarray | None] = lambda ids: None,
    *,
    target: str = "",
    batch_tokens: int = 2048,
    group: int = 256,
) -> Iterator[int]:
    """Fills a cache folder, continuing where an earlier call stopped; yields the number of finished sequences.

    Args:
        folder: made if missing; an unfinished cache of the same sequences is continued.
        sequences: (token ids, loss start) of each sequence.
        hidden_size: the target's.
        features_of: (batch, length) ids → (batch, length, feature_size) features, those after the final norm first.
        feature_layers: the further layers whose hidden states these features hold.
        kept: features of a sequence that are known already, (length, feature_size) float16, or None.
        target: the hash of the target's weights, or its name where that is unknown.
        batch_tokens: padded tokens in one pass of the target.
        group: sequences between two updates of the progress file.

    Raises:
        ValueError: the folder holds a cache of other sequences, layers or weights, or a damaged one.
        OSError: there is no room for the features.
    """
    folder.mkdir(parents=True, exist_ok=True)
    offsets = np.cumsum([0] + [len(ids) for ids, _ in sequences])
    all_ids = np.concatenate([np.asarray(ids, dtype=np.int32) for ids, _ in sequences])
    progress, path = folder / PROGRESS_NAME, folder / FEATURES_NAME
    source = {"target": target, "hidden_size": hidden_size, "feature_layers": list(feature_layers)}
    row_bytes = 2 * (1 + len(feature_layers)) * hidden_size
    if progress.is_file():
        held, (held_ids, held_offsets, _) = _index(folder)
        if not (np.array_equal(held_ids, all_ids) and np.array_equal(held_offsets, offsets)):
            raise ValueError(f"The feature cache in {folder} belongs to another corpus; name an empty folder.")
        for name, asked in source.items():
            if held[name] != asked:
                raise ValueError(
                    f"The feature cache in {folder} was made with {name.replace('_', ' ')} {held[name]}, not {asked}; "
                    "name an empty folder."
                )
        done = _progress(folder, len(sequences))
        held_bytes = path.stat().st_size if path.is_file() else 0
        if held_bytes < len(all_ids) * row_bytes:
            done = min(done, int(np.searchsorted(offsets, held_bytes // row_bytes, side="right")) - 1)
            log.warning("%s is cut off after %d sequences; the others are computed again.", path, done)
    else:
        path.unlink(missing_ok=True)
        done = 0
    arrays = zip(_ARRAYS, (all_ids, offsets, np.array([start for _, start in sequences])), strict=True)
    with atomic_file(folder / INDEX_NAME) as unfinished:
        tensors = {name: torch.from_numpy(array) for name, array in arrays}
        write_tensors(tensors, unfinished, {"source": json.dumps(source)})
    size, missing_bytes = len(all_ids) * row_bytes, int(offsets[-1] - offsets[done]) * row_bytes
    if shutil.disk_usage(folder).free < missing_bytes:
        raise OSError(_no_room(folder, missing_bytes))
    try:
        with path.open("ab") as file:
            file.truncate(size)
        write_atomically(progress, f"{done}\n")
        for start in range(done, len(sequences), group):
            stop = min(start + group, len(sequences))
            with path.open("r+b") as file:
                for index, rows in _rows_of(sequences, range(start, stop), features_of, kept, batch_tokens):
                    file.seek(int(offsets[index]) * row_bytes)
                    file.write(np.ascontiguousarray(rows, np.float16).data)
                file.flush()
                os.fsync(file.fileno())
            write_atomically(progress, f"{stop}\n")
            yield stop
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise OSError(_no_room(folder, missing_bytes)) from error
        raise


def _rows_of(
    sequences: Sequence[tuple[Sequence[int], int]],
    indices: Sequence[int],
    features_of: Callable[[Tensor], Tensor],
    kept: Callable[[Sequence[int]], np.ndarray | None],
    batch_tokens: int,
) -> Iterator[tuple[int, np.ndarray]]:
    """Index and (length, feature_size) float16 features of these sequences, the known ones first."""
    missing = []
    for index in indices:
        known = kept(sequences[index][0])
        if known is None:
            missing.append(index)
        else:
            yield index, known
    for bucket in length_buckets(np.array([len(ids) for ids, _ in sequences]), missing, batch_tokens):
        ids = pad_sequence([torch.tensor(sequences[index][0]) for index in bucket], batch_first=True)
        rows = features_of(ids).to(device="cpu", dtype=torch.float16).numpy()
        for index, own in zip(bucket, rows, strict=True):
            yield index, own[: len(sequences[index][0])]


def _no_room(folder: Path, num_bytes: int) -> str:
    free = shutil.disk_usage(folder).free
    return (
        f"There is no room for the features in {folder}: {gigabytes(num_bytes)} are needed, {gigabytes(free)} are "
        "free; free some, or name another folder with --features."
    )


def _index(folder: Path) -> tuple[dict, list[np.ndarray]]:
    """Whose features a folder holds, and ids, offsets and starts, see the module.

    Raises:
        ValueError: the index is missing or damaged.
    """
    path = folder / INDEX_NAME
    try:
        with safe_open(path, "numpy") as file:
            source = json.loads(file.metadata()["source"])
            return {name: source[name] for name in _SOURCE}, [file.get_tensor(name) for name in _ARRAYS]
    except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is missing or damaged; remove the folder, and its features are computed again."
        ) from error


def _progress(folder: Path, num_sequences: int) -> int:
    """How many sequences are finished."""
    path = folder / PROGRESS_NAME
    try:
        found = int(path.read_text(encoding="utf-8").split()[0])
    except (ValueError, IndexError):
        found = -1
    if not 0 <= found <= num_sequences:
        raise ValueError(f"{path} is damaged; remove it, and the features are computed again.")
    return found


def length_buckets(lengths: np.ndarray, indices: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Groups sequences of similar length so that no group, padded to its longest, exceeds `batch_tokens`.

    A sequence longer than that stands alone.
    """
    batches, current = [], []
    for index in sorted(indices, key=lambda i: int(lengths[i])):
        if current and (len(current) + 1) * int(lengths[index]) > batch_tokens:
            batches.append(current)
            current = []
        current.append(int(index))
    if current:
        batches.append(current)
    return batches


def epoch_batches(
    lengths: np.ndarray, first: int, last: int, batch_tokens: int, seed: int, epoch: int, pool: int = 256
) -> list[list[int]]:
    """One epoch over sequences first … last − 1: shuffled, bucketed by length inside pools, shuffled again.

    It depends on its arguments alone, so a resumed run finds the same order.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(np.arange(first, last))
    batches = []
    for start in range(0, len(order), pool):
        batches += length_buckets(lengths, order[start : start + pool].tolist(), batch_tokens)
    generator.shuffle(batches)
    return batches
