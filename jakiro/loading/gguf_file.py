"""GGUF files: metadata as Python values, tensors as blocks of bytes or as numbers.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package `gguf` defines the block types and
dequantises them. Its reader takes half a minute for a vocabulary of 150,000 tokens, so headers are read here. No file
stays open or mapped, because another program may truncate it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path
from struct import Struct
from typing import BinaryIO

import numpy as np

from jakiro.loading.metadata import check_gguf_metadata

SUFFIX = ".gguf"
_MAGIC, _VERSIONS = b"GGUF", (2, 3)
_STRING, _ARRAY = 8, 9
# Value types: unsigned and signed integers of 8, 16 and 32 bits, float, bool, then 64 bits
_VALUES = {number: Struct(f"<{form}") for number, form in zip([*range(8), 10, 11, 12], "BbHhIif?Qqd", strict=True)}
_U32, _U64 = Struct("<I"), Struct("<Q")
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})", re.DOTALL)
_REMEDY = "fetch or copy it again"

Value = int | float | bool | str | list


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of a file; its content is read on request.

    Attributes:
        kind: ggml's name of its type, such as "F32" or "Q4_K".
        shape: as in torch, rows first.
        path, offset, num_bytes: location of its content.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    num_bytes: int

    def read_bytes(self) -> np.ndarray:
        """Return the stored bytes, uint8, (…, bytes of a row); blocks are contiguous in the last dimension.

        Raises:
            ValueError: the file was truncated since it was opened.
            OSError: the file cannot be read.
        """
        with self.path.open("rb") as file:
            file.seek(self.offset)
            content = np.fromfile(file, dtype=np.uint8, count=self.num_bytes)
        if content.size < self.num_bytes:
            raise ValueError(f"{self.path} ends within {self.name}; {_REMEDY}.")
        return content.reshape(*self.shape[:-1], self.num_bytes // prod(self.shape[:-1]))

    def dequantized(self) -> np.ndarray:
        """Return its values in float32.

        Raises:
            ValueError: the file was truncated, or the type is unsupported.
            OSError: the file cannot be read.
        """
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            return dequantize(self.read_bytes(), GGMLQuantizationType[self.kind]).reshape(self.shape)
        except NotImplementedError as error:
            raise ValueError(f"{self.path}: {self.name} is stored as {self.kind}, which cannot be read.") from error


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A complete model file with all of its shards.

    Attributes:
        path: of the first shard.
        metadata: numbers, texts and lists by key, from the first shard.
        tensors: by name, in the order of the file.
    """

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        return self.metadata["general.architecture"]


def open_gguf(path: Path) -> GgufFile:
    """Read the metadata and the tensor locations of a GGUF file; any shard of a split file can be named.

    Raises:
        ValueError: this is no GGUF file, it is truncated or corrupted, or its shards are incomplete or inconsistent.
        OSError: the file cannot be read.
    """
    paths = parts_of(path)
    metadata, tensors = _read_shard(paths[0])
    if "general.architecture" not in metadata:
        raise ValueError(f"{paths[0]} has no metadata key general.architecture; {_REMEDY}.")
    count = metadata.get("split.count", 1)
    if count != len(paths):
        raise ValueError(
            f"{paths[0]} is part {metadata.get('split.no', 0) + 1} of {count}, but by its name there is {len(paths)}; "
            f"restore the names of its parts: NAME-{1:05}-of-{count:05}{SUFFIX}."
        )
    for number, shard in enumerate(paths):
        shard_metadata, shard_tensors = _read_shard(shard) if number else (metadata, {})
        shard_number = shard_metadata.get("split.no")
        if count > 1 and (shard_number, shard_metadata.get("split.count")) != (number, count):
            raise ValueError(f"{shard} holds part {(shard_number or 0) + 1}, not {number + 1}; {_REMEDY}.")
        repeated = tensors.keys() & shard_tensors.keys()
        if repeated:
            raise ValueError(f"{shard} holds {min(repeated)} a second time; {_REMEDY}.")
        tensors |= shard_tensors
    expected = metadata.get("split.tensors.count", len(tensors))
    if len(tensors) != expected:
        raise ValueError(f"{paths[0]} and its parts hold {len(tensors)} tensors, not {expected}; {_REMEDY}.")
    return GgufFile(paths[0], metadata, tensors)


def is_gguf(path: Path) -> bool:
    """Return whether a file has the suffix of GGUF files."""
    return path.suffix.lower() == SUFFIX


def ggufs_in(folder: Path) -> list[Path]:
    """Return the model files in a folder by name; of a split one the first existing shard."""
    models: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if is_gguf(path) and path.is_file():
            shard = _SHARD.fullmatch(path.stem)
            models.setdefault(path.stem if shard is None else f"{shard[1]}-of-{shard[3]}", path)
    return list(models.values())


