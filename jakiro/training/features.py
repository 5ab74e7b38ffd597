"""Files with the target's features of texts: a cache for training, and stored answers.

A file stores texts one after another: `ids`, `features`, the `lengths` of the texts, their `marks` (numbers such as the
first index to learn from), and `sums`, a checksum of each text with its features. Its metadata describes the target.
Checksums are compared when a text is read.
"""

import json
import logging
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
# Maximum number of texts and bytes in a file of a cache; an interrupted extraction loses the unfinished file
GROUP, GROUP_BYTES = 256, 2**28
# Number of texts that are sorted into batches by length together
POOL = 256
_SHARD = "features-{:05d}" + SUFFIX
log = logging.getLogger(__name__)


class Text(NamedTuple):
    """A text with the target's features.

    Attributes:
        ids: token ids of the whole text.
        features: (ids, feature_size), of any dtype.
        marks: whole numbers about the text; all texts of a file have the same count.
    """

    ids: Sequence[int]
    features: Tensor
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class FeatureSource:
    """The target of a cache.

    Attributes:
        hidden_size: of the target.
        feature_layers: layers with hidden states after the last one.
        target: hash of the target's weights, or its name if the hash is unknown.
    """

    hidden_size: int
    feature_layers: tuple[int, ...] = ()
    target: str = ""

    @property
    def row_bytes(self) -> int:
        """Bytes of the features of one token."""
        return 2 * (1 + len(self.feature_layers)) * self.hidden_size


class DamagedFeatures(ValueError):
    """A file of features cannot be read or is corrupted; the message is one sentence."""


def write_file(path: Path, texts: Sequence[Text], source: Mapping[str, object] = {}) -> None:
    """Write at least one text; the file is replaced atomically."""
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
    """A file of texts with features, opened for reading.

    Raises:
        FileNotFoundError: the file does not exist.
        DamagedFeatures: the file has another format, or its tensors contradict each other.
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
            raise DamagedFeatures(f"{path} is not a file of features ({error}).") from error
        self.offsets = np.concatenate([[0], lengths.numpy().cumsum()])
        self._marks, self._sums = marks.tolist(), sums.tolist()
        is_whole = len(self._ids) == self.offsets[-1] == self._features.get_shape()[0] and (lengths >= 0).all()
        if not is_whole or not len(lengths) == len(self._marks) == len(self._sums):
            raise DamagedFeatures(f"{path} is not a file of features (its tensors have different lengths).")

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._sums)

    def ids(self, index: int) -> np.ndarray:
        """Return the token ids of a text as int32, without checking them."""
        return self._ids[self.offsets[index] : self.offsets[index + 1]].numpy()

    def text(self, index: int) -> Text:
        """Return one text.

        Raises:
            DamagedFeatures: its checksum differs.
        """
        rows = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        text = Text(self.ids(index), self._features[rows], tuple(self._marks[index]))
        if _checksum(*text) != self._sums[index]:
            raise DamagedFeatures(f"{self.path} is corrupted: the checksum of text {index + 1} differs.")
        return text


@dataclass(frozen=True, slots=True)
class Batch:
    """Texts padded on the right.

    Attributes:
        ids: (batch, length) int64, padded with 0.
        inputs: (batch, length, feature_size) float32, the target's features that the head reads, padded with 0.
        lengths: (batch,) int64.
        loss_start: (batch,) int64, index of the first token that the head learns to predict.
        hidden_size: Width of the target's last hidden state, the first columns of `inputs`.
    """

    ids: Tensor
    inputs: Tensor
    lengths: Tensor
    loss_start: Tensor
    hidden_size: int

    @property
    def features(self) -> Tensor:
        """Return the target's last hidden states, (batch, length, hidden), a view."""
        return self.inputs[..., : self.hidden_size]

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; accelerate calls this too."""
        tensors = (self.ids, self.inputs, self.lengths, self.loss_start)
        return Batch(*(tensor.to(device) for tensor in tensors), self.hidden_size)


class FeatureCache:
    """The files of `write_features` in a folder, opened for reading.

    Raises:
        FileNotFoundError: the folder has no such file.
        ValueError: a file is corrupted, or some texts have no features yet.
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
        self.lengths = np.concatenate([np.diff(file.offsets) for file in files])

    def __len__(self) -> int:
        """Return the number of texts."""
        return len(self._places)

    def learned_ids(self, num_held_out: int) -> np.ndarray:
        """Return the ids of all texts after the first ones, which are held out."""
        return np.concatenate([file.ids(index) for file, index in self._places[num_held_out:]])

    def texts(self, first: int, count: int, device: torch.device | str = "cpu") -> list[tuple[Tensor, Tensor]]:
        """Return (tokens,) ids and (tokens, feature_size) features of up to `count` texts, starting with the first."""
        batches = [self.batch([index]).to(device) for index in range(first, min(first + count, len(self)))]
        return [(batch.ids[0], batch.inputs[0]) for batch in batches]

    def batch(self, indices: Sequence[int]) -> Batch:
        """Return texts padded to the longest of them.

        Raises:
            DamagedFeatures: the checksum of a text differs.
        """
        texts = [file.text(index) for file, index in (self._places[index] for index in indices)]
        ids = pad_sequence([torch.from_numpy(text.ids.astype(np.int64)) for text in texts], batch_first=True)
        inputs = pad_sequence([text.features.float() for text in texts], batch_first=True)
        starts = torch.tensor([text.marks[0] for text in texts])
        return Batch(ids, inputs, torch.tensor([len(text.ids) for text in texts]), starts, self.hidden_size)


