"""Stored hashes: weights that changed with the same size and time are detected, and their hash is dropped."""

import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from jakiro.loading.checksums import is_corrupted, weights_sha256


@pytest.fixture
def weights(own_cache, tmp_path) -> Path:
    """Return a file of weights with a stored hash."""
    path = tmp_path / "weights" / "model.safetensors"
    path.parent.mkdir()
    save_file({"weight": torch.arange(64, dtype=torch.float32)}, path)
    assert weights_sha256(path.parent) and not is_corrupted(path.parent)
    return path


@pytest.mark.parametrize("place", ["header", "numbers"])
def test_changed_bytes_with_the_same_size_and_time_are_detected(place, weights):
    """A changed number changes the hash; a changed header makes the file unreadable, which also counts as damage."""
    folder, times = weights.parent, weights.stat()
    content = bytearray(weights.read_bytes())
    at = 0 if place == "header" else len(content) - 1
    content[at] ^= 0xFF
    weights.write_bytes(content)
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert is_corrupted(folder)
    assert not is_corrupted(folder), "the wrong hash must be dropped, so that the next start computes it"
