"""Which dtype a processor gets: bfloat16 only in hardware, and never at the price of the same bits."""

import pytest
import torch

from jakiro.generator import JakiroGenerator
from jakiro.target.model import TargetModel
from jakiro.zoo import loading, weights
from jakiro.zoo.loading import LoadOptions
from tests.support import byte_tokenizer, tiny_model


@pytest.mark.parametrize(
    ("capabilities", "dtype"),
    [
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, torch.float32),
        ({"avx512_f": True, "avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True}, torch.bfloat16),
        ({"neon": True, "bf16": True}, torch.bfloat16),
        ({}, torch.float32),
    ],
)
def test_bfloat16_needs_hardware_that_multiplies_it(monkeypatch, capabilities, dtype):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)

    assert loading.choose_dtype(None, torch.device("cpu")) is dtype


@pytest.mark.parametrize(
    ("asked", "numerics", "loaded"),
    [
        (None, "exact", ["bfloat16", "float32"]),
        (None, "fast", ["bfloat16"]),
        ("bfloat16", "exact", ["bfloat16"]),
    ],
)
def test_a_bfloat16_that_rounds_differently_gives_way_to_float32_unless_asked_for(
    monkeypatch, tmp_path, asked, numerics, loaded
):
    tried = []
    load_target, probe = weights.load_target, TargetModel.probe_bit_identity

    def recorded(name, device, dtype, **options):
        tried.append(str(dtype).removeprefix("torch."))
        return load_target(name, device, dtype, **options)

    monkeypatch.setattr(loading, "cpu_computes_bfloat16", lambda: True)
    monkeypatch.setattr(weights, "load_target", recorded)
    monkeypatch.setattr(TargetModel, "probe_bit_identity", lambda self: self.dtype is torch.float32 and probe(self))

    tiny_model().save_pretrained(tmp_path / "target")
    byte_tokenizer().save_pretrained(tmp_path / "target")

    generator = JakiroGenerator.load(LoadOptions(str(tmp_path / "target"), "none", "cpu", asked, numerics))

    assert tried == loaded
    assert generator.status["dtype"] == loaded[-1]
