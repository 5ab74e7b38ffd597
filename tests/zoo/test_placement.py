"""Where a target's weights go: estimates, refusals with both numbers, models spread over memory and disk."""

import copy

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import save_head
from jakiro.target.model import TargetModel
from jakiro.zoo import placement, weights
from jakiro.zoo.loading import LoadOptions, load_parts
from tests.support import byte_tokenizer, prompt_ids, reference_answer, tiny_head, tiny_model

TREE = TreeConfig(width=3, depth=4, nodes=10)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Folders of a tiny four-layer target and of a head for it."""
    folder = tmp_path_factory.mktemp("pair")
    model = tiny_model(layers=4)
    save_head(tiny_head(TargetModel(copy.deepcopy(model), byte_tokenizer())), folder / "head")
    model.save_pretrained(folder / "target")
    byte_tokenizer().save_pretrained(folder / "target")
    return model, folder


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("free", [350_000, 700_000])
def test_a_model_split_between_memory_and_disk_writes_the_same_text(saved, free, own_cache, monkeypatch):
    model, folder = saved
    monkeypatch.setattr(placement, "free_memory", lambda device: free)
    options = LoadOptions(str(folder / "target"), str(folder / "head"), "auto", "float32")
    generator = JakiroGenerator.load(options)
    places = set(generator.target.model.hf_device_map.values())
    assert places == {"cpu", "disk"} and generator.target.lean is None
    assert any("on the disk" in notice for notice in generator.notices)
    sampling = SamplingParams(max_new_tokens=12)
    expected = reference_answer(model, prompt_ids("Hello"), sampling, generator.target.stop_ids)
    assert generator.run("Hello", sampling, method="autoregressive").token_ids == expected
    assert generator.run("Hello", sampling, tree=TREE).token_ids == expected


def test_a_model_too_large_for_its_device_is_refused_with_both_numbers(saved, own_cache, monkeypatch):
    monkeypatch.setattr(placement, "free_memory", lambda device: 500_000)
    monkeypatch.setattr(weights, "load_model", lambda *a, **k: pytest.fail("weights were read"))
    with pytest.raises(ValueError, match=r"needs about 2\.\d MB in float32 .* cpu has 0\.5 MB free; choose a smaller"):
        load_parts(LoadOptions(str(saved[1] / "target"), "none", "cpu", "float32"))


@pytest.mark.parametrize(("held", "fits_alone"), [(0, False), (10**7, True)])
def test_a_gpu_that_holds_a_target_only_in_fewer_bits_names_that_dtype(saved, held, fits_alone, monkeypatch):
    config, cuda = saved[0].config, torch.device("cuda", 0)
    in_8_bits = placement.memory_needed(config, torch.float16, 8)
    monkeypatch.setattr(placement, "free_memory", lambda device: in_8_bits.total / placement.USABLE_SHARE + 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: held)
    with pytest.raises(
        placement.NoRoom, match=r"free; with --dtype 8bit it needs [\d.]+ MB and fits; else choose"
    ) as no:
        placement.place("it", config, cuda, torch.float16, None, None)
    assert no.value.fits_alone == fits_alone


def test_the_estimate_counts_the_parameters_that_are_there(saved):
    model = saved[0]
    size = sum(parameter.numel() for parameter in model.parameters())
    needed = placement.memory_needed(model.config, torch.float32)
    assert needed.weights == 4 * size and needed.cache == 2 * 4 * 2 * 16 * 4 * placement.CACHE_TOKENS
    assert placement.memory_needed(model.config, torch.bfloat16).weights == 2 * size
    assert placement.memory_needed(model.config, torch.bfloat16, 4).weights < 2 * size


@pytest.mark.parametrize("dtype", ["4bit", "8bit"])
def test_bits_need_bitsandbytes(saved, dtype, own_cache, monkeypatch):
    """But for 8 bits on a CPU, which compiled code multiplies."""
    monkeypatch.setattr(placement.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr("jakiro.zoo.loading.native_works", lambda: False)
    with pytest.raises(ValueError, match=rf"Loading in {dtype[0]} bits needs the package bitsandbytes, which is not"):
        load_parts(LoadOptions(str(saved[1] / "target"), "none", "cpu", dtype))
