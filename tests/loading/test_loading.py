"""Loading of a pair: dtypes, numerics, hashes and memory."""

import threading
from dataclasses import replace

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import save_head
from jakiro.loading import checksums, loader, placement, weights
from jakiro.loading.loader import LoadOptions, load_parts
from jakiro.models.target import TargetModel
from tests.support import DEVICE, byte_tokenizer, save_pair, save_target, tiny_head, tiny_model, tiny_target


@pytest.mark.skipif(DEVICE.type != "cpu", reason="a GPU runs all passes with the same number of rows")
@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, 1), (torch.bfloat16, 2)])
def test_half_precision_never_runs_a_single_row(dtype, rows):
    """Rounding hides most differences of a single row's kernel, so that a probe may not detect them."""
    target = TargetModel(tiny_model().to(dtype), byte_tokenizer())
    assert target.row_bucket(1) == rows or not target.bit_identical
    assert target.row_bucket(5) == 5


@pytest.mark.parametrize(
    ("capability", "numerics"),
    [((9, 0), "exact"), ((8, 0), "exact"), ((7, 5), "fast"), ((8, 6), "fast"), ((8, 9), "fast")],
)
def test_gpus_with_slow_float64_use_fast_numerics_with_a_notice(capability, numerics, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A10G")
    chosen, notice = loader.choose_numerics(None, torch.device("cuda"))
    assert chosen == numerics and (notice is None) == (numerics == "exact")
    assert notice is None or "NVIDIA A10G computes float64 slowly" in notice
    assert loader.choose_numerics("exact", torch.device("cuda")) == ("exact", None)


def test_weights_are_loaded_directly_to_a_gpu(monkeypatch):
    """A machine with 12 GB of memory could not load a 7B model otherwise."""
    monkeypatch.setattr(placement, "free_memory", lambda device: 10**9)
    config = tiny_model().config
    _, placed = placement.place("tiny", config, torch.device("cuda"), torch.bfloat16)
    assert placed == {"device_map": {"": "cuda"}}
    assert placement.place("tiny", config, torch.device("cpu"), torch.float32)[1] == {}


def test_files_are_hashed_before_a_gpu_is_borrowed(own_cache, tmp_path, monkeypatch):
    save_pair(tmp_path)
    options = loader.LoadOptions(str(tmp_path / "target"), str(tmp_path / "head"), "cpu", "float32")
    read = loader.read_pair(options)
    monkeypatch.setattr(loader, "head_sha256", lambda path: pytest.fail("a file was read while the GPU is held"))
    assert len(loader.start_pair(read).resources.head_info["sha256"]) == 64


def test_large_weights_are_hashed_after_the_model_is_ready(own_cache, tmp_path, monkeypatch):
    head = tiny_head(tiny_target())
    head.config = replace(head.config, target_sha256="f" * 64)
    save_head(head, tmp_path / "head")
    save_target(tmp_path / "target")
    read, hash_weights = threading.Event(), checksums.hash_weights
    monkeypatch.setattr(checksums, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(checksums, "hash_weights", lambda folder: (read.wait(180), hash_weights(folder))[1])
    options = loader.LoadOptions(str(tmp_path / "target"), str(tmp_path / "head"), "cpu", "float32")
    generator = JakiroGenerator.load(options)
    trace = generator.run("Why?", SamplingParams(max_new_tokens=2), "autoregressive")
    assert trace.header.target["sha256"] is None and not any(
        "trained for" in notice for notice in generator.status["notices"]
    )
    read.set()
    (hashing,) = (thread for thread in threading.enumerate() if thread.name == "hash-weights")
    hashing.join(180)
    assert generator.target.sha256 == checksums.weights_sha256(tmp_path / "target")
    assert any("was trained for weights ffffffffffff" in notice for notice in generator.status["notices"])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return a tiny four-layer target and its folder."""
    folder, model = tmp_path_factory.mktemp("target"), tiny_model(layers=4)
    save_target(folder, model)
    return model, folder


def test_model_too_large_for_its_device_is_refused_with_both_numbers(saved, own_cache, monkeypatch):
    monkeypatch.setattr(placement, "free_memory", lambda device: 500_000)
    monkeypatch.setattr(weights, "load_model", lambda *a, **k: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=r"needs about 2\.\d MB in float32 .* cpu has 0\.5 MB free; choose a smaller"):
        load_parts(LoadOptions(str(saved[1]), "none", "cpu", "float32"))


@pytest.mark.parametrize(("reserved", "fits_alone"), [(0, False), (10**7, True)])
def test_gpu_that_fits_a_target_only_in_fewer_bits_names_that_dtype(saved, reserved, fits_alone, monkeypatch):
    config, cuda = saved[0].config, torch.device("cuda", 0)
    in_8_bits = placement.memory_needed(config, torch.float16, 8)
    monkeypatch.setattr(placement, "free_memory", lambda device: in_8_bits.total / placement.USABLE_SHARE + 1)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
    with pytest.raises(
        placement.NoRoom, match=r"free; with --dtype 8bit it needs [\d.]+ MB and fits; else choose"
    ) as no:
        placement.place("it", config, cuda, torch.float16)
    assert no.value.fits_alone == fits_alone


def test_estimate_counts_all_parameters(saved):
    model = saved[0]
    size = sum(parameter.numel() for parameter in model.parameters())
    needed = placement.memory_needed(model.config, torch.float32)
    assert needed.weights == 4 * size and needed.cache == 2 * 4 * 2 * 16 * 4 * placement.CACHE_TOKENS
    assert placement.memory_needed(model.config, torch.bfloat16).weights == 2 * size
    assert placement.memory_needed(model.config, torch.bfloat16, 4).weights < 2 * size


@pytest.mark.parametrize("dtype", ["4bit", "8bit"])
def test_4bit_and_8bit_require_bitsandbytes(saved, dtype, own_cache, monkeypatch):
    """Except 8 bits on a CPU, which compiled code supports."""
    monkeypatch.setattr(placement.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("jakiro.loading.loader.native_works", lambda: False)
    with pytest.raises(ValueError, match=rf"Loading in {dtype[0]} bits needs the package bitsandbytes, which is not"):
        load_parts(LoadOptions(str(saved[1]), "none", "cpu", dtype))
