"""Which dtype a processor gets, and that half precision keeps the bits."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import save_head
from jakiro.target.model import TargetModel
from jakiro.zoo import hashes, loading, placement
from tests.support import DEVICE, byte_tokenizer, tiny_head, tiny_model, tiny_target


@pytest.mark.skipif(DEVICE.type != "cpu", reason="a GPU runs all passes with the same number of rows")
@pytest.mark.parametrize(("dtype", "rows"), [(torch.float32, 1), (torch.bfloat16, 2)])
def test_half_precision_never_runs_a_row_alone(dtype, rows):
    """Most differences of a single row's kernel round away there, so that a probe may find none."""
    target = TargetModel(tiny_model().to(dtype), byte_tokenizer())
    assert target.row_bucket(1) == rows or not target.bit_identical
    assert target.row_bucket(5) == 5


@pytest.mark.parametrize(
    ("capability", "numerics"),
    [((9, 0), "exact"), ((8, 0), "exact"), ((7, 5), "fast"), ((8, 6), "fast"), ((8, 9), "fast")],
)
def test_gpus_that_compute_float64_slowly_take_fast_numerics_and_say_so(capability, numerics, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA A10G")
    chosen, notice = loading.choose_numerics(None, torch.device("cuda"))
    assert chosen == numerics and (notice is None) == (numerics == "exact")
    assert notice is None or "NVIDIA A10G computes float64 slowly" in notice
    assert loading.choose_numerics("exact", torch.device("cuda")) == ("exact", None)


def test_weights_go_straight_to_a_gpu(monkeypatch):
    """Through memory a machine with 12 GB could not load a 7B model."""
    monkeypatch.setattr(placement, "free_memory", lambda device: 10**9)
    config = tiny_model().config
    placed = placement.place("tiny", config, torch.device("cuda"), torch.bfloat16, None, Path("offload"))
    assert placed.options == {"device_map": {"": "cuda"}}
    assert not placement.place("tiny", config, torch.device("cpu"), torch.float32, None, Path("offload")).options


def test_files_are_hashed_before_a_gpu_is_borrowed(tmp_path, monkeypatch):
    save_head(tiny_head(tiny_target()), tmp_path / "head")
    tiny_model().save_pretrained(tmp_path / "target")
    byte_tokenizer().save_pretrained(tmp_path / "target")
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    options = loading.LoadOptions(str(tmp_path / "target"), str(tmp_path / "head"), "cpu", "float32")
    read = loading.read_pair(options)
    monkeypatch.setattr(loading, "head_sha256", lambda path: pytest.fail("a file was read while the GPU is held"))
    assert len(loading.start_pair(read).resources.head_info["sha256"]) == 64


def test_large_weights_are_hashed_while_the_model_is_ready_already(tmp_path, monkeypatch):
    head = tiny_head(tiny_target())
    head.config = replace(head.config, target_sha256="f" * 64)
    save_head(head, tmp_path / "head")
    tiny_model().save_pretrained(tmp_path / "target")
    byte_tokenizer().save_pretrained(tmp_path / "target")
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    read, hash_weights = threading.Event(), hashes.hash_weights
    monkeypatch.setattr(hashes, "PATIENCE_SECONDS", 0.01)
    monkeypatch.setattr(hashes, "hash_weights", lambda folder: (read.wait(30), hash_weights(folder))[1])
    options = loading.LoadOptions(str(tmp_path / "target"), str(tmp_path / "head"), "cpu", "float32")
    generator = JakiroGenerator.load(options)
    trace = generator.run("Why?", SamplingParams(max_new_tokens=2), "autoregressive")
    assert trace.header.target["sha256"] is None and not any(
        "trained for" in each for each in generator.status["notices"]
    )
    read.set()
    (hashing,) = (thread for thread in threading.enumerate() if thread.name == "hash-weights")
    hashing.join(30)
    assert generator.target.sha256 == hashes.weights_sha256(tmp_path / "target")
    assert any("was trained for weights ffffffffffff" in each for each in generator.status["notices"])


def test_loading_turns_cudnn_s_attention_off(tmp_path, monkeypatch):
    """It plans for tens of milliseconds at every new length of the keys."""
    tiny_model().save_pretrained(tmp_path / "target")
    byte_tokenizer().save_pretrained(tmp_path / "target")
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    torch.backends.cuda.enable_cudnn_sdp(True)
    loading.load_parts(loading.LoadOptions(str(tmp_path / "target"), "none", "cpu", "float32"))
    assert not torch.backends.cuda.cudnn_sdp_enabled()
