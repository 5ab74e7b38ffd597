"""The target's features of texts, in files: as a cache for training, and with an answer.

A file holds texts one after the other: `ids`, `features`, the `lengths` of the texts, their `marks` (numbers such as
where learning begins), and `sums`, a checksum of each text with its features; its metadata says whose features they
are. A flipped bit is noticed when the text is read.
"""

import json
import logging
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from jakiro.config import require
from jakiro.heads.checkpoint import write_tensors
from jakiro.loading.placement import gigabytes
from jakiro.system import atomic_file

SUFFIX = ".safetensors"
# Sequences and bytes in one file of a cache, at most; a stopped extraction loses the unfinished file
GROUP, GROUP_BYTES = 256, 2**28
# Sequences that are bucketed by their lengths together
POOL = 256
_SHARD = "features-{:05d}" + SUFFIX
log = logging.getLogger(__name__)


class Text(NamedTuple):
    """A text with the target's features.

    Attributes:
        ids: the whole text. features: (ids, feature_size), of any dtype.
        marks: whole numbers about it; all texts of a file have equally many.
    """

    ids: Sequence[int]
    features: Tensor
    marks: tuple[int, ...] = ()


class DamagedFeatures(ValueError):
    """A file of features that cannot be read, or whose content is not what was written; the message is one sentence."""


def write_file(path: Path, texts: Sequence[Text], source: Mapping[str, object] = {}) -> None:
    """Writes at least one text, the file whole or not at all."""
    tensors = {
        "ids": torch.cat([torch.tensor(text.ids, dtype=torch.int32) for text in texts]),
        "lengths": torch.tensor([len(text.ids) for text in texts]),
        "marks": torch.tensor([text.marks for text in texts], dtype=torch.int64),
        "features": torch.cat([text.features.cpu() for text in texts]),
        "sums": torch.tensor([_checksum(*text) for text in texts]),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as unfinished:
        write_tensors(tensors, unfinished, {"source": json.dumps(dict(source))})


def _checksum(ids: Sequence[int], features: Tensor, marks: Sequence[int]) -> int:
    numbers = np.asarray([*ids, *marks], dtype=np.int64).tobytes()
    return zlib.crc32(features.cpu().contiguous().view(torch.uint8).numpy(), zlib.crc32(numbers))


class FeatureFile:
    """Reads a file of texts with features.

    Raises:
        FileNotFoundError: there is none.
        DamagedFeatures: it is no such file, or its parts contradict each other.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = safe_open(path, "pt")
            self.source: dict = json.loads(self._file.metadata()["source"])
            names = ("ids", "lengths", "marks", "sums")
            self._ids, lengths, marks, sums = (self._file.get_tensor(name) for name in names)
            self._features = self._file.get_slice("features")
        except FileNotFoundError:
            raise
        except (OSError, SafetensorError, ValueError, KeyError, TypeError) as error:
            raise DamagedFeatures(f"{path} is no file of features ({error}).") from error
        self.offsets = np.concatenate([[0], lengths.numpy().cumsum()])
        self._marks, self._sums = marks.tolist(), sums.tolist()
        whole = len(self._ids) == self.offsets[-1] == self._features.get_shape()[0] and (lengths >= 0).all()
        if not whole or not len(lengths) == len(self._marks) == len(self._sums):
            raise DamagedFeatures(f"{path} is no file of features (its parts have different lengths).")

    def __len__(self) -> int:
        """Texts."""
        return len(self._sums)

    def ids(self, index: int) -> np.ndarray:
        """int32; unlike what `text` returns, not checked."""
        return self._ids[self.offsets[index] : self.offsets[index + 1]].numpy()

    def text(self, index: int) -> Text:
        """One text as it was written.

        Raises:
            DamagedFeatures: it is not what was written.
        """
        place = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        text = Text(self.ids(index), self._features[place], tuple(self._marks[index]))
        if _checksum(*text) != self._sums[index]:
            raise DamagedFeatures(f"{self.path} is damaged: text {index + 1} is not what was written.")
        return text


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

    def to(self, device: torch.device) -> "Batch":
        tensors = (self.ids, self.inputs, self.lengths, self.loss_start)
        return Batch(*(tensor.to(device) for tensor in tensors), self.hidden_size)


class FeatureCache:
    """Reads the files of features that `write_features` wrote into a folder.

    Raises:
        FileNotFoundError: there are none.
        ValueError: one is damaged, or they do not hold the features of every sequence.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        files = [FeatureFile(path) for path in _shards(self.folder)]
        if not files:
            raise FileNotFoundError(f"No features in {self.folder}: {_SHARD.format(0)} is missing; extract them first.")
        source = files[0].source
        self._places = [(file, index) for file in files for index in range(len(file))]
        if len(self) < source["sequences"]:
            raise ValueError(
                f"{self.folder} has the features of {len(self)} of {source['sequences']} sequences; extract all."
            )
        self.hidden_size, self.feature_layers = source["hidden_size"], tuple(source["feature_layers"])
        self.feature_size = (1 + len(self.feature_layers)) * self.hidden_size
        self.lengths = np.concatenate([np.diff(file.offsets) for file in files])

    def __len__(self) -> int:
        """Sequences."""
        return len(self._places)

    def learned_ids(self, num_held_out: int) -> np.ndarray:
        """The ids of all sequences but the first ones, which are held out."""
        return np.concatenate([file.ids(index) for file, index in self._places[num_held_out:]])

    def texts(self, first: int, count: int, device: torch.device | str = "cpu") -> list[tuple[Tensor, Tensor]]:
        """(tokens,) ids and (tokens, feature_size) features of up to `count` sequences from the first one on."""
        batches = [self.batch([index]).to(device) for index in range(first, min(first + count, len(self)))]
        return [(batch.ids[0], batch.inputs[0]) for batch in batches]

    def batch(self, indices: Sequence[int]) -> Batch:
        """The named sequences, padded to the longest.

        Raises:
            DamagedFeatures: one is not what was written.
        """
        texts = [file.text(index) for file, index in (self._places[index] for index in indices)]
        ids = pad_sequence([torch.from_numpy(text.ids.astype(np.int64)) for text in texts], batch_first=True)
        inputs = pad_sequence([text.features.float() for text in texts], batch_first=True)
        starts = torch.tensor([text.marks[0] for text in texts])
        return Batch(ids, inputs, torch.tensor([len(text.ids) for text in texts]), starts, self.hidden_size)


def write_features(
    folder: Path,
    sequences: Sequence[tuple[Sequence[int], int]],
    hidden_size: int,
    features_of: Callable[[Tensor], Tensor],
    feature_layers: Sequence[int] = (),
    *,
    places: Sequence[str] = (),
    target: str = "",
    batch_tokens: int = 2048,
    group: int = GROUP,
) -> Iterator[int]:
    """Fills a folder, continuing where an earlier call stopped; yields the number of finished sequences.

    Args:
        folder: made if missing; an unfinished cache of the same sequences is continued.
        sequences: (token ids, loss start) of each sequence.
        hidden_size: the target's.
        features_of: (batch, length) ids → (batch, length, feature_size) features, those after the final norm first.
        feature_layers: the further layers whose hidden states these features hold.
        places: what each sequence is called in errors; its number if not given.
        target: the hash of the target's weights, or its name where that is unknown.
        batch_tokens: padded tokens in one pass of the target.
        group: sequences in one file.

    Raises:
        ValueError: the folder holds features of other sequences, layers or weights, or a feature is no number.
        OSError: there is no room for the features.
    """
    source = {"target": target, "hidden_size": hidden_size, "feature_layers": list(feature_layers)}
    source["sequences"] = len(sequences)
    row_bytes = 2 * (1 + len(feature_layers)) * hidden_size
    groups = _groups([row_bytes * len(ids) for ids, _ in sequences], group)
    paths = [folder / _SHARD.format(number) for number in range(len(groups))]
    missing = {
        path: own for path, own in zip(paths, groups, strict=True) if not _is_whole(path, sequences, own, source)
    }
    if further := set(_shards(folder)) - set(paths):
        raise ValueError(f"{min(further)} belongs to another corpus; name an empty folder.")
    num_bytes = row_bytes * sum(len(sequences[index][0]) for own in missing.values() for index in own)
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise OSError(
            f"There is no room for the features in {folder}: {gigabytes(num_bytes)} are needed, {gigabytes(free)} are "
            "free; free some, or name another folder with --features."
        )
    for path, own in missing.items():
        features = dict(_rows_of(sequences, own, features_of, batch_tokens))
        for index, rows in features.items():
            place = places[index] if places else f"sequence {index + 1}"
            require(
                torch.isfinite(rows).all(),
                f"The target's features of {place} are not finite in float16: its weights are damaged, or its numbers "
                "too large to train a head on.",
            )
        texts = [Text(sequences[index][0], features[index], (sequences[index][1],)) for index in own]
        write_file(path, texts, source)
        yield own.stop


def _groups(sizes: Sequence[int], most: int) -> list[range]:
    """Sequences one after the other in groups, from their sizes in bytes."""
    groups, start, total = [], 0, 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == most or total + size > GROUP_BYTES):
            groups.append(range(start, index))
            start, total = index, 0
        total += size
    return [*groups, range(start, len(sizes))]


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob(_SHARD.replace("{:05d}", "*")))


