"""Targets that accelerate spreads over memory and disk: places, refusals, texts, tree sizes."""

from dataclasses import replace

import pytest
import torch
from accelerate import dispatch_model
from transformers import AutoConfig, AutoModelForCausalLM

from jakiro import JakiroGenerator, SamplingParams
from jakiro.backends.torch_backend import TorchBackend
from jakiro.cli.doctor import check_pair
from jakiro.config import AUTOMATIC_TREE, MOST_NODES, TreeConfig
from jakiro.decode import device_profile
from jakiro.decode.device_profile import DeviceProfile
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN
from jakiro.loading.loader import LoadOptions
from jakiro.loading.spread import plan_spread
from jakiro.loading.weights import load_config
from jakiro.models.target import TargetModel
from tests.device_tags import PRETENDED, DeviceTags
from tests.marks import often
from tests.models.test_families import FAMILIES, SMALL
from tests.support import (
    byte_tokenizer,
    heads_of,
    save_pair,
    tiny_generator,
    tiny_model,
    tiny_resources,
)

PROMPT = "the cat sat on the mat; the cat sat"
KB = 1000


def spread(model, folder):
    """Return the model with its layers on disk and all other modules on the CPU."""
    blocks = {name for name, module in model.named_modules() if type(module).__name__ in model._no_split_modules}
    leaves = [name for name, module in model.named_modules() if name and not list(module.children())]
    outside = [name for name in leaves if not any(name.startswith(f"{block}.") for block in blocks)]
    device_map = dict.fromkeys(blocks, "disk") | dict.fromkeys(outside, "cpu")
    return dispatch_model(model, device_map, offload_dir=str(folder), skip_keys=model._skip_keys_device_placement)


def spread_target(folder, model=None, numerics="exact") -> TargetModel:
    model = tiny_model() if model is None else model
    return TargetModel(spread(model, folder), byte_tokenizer(), "tiny", "0" * 64, numerics)


def assert_on_disk(target: TargetModel) -> None:
    parameters = dict(target.model.named_parameters())
    assert {parameter.device.type for name, parameter in parameters.items() if "layers" in name} == {"meta"}
    assert target.is_spread and target.fused is None


@pytest.fixture
def pair(own_cache, tmp_path):
    return save_pair(tmp_path)


def sizes_of(model) -> tuple[int, int]:
    """Return the bytes of a layer and of all other weights."""
    layer = sum(parameter.nbytes for parameter in model.model.layers[0].parameters())
    return layer, sum(parameter.nbytes for parameter in model.parameters()) - 2 * layer


def test_limits_decide_how_many_layers_are_on_disk(pair, tmp_path):
    layer, other_bytes = sizes_of(tiny_model())
    config = load_config(str(pair / "target"))

    def places(num_bytes):
        return plan_spread("some/tiny", config, torch.float32, f"cpu:{num_bytes / KB}KB", str(tmp_path))

    assert places(other_bytes + 2 * layer + KB) is None
    plan = places(other_bytes + 2 * layer - 2)
    device_map = plan.device_map
    assert {device_map[name] for name in ("model.embed_tokens", "model.norm", "lm_head")} == {"cpu"}
    on_disk = [device_map[f"model.layers.{number}"] for number in range(2)].count("disk")
    assert on_disk >= 1 and plan.sizes["disk"] == on_disk * layer and plan.pass_bytes == (0, on_disk * layer)
    assert plan.load_options["offload_folder"] == str(tmp_path / "tiny-float32")
    with pytest.raises(ValueError, match=r"output layer of some/tiny need .* on cpu, but its limit is .*raise"):
        places(other_bytes - 2)