def parts_of(path: Path) -> list[Path]:
    """Return the paths of all shards of a file in order; of a file that is not split, its own path.

    Raises:
        ValueError: shards are missing.
    """
    match = _SHARD.fullmatch(path.stem)
    if match is None:
        return [path]
    name, _, count = match.groups()
    paths = [path.with_name(f"{name}-{number:05}-of-{count}{path.suffix}") for number in range(1, int(count) + 1)]
    missing = [shard.name for shard in paths if not shard.is_file()]
    if missing or not paths:
        raise ValueError(f"{path} is one of {int(count)} parts; {', '.join(missing)} must be in the same folder.")
    return paths


def _read_shard(path: Path) -> tuple[dict[str, Value], dict[str, GgufTensor]]:
    """Read the metadata and the tensor locations of one shard."""
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            return _read_header(_HeaderReader(file, size), path, size)
        except (_MalformedError, UnicodeDecodeError, MemoryError, OverflowError) as error:
            reason = str(error) or "it ends too early"
            raise ValueError(f"{path} is truncated or corrupted ({reason}); {_REMEDY}.") from error


def _read_header(data: "_HeaderReader", path: Path, size: int) -> tuple[dict[str, Value], dict[str, GgufTensor]]:
    if data.take(4) != _MAGIC:
        raise ValueError(f"{path} is no GGUF file: it does not begin with GGUF.")
    version = data.number(_U32)
    if version not in _VERSIONS:
        raise ValueError(f"{path} has version {version} of the format; versions 2 and 3, little-endian, are read.")
    num_tensors, num_values = data.number(_U64), data.number(_U64)
    metadata = _unique_names(((data.text(), data.value()) for _ in range(num_values)), path)
    locations = _unique_names(((data.text(), data.location()) for _ in range(num_tensors)), path)
    check_gguf_metadata(metadata, path)
    alignment = metadata.get("general.alignment", 32)
    start = -(-data.position // alignment) * alignment
    tensors = {name: _tensor(name, *location, start, path, size) for name, location in locations.items()}
    for tensor, following in pairwise(sorted(tensors.values(), key=lambda tensor: tensor.offset)):
        if tensor.offset + tensor.num_bytes > following.offset:
            raise ValueError(f"{path}: {tensor.name} and {following.name} overlap; {_REMEDY}.")
    return metadata, tensors


def _tensor(
    name: str, shape: tuple[int, ...], type_number: int, offset: int, start: int, path: Path, size: int
) -> GgufTensor:
    """Return a tensor after checks of its type, shape and location.

    Args:
        type_number: ggml's number of its type.
        offset: bytes from `start`, where the tensors of the file begin.
        size: bytes of the file.
    """
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    try:
        kind = GGMLQuantizationType(type_number)
    except ValueError:
        raise ValueError(f"{path}: {name} is stored as the unknown ggml type {type_number}.") from None
    block_length, block_bytes = GGML_QUANT_SIZES[kind]
    if not shape or 0 in shape or shape[-1] % block_length:
        raise ValueError(f"{path}: {name} of shape {shape} cannot be stored as {kind.name}; {_REMEDY}.")
    num_bytes = prod(shape) // block_length * block_bytes
    if start + offset + num_bytes > size:
        raise ValueError(f"{path} ends before or within {name}: it is truncated; {_REMEDY}.")
    return GgufTensor(name, kind.name, shape, path, start + offset, num_bytes)


def _unique_names(items: Iterator[tuple[str, object]], path: Path) -> dict:
    """Return the items as a dictionary; raise ValueError if a name occurs twice."""
    values = {}
    for name, value in items:
        if name in values:
            raise ValueError(f"{path} names {name} twice; {_REMEDY}.")
        values[name] = value
    return values


class _MalformedError(Exception):
    """A header that does not follow the format."""


class _HeaderReader:
    """Reads the values of a header in order; raises `_MalformedError` if the file ends too early."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._num_left, self.position = file, size, 0

    def take(self, count: int) -> bytes:
        self._num_left -= count
        if self._num_left < 0:
            raise _MalformedError(f"it ends before the {count:,} bytes announced at position {self.position:,}")
        self.position += count
        return self._file.read(count)

    def number(self, form: Struct) -> int | float | bool:
        return form.unpack(self.take(form.size))[0]

    def text(self) -> str:
        return self.take(self.number(_U64)).decode()

    def value(self) -> Value:
        """Read a metadata value; arrays of arrays, which no converter writes, are rejected."""
        kind = self.number(_U32)
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            element_kind, count = self.number(_U32), self.number(_U64)
            if element_kind in _VALUES:
                form = _VALUES[element_kind]
                return [value for (value,) in form.iter_unpack(self.take(count * form.size))]
            if element_kind != _STRING:
                raise _MalformedError(f"an array has elements of the unsupported type {element_kind}")
            return [self.text() for _ in range(count)]
        if kind not in _VALUES:
            raise _MalformedError(f"a metadata value has the unknown type {kind}")
        return self.number(_VALUES[kind])

    def location(self) -> tuple[tuple[int, ...], int, int]:
        """Read the shape, the type and the offset of a tensor."""
        shape = tuple(self.number(_U64) for _ in range(self.number(_U32)))[::-1]
        return shape, self.number(_U32), self.number(_U64)
