"""Tests of the default pair: drafting returns the same text with the same bits, for prompts of our own set.

Float32 is also compared with stock transformers. Tests of bfloat16 are rare on CPUs, and shorter on CPUs without
bfloat16 instructions.
"""

import json
from dataclasses import replace

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.sampling import choose
from jakiro.drafters.base import Resources
from jakiro.drafters.registry import METHODS
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import load_head, weights_file
from jakiro.heads.kinds import KINDS
from jakiro.loading import registry, weights
from jakiro.loading.embedded import embedded_file
from jakiro.loading.gguf_model import read_gguf_model, stock_model
from jakiro.models.probes import star_tree
from jakiro.models.stored import StoredModel
from jakiro.ops import kernels
from jakiro.system import assets_folder, file_sha256
from jakiro.text import encode_messages
from jakiro.trace import first_difference
from tests.marks import rarely
from tests.support import DEVICE, PassRecorder, assert_drafting_took_part

PROMPTS = [
    json.loads(line)["turns"][0]
    for line in (assets_folder() / "prompts" / "own.jsonl").read_text(encoding="utf-8").splitlines()
][::24][:4]
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0.0),
    "nucleus": SamplingParams(temperature=0.7, top_p=0.9, seed=11),
    "sampled": SamplingParams(temperature=1.0, seed=12),
}
TREE, SMALL_TREE = TreeConfig(width=8, depth=5, nodes=24), TreeConfig(width=4, depth=4, nodes=10)
# Stock attention changes bfloat16 logits of this pair by up to 0.44
MOST_ROUNDED = 0.5
BFLOAT16_IN_HARDWARE = DEVICE.type == "cuda" or any(
    getattr(torch.cpu, "get_capabilities", dict)().get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16")
)

# Detects faults of bfloat16 only; takes a minute on two cores, even with bfloat16 instructions
rare_on_processors = (lambda test: test) if DEVICE.type == "cuda" else pytest.mark.rare


def loaded(dtype):
    generator = JakiroGenerator.from_pretrained(device=str(DEVICE), dtype=dtype)
    assert generator.head is not None, "the shipped head is missing"
    # In float32 only compiled code reads the bits of the file; without it a notice reports the rounding
    rounded = dtype == "float32" and DEVICE.type == "cpu" and kernels.current() is kernels.TORCH
    reports_rounding = ["bfloat16" in notice for notice in generator.status["notices"]]
    assert reports_rounding == [True] * rounded, generator.status["notices"]
    return generator


@pytest.fixture(scope="module")
def float32():
    return loaded("float32")


@pytest.fixture(scope="module")
def bfloat16():
    return loaded("bfloat16")


def assert_rounding_explains(place, plain, drafted, rows, sampling):
    """Check that a difference is due to rounding: each text has the token that its own logits choose.

    Args:
        place: index of the first token that differs.
        rows: (2, vocab_size) logits from which `plain` and `drafted` chose it.
    """
    assert place > 0, "the first token differs, but both methods run the same prefill"
    difference = float((rows[0].float() - rows[1].float()).abs().max())
    assert difference <= MOST_ROUNDED, f"token {place}: logits differ by {difference}, more than by rounding"
    positions = torch.full((2,), plain.header.num_prompt_tokens + place, device=rows.device)
    chosen = choose(rows, sampling, KeyedNoise(sampling.seed), positions, prefix_length=rows.shape[1]).token_ids
    token_ids = [plain.token_ids[place], drafted.token_ids[place]]
    assert token_ids == chosen.tolist(), f"token {place}: the logits choose {chosen.tolist()}, got {token_ids}"


def compare(generator, prompts, length, tree, monkeypatch):
    """Run every prompt at every temperature with both methods; return steps, plain answers and divergences."""
    recorder = PassRecorder(monkeypatch, generator.target)
    steps, answers, divergences = [], {}, []
    for prompt in prompts:
        for name, sampling in SAMPLINGS.items():
            sampling = replace(sampling, max_new_tokens=length)
            plain = generator.run(prompt, sampling, method="autoregressive")
            plain_logits = recorder.take_logits(plain.steps)
            jakiro = generator.run(prompt, sampling, tree=tree)
            logits = recorder.take_logits(jakiro.steps)
            steps += jakiro.steps
            answers[prompt, name] = plain.token_ids
            assert plain.header.bit_identical == jakiro.header.bit_identical == generator.target.bit_identical
            place = first_difference(jakiro.token_ids, plain.token_ids)
            if generator.target.bit_identical:
                count = min(len(logits), len(plain_logits))
                assert place is None, f"{prompt!r}, {name}: token {place} differs"
                assert jakiro.text == plain.text and jakiro.end_reason == plain.end_reason
                assert count == len(plain.token_ids) - 1
                assert torch.equal(logits[:count], plain_logits[:count])
            elif place is not None:
                rows = torch.stack((plain_logits[place - 1], logits[place - 1]))
                assert_rounding_explains(place, plain, jakiro, rows, sampling)
                divergences.append(f"{prompt!r}, {name}: token {place} differs")
    return steps, answers, divergences