def _is_whole(path: Path, sequences: Sequence[tuple[Sequence[int], int]], own: range, source: dict) -> bool:
    """Whether a file has the features of these sequences; a damaged one is logged and made anew.

    Raises:
        ValueError: it is of other sequences, or was made otherwise.
    """
    try:
        file = FeatureFile(path)
        texts = [file.text(index) for index in range(len(file))]
    except FileNotFoundError:
        return False
    except DamagedFeatures as error:
        log.warning("%s It is made anew.", error)
        return False
    wanted = [(list(ids), (start,)) for ids, start in (sequences[index] for index in own)]
    different = [name for name, value in source.items() if file.source.get(name) != value]
    if different or [(text.ids.tolist(), text.marks) for text in texts] != wanted:
        raise ValueError(
            f"{path} has other features ({', '.join(different) or 'of other texts'}); name an empty folder."
        )
    return True


def _rows_of(
    sequences: Sequence[tuple[Sequence[int], int]],
    indices: Sequence[int],
    features_of: Callable[[Tensor], Tensor],
    batch_tokens: int,
) -> Iterator[tuple[int, Tensor]]:
    """Index and (length, feature_size) float16 features of these sequences."""
    for bucket in length_buckets(np.array([len(ids) for ids, _ in sequences]), indices, batch_tokens):
        ids = pad_sequence([torch.tensor(sequences[index][0]) for index in bucket], batch_first=True)
        rows = features_of(ids).to(device="cpu", dtype=torch.float16)
        for index, own in zip(bucket, rows, strict=True):
            yield index, own[: len(sequences[index][0])]


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
    lengths: np.ndarray, first: int, last: int, batch_tokens: int, seed: int, epoch: int
) -> list[list[int]]:
    """One epoch over sequences first … last − 1: shuffled, bucketed by length inside pools, shuffled again.

    It depends on its arguments alone, so a resumed run finds the same order.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(np.arange(first, last))
    batches = []
    for start in range(0, len(order), POOL):
        batches += length_buckets(lengths, order[start : start + POOL].tolist(), batch_tokens)
    generator.shuffle(batches)
    return batches
