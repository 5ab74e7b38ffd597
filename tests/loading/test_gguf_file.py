"""GGUF files on disk: their contents, and errors for truncated, damaged and missing parts."""

import struct

import gguf
import numpy as np
import pytest

from jakiro.loading.gguf_file import ggufs_in, open_gguf
from tests.gguf_files import write_gguf
from tests.support import tiny_model

KINDS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]


def write_tiny(tmp_path, **options):
    return write_gguf(tmp_path / "tiny.gguf", tiny_model(), **options)


def test_metadata_has_the_types_of_the_file(tmp_path):
    values = {"own.number": 7, "own.share": 0.5, "own.flag": True, "own.text": "größer", "own.list": [1, -2, 3]}
    path = write_tiny(tmp_path, keys=values)
    metadata = open_gguf(path).metadata
    assert {key: metadata[key] for key in values} == values
    assert {key: type(metadata[key]) for key in values} == {key: type(value) for key, value in values.items()}
    fields = gguf.GGUFReader(path).fields
    assert metadata == {key: field.contents() for key, field in fields.items() if not key.startswith("GGUF.")}


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_and_numbers_equal_those_of_the_gguf_package(kind, tmp_path):
    path = write_tiny(tmp_path, kind=kind)
    file, reader = open_gguf(path), gguf.GGUFReader(path)
    assert list(file.tensors) == [tensor.name for tensor in reader.tensors]
    for tensor in reader.tensors:
        ours = file.tensors[tensor.name]
        assert (ours.kind, ours.shape) == (tensor.tensor_type.name, tuple(tensor.shape.tolist()[::-1]))
        assert np.array_equal(ours.read_bytes().reshape(-1), np.array(tensor.data).view(np.uint8).reshape(-1))
        assert np.array_equal(ours.dequantized(), gguf.quants.dequantize(tensor.data, tensor.tensor_type))
        assert ours.read_bytes().shape[:-1] == ours.shape[:-1] and ours.dequantized().dtype == np.float32


@pytest.mark.parametrize("named", [1, 2, 3])
def test_all_parts_of_a_split_file_are_read_from_any_part(named, tmp_path):
    complete = open_gguf(write_tiny(tmp_path))
    first = write_tiny(tmp_path, parts=3)
    split = open_gguf(first.with_name(f"tiny-{named:05}-of-00003.gguf"))
    assert split.path == first and split.tensors.keys() == complete.tensors.keys()
    for name, tensor in complete.tensors.items():
        assert np.array_equal(split.tensors[name].dequantized(), tensor.dequantized())
    assert split.architecture == "llama"


def test_missing_or_wrong_parts_are_named(tmp_path):
    first = write_tiny(tmp_path, parts=3)
    second, third = (first.with_name(f"tiny-{number:05}-of-00003.gguf") for number in (2, 3))
    content = third.read_bytes()
    third.unlink()
    with pytest.raises(ValueError, match=r"is one of 3 parts; tiny-00003-of-00003\.gguf must be in the same folder"):
        open_gguf(first)
    third.write_bytes(second.read_bytes())
    with pytest.raises(ValueError, match=r"tiny-00003-of-00003\.gguf holds part 2, not 3"):
        open_gguf(first)
    third.write_bytes(content)
    renamed = tmp_path / "alone.gguf"
    renamed.write_bytes(first.read_bytes())
    with pytest.raises(ValueError, match=r"alone\.gguf is part 1 of 3, but by its name there is 1; restore the"):
        open_gguf(renamed)


def test_truncated_file_is_refused_at_any_length(tmp_path):
    path = write_tiny(tmp_path)
    content = path.read_bytes()
    end = max(tensor.offset + tensor.num_bytes for tensor in open_gguf(path).tensors.values())
    for size in [*range(0, 4000, 61), *range(4000, end, 9973), end - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(ValueError, match=r"tiny\.gguf (is no GGUF file|is truncated|ends before)"):
            open_gguf(path)


def test_file_truncated_after_it_was_opened_is_refused(tmp_path):
    path = write_tiny(tmp_path)
    tensor = list(open_gguf(path).tensors.values())[-1]
    path.write_bytes(path.read_bytes()[: tensor.offset + tensor.num_bytes // 2])
    with pytest.raises(ValueError, match=f"ends within {tensor.name}"):
        tensor.dequantized()


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: b"GGML" + data[4:], "is no GGUF file"),
        (lambda data: data[:4] + struct.pack("<I", 1) + data[8:], "has version 1 of the format"),
        (lambda data: data[:4] + struct.pack(">I", 3) + data[8:], "has version 50331648 of the format"),
        (lambda data: data[:8] + struct.pack("<Q", 1 << 60) + data[16:], "is truncated or corrupted"),
        (lambda data: data.replace(b"blk.1.attn_q.weight", b"blk.0.attn_q.weight"), "attn_q.weight twice"),
        (lambda data: data.replace(b"llama.vocab_size", b"llama.\xff\xfeize___"), "is truncated or corrupted .*codec"),
    ],
)  # fmt: skip
def test_damaged_file_is_refused_in_one_sentence(damage, sentence, tmp_path):
    path = write_tiny(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=sentence):
        open_gguf(path)


def test_overlapping_tensors_and_unknown_types_are_refused(tmp_path):
    path = write_tiny(tmp_path)
    data = path.read_bytes()
    name = b"blk.0.attn_q.weight"
    offset = data.index(name) + len(name) + 4 + 2 * 8
    overlapping = data[: offset + 4] + struct.pack("<Q", 0) + data[offset + 12 :]
    path.write_bytes(overlapping)
    with pytest.raises(ValueError, match="overlap"):
        open_gguf(path)
    path.write_bytes(data[:offset] + struct.pack("<I", 250) + data[offset + 4 :])
    with pytest.raises(ValueError, match=r"blk\.0\.attn_q\.weight is stored as the unknown ggml type 250"):
        open_gguf(path)


def test_models_of_a_folder_are_found_in_any_case_and_a_split_one_once(tmp_path):
    write_tiny(tmp_path, parts=3)
    (tmp_path / "Model.GGUF").touch()
    (tmp_path / "notes.txt").touch()
    assert [path.name for path in ggufs_in(tmp_path)] == ["Model.GGUF", "tiny-00001-of-00003.gguf"]


def test_deeply_nested_arrays_are_refused(tmp_path):
    path = write_tiny(tmp_path, keys={"own.list": [1]})
    data = path.read_bytes()
    offset = data.index(b"own.list") + len("own.list")
    path.write_bytes(data[: offset + 4] + struct.pack("<IQ", 9, 1) * 20_000 + data[offset + 4 :])
    with pytest.raises(ValueError, match=r"is truncated or corrupted .an array has elements of the unsupported type 9"):
        open_gguf(path)
