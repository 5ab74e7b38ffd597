"""A cache of the target's features of a corpus: one file, written front to back, readable while it still grows.

Its folder holds `features.f16` (one float16 row per token), `feature_layers.npy` (layers whose hidden states a row
holds after the last one's), `ids.npy`, `offsets.npy` (sequence i is ids[offsets[i]:offsets[i + 1]]), `loss_start.npy`
(first index to learn from) and `progress`, whose first word counts the sequences that are finished.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from jakiro.system import write_atomically

FEATURES_NAME, LAYERS_NAME, PROGRESS_NAME = "features.f16", "feature_layers.npy", "progress"


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
    """Reads a cache folder; another process may still be filling it.

    Args:
        layers: those to read beside the last of what the folder holds; None for all.

    Raises:
        FileNotFoundError: a file of the cache is missing.
        ValueError: the feature file does not hold a whole number of float16 rows.
    """

    def __init__(self, folder: Path, layers: Sequence[int] | None = None) -> None:
        self.folder = Path(folder)
        for name in (FEATURES_NAME, LAYERS_NAME, "ids.npy", "offsets.npy", "loss_start.npy", PROGRESS_NAME):
            if not (self.folder / name).is_file():
                raise FileNotFoundError(
                    f"No feature cache in {self.folder}: {name} is missing; extract features first."
                )
        self.ids = np.load(self.folder / "ids.npy")
        self.offsets = np.load(self.folder / "offsets.npy")
        self.loss_start = np.load(self.folder / "loss_start.npy")
        held = tuple(np.load(self.folder / LAYERS_NAME).tolist())
        self.feature_layers = held if layers is None or not set(layers) <= set(held) else tuple(layers)
        features = np.memmap(self.folder / FEATURES_NAME, dtype=np.float16, mode="r")
        if features.size % len(self.ids):
            raise ValueError(
                f"{self.folder / FEATURES_NAME} holds {features.size} numbers for {len(self.ids)} tokens, "
                "which is no whole row; extract the features again."
            )
        self.features = features.reshape(len(self.ids), -1)
        self.hidden_size = self.features.shape[1] // (1 + len(held))
        parts = [
            np.arange(self.hidden_size) + (1 + held.index(layer)) * self.hidden_size for layer in self.feature_layers
        ]
        self._columns = None if self.feature_layers == held else np.concatenate([np.arange(self.hidden_size), *parts])

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def num_ready(self) -> int:
        """How many sequences, counted from the first, have their features."""
        return int((self.folder / PROGRESS_NAME).read_text().split()[0])

    def rows(self, place: slice) -> Tensor:
        """Features of these tokens, (tokens, feature_size) float32."""
        rows = self.features[place]
        rows = rows if self._columns is None else rows[:, self._columns]
        return torch.from_numpy(rows.astype(np.float32))

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
    batch_tokens: int = 2048,
    group: int = 256,
) -> Iterator[int]:
    """Fills a cache folder, continuing where an earlier call stopped; yields the number of finished sequences.

    Args:
        folder: made if missing; an unfinished cache of the same sequences is continued. A finished one that holds more
            layers will do.
        sequences: (token ids, loss start) of each sequence.
        hidden_size: the target's.
        features_of: (batch, length) ids → (batch, length, feature_size) features, those after the final norm first.
        feature_layers: the further layers whose hidden states these features hold.
        kept: features of a sequence that are known already, (length, feature_size) float16, or None.
        batch_tokens: padded tokens in one pass of the target.
        group: sequences between two updates of the progress file.

    Raises:
        ValueError: the folder holds a cache of other sequences or layers.
    """
    folder.mkdir(parents=True, exist_ok=True)
    offsets = np.cumsum([0] + [len(ids) for ids, _ in sequences])
    all_ids = np.concatenate([np.asarray(ids, dtype=np.int32) for ids, _ in sequences])
    progress, width = folder / PROGRESS_NAME, (1 + len(feature_layers)) * hidden_size
    if progress.is_file():
        held = np.load(folder / LAYERS_NAME).tolist()
        if not np.array_equal(np.load(folder / "ids.npy"), all_ids):
            raise ValueError(f"The feature cache in {folder} belongs to another corpus; name an empty folder.")
        if set(held) > set(feature_layers) and int(progress.read_text().split()[0]) == len(sequences):
            return
        if held != list(feature_layers):
            raise ValueError(
                f"The feature cache in {folder} holds layers {held} beside the last, {list(feature_layers)} were asked "
                "for; name an empty folder."
            )
    else:
        np.save(folder / "ids.npy", all_ids)
        np.save(folder / "offsets.npy", offsets)
        np.save(folder / LAYERS_NAME, np.array(feature_layers, dtype=np.int64))
        np.save(folder / "loss_start.npy", np.array([start for _, start in sequences]))
        np.memmap(folder / FEATURES_NAME, np.float16, "w+", shape=(len(all_ids), width))
        write_atomically(progress, "0\n")
    features = np.memmap(folder / FEATURES_NAME, np.float16, "r+", shape=(len(all_ids), width))
    for start in range(int(progress.read_text().split()[0]), len(sequences), group):
        stop = min(start + group, len(sequences))
        missing = []
        for index in range(start, stop):
            known = kept(sequences[index][0])
            if known is None:
                missing.append(index)
            else:
                features[offsets[index] : offsets[index + 1]] = known
        for indices in length_buckets(np.diff(offsets), missing, batch_tokens):
            ids = pad_sequence([torch.tensor(sequences[index][0]) for index in indices], batch_first=True)
            rows = features_of(ids).to(device="cpu", dtype=torch.float16).numpy()
            for index, own in zip(indices, rows, strict=True):
                features[offsets[index] : offsets[index + 1]] = own[: len(sequences[index][0])]
        features.flush()
        write_atomically(progress, f"{stop}\n")
        yield stop


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