def stock_target(generator):
    """Return transformers' own model with the same weights, either as in the file or rounded to bfloat16."""
    if isinstance(generator.target.model, StoredModel):
        stock = stock_model(read_gguf_model(embedded_file()[1]), torch.float32)
        return stock, generator.tokenizer
    return weights.load_target(registry.DEFAULT_TARGET, DEVICE, torch.float32)[:2]


@pytest.mark.parametrize(
    "prompts",
    [pytest.param(PROMPTS[:1], id="a prompt"), rarely(PROMPTS[1:], id="more prompts")],
)
def test_float32_answer_equals_plain_decoding_and_greedy_stock_transformers(prompts, float32, monkeypatch):
    steps, answers, divergences = compare(float32, prompts, 32, TREE, monkeypatch)
    assert not divergences
    assert_drafting_took_part(steps)
    stock, tokenizer = stock_target(float32)
    for prompt in prompts:
        ids = torch.tensor([encode_messages(tokenizer, prompt)], device=DEVICE)
        with torch.inference_mode():
            whole = stock.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=32, temperature=None
            )
        assert whole[0, ids.shape[1] :].tolist() == answers[prompt, "greedy"]


@pytest.mark.skipif(DEVICE.type == "cuda", reason="passes on a GPU have 64 rows or more, which are rounded differently")
def test_float32_rows_do_not_depend_on_the_tree_size(float32):
    target, tokens, prompt = float32.target, torch.tensor([1000, 2000]), torch.arange(40) + 100
    assert float32.status["bit_identical"]
    cache = target.new_cache(len(prompt) + 128)
    target.prefill(prompt, cache)

    def logits_of(nodes: int):
        cache.keep(len(prompt), [])
        tree = star_tree(tokens, nodes)
        return target.score(tree, cache).logits, tree.depths

    expected, _ = logits_of(2)
    for nodes in (1, 24, 31, 65, 128):
        logits, depths = logits_of(nodes)
        assert torch.equal(logits, expected[depths]), f"{nodes} nodes"


@rare_on_processors
def test_bfloat16_answer_equals_plain_decoding(bfloat16, monkeypatch):
    prompts, length, tree = (PROMPTS, 32, TREE) if BFLOAT16_IN_HARDWARE else (PROMPTS[:2], 12, SMALL_TREE)
    steps, _, _ = compare(bfloat16, prompts, length, tree, monkeypatch)
    assert_drafting_took_part(steps)


def method_of(head):
    """Return the method that a head is trained for."""
    trained = [method for method in METHODS.values() if method.trains is not None]
    return next(method for method in trained if method.needs.head[0] == head.config.kind)


def test_every_shipped_head_returns_the_text_of_the_target(float32):
    """Test the other heads of the default target on the same weights; the default head is tested above."""
    names = [
        name
        for name in registry.head_names()
        if name != registry.DEFAULT_HEAD and name.startswith(registry.DEFAULT_TARGET)
    ]
    names = [name for name in names if registry.config_of(name).kind in KINDS]
    assert "smollm2-135m-instruct-summed" in names
    target = float32.target
    samplings = [replace(SAMPLINGS[name], max_new_tokens=16) for name in ("greedy", "sampled")]
    plain = [float32.run(PROMPTS[1], sampling, method="autoregressive").token_ids for sampling in samplings]
    for name in names:
        pair = registry.resolve(None, name)
        assert pair.target_name == registry.DEFAULT_TARGET
        head = load_head(pair.head_path, DEVICE, torch.float32)
        assert head.config.target_sha256 == target.sha256
        head.bind(target.embedding, target.output_weight)
        head.pack("int8")
        info = {"name": name, "sha256": file_sha256(weights_file(pair.head_path))}
        generator = JakiroGenerator(Resources(target, head, info))
        steps = []
        for sampling, token_ids in zip(samplings, plain, strict=True):
            drafted = generator.run(PROMPTS[1], sampling, method_of(head).name, TREE)
            assert first_difference(drafted.token_ids, token_ids) is None
            steps += drafted.steps
        assert_drafting_took_part(steps)
        proposers = {node.proposer for step in steps for node in step.nodes[1:]}
        assert {"expert_0", "expert_1"} <= proposers or head.num_experts != 2


def test_answer_ends_with_the_end_of_turn_token_of_the_model(float32):
    trace = float32.run("Reply with the single word: yes", SamplingParams(max_new_tokens=200), tree=TREE)
    assert trace.end_reason == "eos"
    assert trace.token_ids[-1] == float32.tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert "<|im_end|>" not in trace.text
    assert trace.text == float32.token_text.decode(trace.token_ids)
