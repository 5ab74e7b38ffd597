"""GGUF files as they lie on disk: metadata as Python values, tensors as blocks of bytes or as numbers.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package `gguf` knows the types of blocks and
what they stand for; its own reader takes half a minute for a vocabulary of 150,000 tokens, so bytes are read here. No
file stays open or mapped: somebody may cut it.
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
# Of a value, by its type: unsigned and signed numbers of 8, 16 and 32 bits, float, bool, then 64 bits
_VALUES = {number: Struct(f"<{form}") for number, form in zip([*range(8), 10, 11, 12], "BbHhIif?Qqd", strict=True)}
_U32, _U64 = Struct("<I"), Struct("<Q")
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})", re.DOTALL)
_AGAIN = "fetch or copy it again"

Value = int | float | bool | str | list


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """A tensor of a file, of which nothing but its place is read yet.

    Attributes:
        kind: the type of its numbers, as ggml calls it: "F32", "Q4_K".
        shape: rows first, as torch has it.
        path, offset, num_bytes: where it lies.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    path: Path
    offset: int
    num_bytes: int

    def blocks(self) -> np.ndarray:
        """Its bytes, uint8, (…, bytes of a row): blocks lie along the last dimension.

        Raises:
            ValueError: the file was cut since it was opened.
            OSError: it cannot be read.
        """
        with self.path.open("rb") as file:
            file.seek(self.offset)
            found = np.fromfile(file, dtype=np.uint8, count=self.num_bytes)
        if found.size < self.num_bytes:
            raise ValueError(f"{self.path} ends within {self.name}; {_AGAIN}.")
        return found.reshape(*self.shape[:-1], self.num_bytes // prod(self.shape[:-1]))

    def numbers(self) -> np.ndarray:
        """What its blocks stand for, float32, of `shape`; errors are `blocks`', and a type that is no weight's."""
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        try:
            return dequantize(self.blocks(), GGMLQuantizationType[self.kind]).reshape(self.shape)
        except NotImplementedError as error:
            raise ValueError(f"{self.path}: {self.name} is stored as {self.kind}, which cannot be read.") from error


@dataclass(frozen=True, slots=True)
class GgufFile:
    """A whole model file, of all its parts.

    Attributes:
        path: of its first part.
        metadata: by key, numbers, texts and lists; of a split file the first part's.
        tensors: by name, in the file's order.
    """

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, GgufTensor]

    @property
    def architecture(self) -> str:
        return self.metadata["general.architecture"]


def open_gguf(path: Path) -> GgufFile:
    """Reads a GGUF file's metadata and where its tensors lie, of a split file whichever part is named.

    Raises:
        ValueError: it is no GGUF file, is cut or damaged, a part is missing, or parts don't belong together.
        OSError: it cannot be read.
    """
    paths = parts_of(path)
    metadata, tensors = _read(paths[0])
    if "general.architecture" not in metadata:
        raise ValueError(f"{paths[0]} does not say which architecture it holds.")
    count = metadata.get("split.count", 1)
    if count != len(paths):
        raise ValueError(
            f"{paths[0]} is part {metadata.get('split.no', 0) + 1} of {count}, and its name says {len(paths)}; give "
            f"the parts their names back: NAME-{1:05}-of-{count:05}{SUFFIX}."
        )
    for number, part in enumerate(paths):
        about, found = (metadata, tensors) if number == 0 else _read(part)
        if count > 1 and (about.get("split.no"), about.get("split.count")) != (number, count):
            raise ValueError(f"{part} holds part {about.get('split.no', 0) + 1}, not {number + 1}; {_AGAIN}.")
        twice = tensors.keys() & found.keys() if number else ()
        if twice:
            raise ValueError(f"{part} holds {min(twice)} a second time; {_AGAIN}.")
        tensors |= found
    expected = metadata.get("split.tensors.count", len(tensors))
    if len(tensors) != expected:
        raise ValueError(f"{paths[0]} and its parts hold {len(tensors)} tensors, not {expected}; {_AGAIN}.")
    return GgufFile(paths[0], metadata, tensors)


def is_gguf(path: Path) -> bool:
    """Whether a file's name says that it is one."""
    return path.suffix.lower() == SUFFIX