def test_gpu_is_filled_before_memory_and_disk(pair, tmp_path, monkeypatch):
    config = AutoConfig.for_model("llama", **SMALL | {"num_hidden_layers": 12})
    layer = plan_spread("tiny", config, torch.float32, "cpu:400KB").sizes["disk"] // 12
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    _, other_bytes = sizes_of(tiny_model())
    plan = plan_spread("tiny", config, torch.float32, f"0:{(other_bytes + 5 * layer) / KB}KB,cpu:{4 * layer / KB}KB")
    places = [plan.device_map[f"model.layers.{number}"] for number in range(12)]
    assert places == sorted(places, key=(0, "cpu", "disk").index) and set(places) == {0, "cpu", "disk"}
    assert plan.device_map["lm_head"] == 0
    copied, read = plan.pass_bytes
    assert (copied, read) == (places.count("cpu") * layer, places.count("disk") * layer)
    assert f"{places.count('disk')} modules on disk" in str(plan) and "modules on GPU 0" in str(plan)


@pytest.mark.parametrize("text", ["cpu", "cpu:", "cpu:many", "gpu:3GB", "7:3GB", "disk:3GB", "cpu:1GB,", "cpu:-1GB"])
def test_limits_that_name_no_device_or_size_are_one_sentence(text, pair):
    config = load_config(str(pair / "target"))
    with pytest.raises(ValueError, match=r"--max-memory takes DEVICE:SIZE pairs such as 0:20GiB,cpu:60GiB, .*; got '"):
        plan_spread("tiny", config, torch.float32, text)


@pytest.mark.parametrize(("options", "sentence"), [
    ({"max_memory": "cpu:1GB"}, "--max-memory has no effect without --device auto"),
    ({"offload_folder": "x", "device": "cpu"}, "--offload-folder has no effect without --device auto"),
])  # fmt: skip
def test_options_without_effect_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        LoadOptions(**options)


def options_of(pair, **options) -> LoadOptions:
    limit = sizes_of(tiny_model())[1] + KB
    where = {"max_memory": f"cpu:{limit / KB}KB", "offload_folder": str(pair / "offload")}
    where |= {"device": "auto", "dtype": "float32"}
    return LoadOptions(str(pair / "target"), str(pair / "head"), **where | options)


@pytest.mark.rare
def test_pair_is_loaded_with_layers_on_disk_and_writes_the_same_texts(pair):
    generator = JakiroGenerator.load(options_of(pair))
    assert_on_disk(generator.target)
    assert type(generator.backend) is TorchBackend
    (notice,) = [notice for notice in generator.status["notices"] if "spread over devices" in notice]
    assert "2 modules on disk" in notice and "no CUDA graphs and no packed weights" in notice
    on_cpu = JakiroGenerator.from_pretrained(str(pair / "target"), str(pair / "head"), "cpu", "float32")
    for temperature in (0.0, 1.0):
        sampling = SamplingParams(temperature, max_new_tokens=16)
        expected = on_cpu.run(PROMPT, sampling, PLAIN.name).token_ids
        assert [generator.run(PROMPT, sampling, name).token_ids for name in (PLAIN.name, DEFAULT.name)] == [
            expected
        ] * 2


def test_auto_is_one_device_where_everything_fits(pair):
    generator = JakiroGenerator.load(options_of(pair, max_memory=None, offload_folder=None))
    assert not generator.target.is_spread and not any("spread" in notice for notice in generator.status["notices"])


def test_weights_in_few_bits_are_not_spread(pair):
    with pytest.raises(ValueError, match="--device auto cannot spread weights in 8bit; choose bfloat16"):
        JakiroGenerator.load(options_of(pair, dtype="8bit"))


def test_doctor_reports_places_and_the_estimate_of_a_pass(pair):
    findings = list(check_pair(options_of(pair)))
    assert all(finding.ok for finding in findings)
    placement = next(finding.text for finding in findings if finding.topic == "placement")
    assert "2 modules on disk" in placement and "estimate: 10 GB/s from memory, 2 GB/s from disk" in placement


METHOD_CASES = often(
    [(DEFAULT.name, "summed")],
    ((name, head) for name in METHODS if name != PLAIN.name for head in heads_of(METHODS[name])),
)


@pytest.fixture(scope="module")
def plain_texts():
    """Return the token ids of plain decoding on one device, with their sampling settings."""
    generator = tiny_generator(None)
    samplings = [SamplingParams(temperature, max_new_tokens=20) for temperature in (0.0, 1.0)]
    return [(sampling, generator.run(PROMPT, sampling, PLAIN.name).token_ids) for sampling in samplings]