def write_features(
    folder: Path,
    sequences: Sequence[tuple[Sequence[int], int]],
    source: FeatureSource,
    features_of: Callable[[Tensor], Tensor],
    *,
    places: Sequence[str] = (),
    batch_tokens: int = 2048,
    group: int = GROUP,
    part: tuple[int, int] = (0, 1),
) -> Iterator[int]:
    """Write features into a folder, or continue an interrupted call; yield the number of finished texts.

    Args:
        folder: created if it does not exist.
        sequences: (token ids, first index to learn from) of each text.
        source: the target.
        features_of: (batch, length) ids → (batch, length, feature_size) features; first the last hidden state.
        places: name of each text in errors; by default its number.
        batch_tokens: padded tokens in one pass of the target.
        group: maximum number of texts in a file.
        part: (index, count): write every count-th file only, because other processes write the rest.

    Raises:
        ValueError: the folder has features of other texts, layers or weights, or a feature is not finite.
        OSError: the disk is full.
    """
    metadata = json.loads(json.dumps(asdict(source))) | {"sequences": len(sequences)}
    groups = _groups([source.row_bytes * len(ids) for ids, _ in sequences], group)
    files = [(folder / _SHARD.format(number), indices) for number, indices in enumerate(groups)]
    if unexpected := set(_shards(folder)) - {path for path, _ in files}:
        raise ValueError(f"{min(unexpected)} belongs to another corpus; name an empty folder.")
    files = files[part[0] :: part[1]]
    missing = {path: indices for path, indices in files if not _is_whole(path, sequences, indices, metadata)}
    _require_room(folder, source.row_bytes * sum(len(sequences[i][0]) for indices in missing.values() for i in indices))
    for path, indices in missing.items():
        features = dict(_rows_of(sequences, indices, features_of, batch_tokens))
        for index, rows in features.items():
            place = places[index] if places else f"sequence {index + 1}"
            require(
                torch.isfinite(rows).all(),
                f"The target's features of {place} are not finite in float16: its weights are corrupted, or its "
                "numbers are too large to train a head on.",
            )
        write_file(path, [Text(sequences[i][0], features[i], (sequences[i][1],)) for i in indices], metadata)
        yield indices.stop


def _require_room(folder: Path, num_bytes: int) -> None:
    """Create the folder; raise OSError if its disk has fewer free bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise OSError(
            f"The disk of {folder} has {gigabytes(free)} free, and the features need {gigabytes(num_bytes)}; free some "
            "space, or name another folder with --features."
        )


def _groups(sizes: Sequence[int], most: int) -> list[range]:
    """Split consecutive texts into groups for files, from their sizes in bytes."""
    groups, start, total = [], 0, 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == most or total + size > GROUP_BYTES):
            groups.append(range(start, index))
            start, total = index, 0
        total += size
    return [*groups, range(start, len(sizes))]


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob(_SHARD.replace("{:05d}", "*")))


def _is_whole(path: Path, sequences: Sequence[tuple[Sequence[int], int]], indices: range, metadata: dict) -> bool:
    """Return whether a file has the features of these texts; a corrupted file is logged and written again.

    Raises:
        ValueError: the file has features of other texts or of another target.
    """
    try:
        file = FeatureFile(path)
        texts = [file.text(index) for index in range(len(file))]
    except FileNotFoundError:
        return False
    except DamagedFeatures as error:
        log.warning("%s It is written again.", error)
        return False
    expected = [(list(sequences[index][0]), (sequences[index][1],)) for index in indices]
    different = [name for name, value in metadata.items() if file.source.get(name) != value]
    if different or [(text.ids.tolist(), text.marks) for text in texts] != expected:
        raise ValueError(
            f"{path} has features of another run (different {', '.join(different) or 'texts'}); name an empty folder."
        )
    return True


def _rows_of(
    sequences: Sequence[tuple[Sequence[int], int]],
    indices: Sequence[int],
    features_of: Callable[[Tensor], Tensor],
    batch_tokens: int,
) -> Iterator[tuple[int, Tensor]]:
    """Yield index and (length, feature_size) float16 features of these texts."""
    for bucket in length_buckets(np.array([len(ids) for ids, _ in sequences]), indices, batch_tokens):
        ids = pad_sequence([torch.tensor(sequences[index][0]) for index in bucket], batch_first=True)
        batch_rows = features_of(ids).to(device="cpu", dtype=torch.float16)
        for index, rows in zip(bucket, batch_rows, strict=True):
            yield index, rows[: len(sequences[index][0])]


def length_buckets(lengths: np.ndarray, indices: Sequence[int], batch_tokens: int) -> list[list[int]]:
    """Group texts of similar length into batches of at most `batch_tokens` tokens, padding included.

    A longer text is a batch of its own.
    """
    batches: list[list[int]] = []
    for index in sorted(indices, key=lambda i: int(lengths[i])):
        if batches and (len(batches[-1]) + 1) * int(lengths[index]) <= batch_tokens:
            batches[-1].append(int(index))
        else:
            batches.append([int(index)])
    return batches


def epoch_batches(
    lengths: np.ndarray, first: int, last: int, batch_tokens: int, seed: int, epoch: int
) -> list[list[int]]:
    """Return the batches of one epoch over the texts first … last − 1, in random order.

    Texts are shuffled, sorted into batches by length within pools, and the batches are shuffled. The order depends only
    on the arguments, so a resumed run uses the same one.
    """
    generator = np.random.default_rng([seed, epoch])
    order = generator.permutation(np.arange(first, last))
    batches = []
    for start in range(0, len(order), POOL):
        batches += length_buckets(lengths, order[start : start + POOL].tolist(), batch_tokens)
    generator.shuffle(batches)
    return batches