def ggufs_in(folder: Path) -> list[Path]:
    """The model files in a folder by name; of a split one the first part that is there."""
    models: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if is_gguf(path) and path.is_file():
            part = _PART.fullmatch(path.stem)
            models.setdefault(path.stem if part is None else f"{part[1]}-of-{part[3]}", path)
    return list(models.values())


def parts_of(path: Path) -> list[Path]:
    """All parts of a file by their names, in order; itself where it is not split.

    Raises:
        ValueError: parts are missing.
    """
    found = _PART.fullmatch(path.stem)
    if found is None:
        return [path]
    name, _, count = found.groups()
    paths = [path.with_name(f"{name}-{number:05}-of-{count}{path.suffix}") for number in range(1, int(count) + 1)]
    missing = [part.name for part in paths if not part.is_file()]
    if missing or not paths:
        raise ValueError(f"{path} is one of {int(count)} parts; beside it {', '.join(missing)} must lie.")
    return paths


def _read(path: Path) -> tuple[dict[str, Value], dict[str, GgufTensor]]:
    """Metadata and tensors of one part."""
    size = path.stat().st_size
    with path.open("rb") as file:
        try:
            return _read_header(_HeaderReader(file, size), path, size)
        except (_MalformedError, UnicodeDecodeError, MemoryError, OverflowError) as error:
            raise ValueError(f"{path} is cut or damaged ({str(error) or 'it ends too soon'}); {_AGAIN}.") from error


def _read_header(data: "_HeaderReader", path: Path, size: int) -> tuple[dict[str, Value], dict[str, GgufTensor]]:
    from gguf import GGML_QUANT_SIZES

    if data.take(4) != _MAGIC:
        raise ValueError(f"{path} is no GGUF file: it does not begin with GGUF.")
    version = data.number(_U32)
    if version not in _VERSIONS:
        raise ValueError(f"{path} has version {version} of the format; versions 2 and 3, little-endian, are read.")
    num_tensors, num_values = data.number(_U64), data.number(_U64)
    metadata = dict(_each_once(((data.text(), data.value()) for _ in range(num_values)), path))
    places = dict(_each_once(((data.text(), data.place()) for _ in range(num_tensors)), path))
    check_gguf_metadata(metadata, path)
    alignment = metadata.get("general.alignment", 32)
    start = -(-data.position // alignment) * alignment
    known = {kind.value: (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}
    tensors = {}
    for name, (shape, number, offset) in places.items():
        if number not in known:
            raise ValueError(f"{path}: {name} is stored as ggml type {number}, which the package gguf does not know.")
        kind, numbers, num_bytes = known[number]
        if not shape or 0 in shape or shape[-1] % numbers:
            raise ValueError(f"{path}: {name} of shape {shape} cannot be stored as {kind}; {_AGAIN}.")
        tensor = GgufTensor(name, kind, shape, path, start + offset, prod(shape) // numbers * num_bytes)
        if tensor.offset + tensor.num_bytes > size:
            raise ValueError(f"{path} ends before or within {name}: it was cut; {_AGAIN}.")
        tensors[name] = tensor
    in_order = sorted(tensors.values(), key=lambda tensor: tensor.offset)
    for before, after in pairwise(in_order):
        if before.offset + before.num_bytes > after.offset:
            raise ValueError(f"{path}: {before.name} and {after.name} overlap; {_AGAIN}.")
    return metadata, tensors


def _each_once(found: Iterator[tuple[str, object]], path: Path) -> Iterator[tuple[str, object]]:
    seen = set()
    for name, value in found:
        if name in seen:
            raise ValueError(f"{path} names {name} twice; {_AGAIN}.")
        seen.add(name)
        yield name, value


class _MalformedError(Exception):
    """A header that does not follow the format."""


class _HeaderReader:
    """Reads the values of a header in order; raises `_MalformedError` if the file ends too early."""

    def __init__(self, file: BinaryIO, size: int):
        self._file, self._left, self.position = file, size, 0

    def take(self, count: int) -> bytes:
        self._left -= count
        if self._left < 0:
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

    def place(self) -> tuple[tuple[int, ...], int, int]:
        """A tensor's shape, type and offset."""
        shape = tuple(self.number(_U64) for _ in range(self.number(_U32)))[::-1]
        return shape, self.number(_U32), self.number(_U64)