@pytest.mark.parametrize(("name", "head"), METHOD_CASES)
def test_every_method_writes_plain_decodings_text(name, head, plain_texts, tmp_path):
    target = spread_target(tmp_path)
    generator = JakiroGenerator(tiny_resources(target, head, METHODS))
    assert_on_disk(generator.target)
    assert generator.target.bit_identical
    for sampling, expected in plain_texts:
        plain = generator.run(PROMPT, sampling, PLAIN.name)
        drafted = generator.run(PROMPT, sampling, name, TreeConfig(nodes=12, depth=3))
        assert plain.token_ids == drafted.token_ids == expected
        assert not METHODS[name].needs.head or any(len(step.nodes) > 1 for step in drafted.steps)


@pytest.mark.rare
@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_checked_and_decode_as_on_one_device(family, tmp_path):
    kind, values = FAMILIES[family]
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SMALL | values)
    model = AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
    with torch.no_grad():
        expected = model(torch.tensor([[5, 9, 7, 30, 2, 80, 14]])).logits[0, -1]
    target = spread_target(tmp_path, model)
    assert target.is_spread
    cache = target.new_cache(16)
    _, logits = target.prefill(torch.tensor([5, 9, 7, 30, 2, 80, 14]), cache)
    torch.testing.assert_close(logits[0], expected, atol=1e-4, rtol=1e-4)


def test_trees_have_256_nodes_where_all_passes_cost_the_same(tmp_path):
    generator = JakiroGenerator(tiny_resources(spread_target(tmp_path), "summed", METHODS))
    generator.profile = DeviceProfile(((1, 3000.0), (256, 3000.0)), ((1, 1.0), (8, 4.0)))
    sampling = SamplingParams(max_new_tokens=6)
    auto = generator.run(PROMPT, sampling, DEFAULT.name)
    assert max(len(step.nodes) for step in auto.steps) > AUTOMATIC_TREE.nodes
    assert {step.plan.nodes for step in auto.steps if step.plan} == {MOST_NODES}
    bounded = generator.run(PROMPT, sampling, DEFAULT.name, replace(AUTOMATIC_TREE, nodes=32))
    assert max(len(step.nodes) for step in bounded.steps) <= 32
    # Rows that cost time leave smaller trees
    generator.profile = DeviceProfile(((1, 3000.0), (256, 12000.0)), ((1, 1.0), (8, 4.0)))
    costly = generator.run(PROMPT, sampling, DEFAULT.name)
    assert max(len(step.nodes) for step in costly.steps) < AUTOMATIC_TREE.nodes


def test_slow_passes_are_timed_once_after_the_first(tmp_path, monkeypatch):
    generator = JakiroGenerator(tiny_resources(spread_target(tmp_path), "summed", METHODS))
    calls = []

    def time(device, work):
        calls.append(work())
        return 3000.0

    monkeypatch.setattr(device_profile, "_milliseconds", time)
    profile = device_profile.measure(generator.backend, generator.drafter(DEFAULT), True)
    assert [nodes for nodes, _ in profile.verify_ms] == [1, 64, 256] and profile.further_ms == ()
    assert len(calls) == 2 * 3 + 2 * 2


def test_device_tag_layers_on_another_device_cache_their_rows_there():
    from jakiro.ops.cache import RowCache

    with DeviceTags():
        cache = RowCache(2, 8)
        cache.update(torch.ones(1, 2, 3, 4), torch.ones(1, 2, 3, 4), 0)
        rows = torch.arange(24.0).view(1, 2, 3, 4).to(PRETENDED)
        keys, values = cache.update(rows, 2 * rows, 1)
        assert keys.is_cuda and values.is_cuda
        cache.keep(1, [1])
        prefix = cache.layers[1].keys[:, :, :2].cpu()
    assert torch.equal(prefix, torch.arange(24.0).view(1, 2, 3, 4)[:, :, [0, 2]])
