"""Families of targets: comparison with stock models, refused architectures, and notices."""

import copy
import threading

import pytest
import torch
import transformers
from packaging import version
from transformers import AutoConfig, AutoModelForCausalLM

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.tree import DraftTree
from jakiro.drafters.base import Drafter, Resources
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.generator import JakiroGenerator
from jakiro.heads.jakiro import JakiroConfig
from jakiro.heads.jakiro.network import JakiroHead
from jakiro.models.families import refuse_what_cannot_work
from jakiro.models.target import TargetModel
from tests.support import (
    DEVICE,
    HIDDEN_SIZE,
    TOKENIZER_SIZE,
    ScriptedDrafter,
    assert_drafting_took_part,
    byte_tokenizer,
    prompt_ids,
    reference_answer,
    tiny_head,
    tiny_model,
    tiny_target,
    tree_of,
)

WINDOW = 12
SMALL = {
    "vocab_size": TOKENIZER_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 2 * HIDDEN_SIZE,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.15,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
OLDER = {name: SMALL[name] for name in ("vocab_size", "initializer_range", "bos_token_id", "eos_token_id")}
MIXED = {
    "sliding_window": WINDOW,
    "num_hidden_layers": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
MULTIPLIERS = {
    "embedding_multiplier": 3.0,
    "residual_multiplier": 0.4,
    "attention_multiplier": 0.1,
    "logits_scaling": 2,
}
EXPERTS = {"num_experts_per_tok": 2, "num_local_experts": 4}


def rope(kind, **values):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0} | values}


LLAMA3_ROPE = rope("llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)
# name: (model type in transformers, differences from SMALL)
FAMILIES = {
    "Llama 2, Vicuna": ("llama", {"num_key_value_heads": 4}),
    "Llama 3": ("llama", LLAMA3_ROPE),
    "Llama, linear RoPE scaling, tied": ("llama", rope("linear", factor=2.0) | {"tie_word_embeddings": True}),
    "Llama, YaRN": ("llama", rope("yarn", factor=4.0, original_max_position_embeddings=64)),
    "Llama, dynamic NTK": ("llama", rope("dynamic", factor=2.0)),
    "Mistral": ("mistral", {"sliding_window": WINDOW}),
    "Ministral": ("ministral", MIXED | {"head_dim": 16}),
    "Qwen 2 and 2.5": ("qwen2", {}),
    "Qwen 2, sliding window": ("qwen2", {"use_sliding_window": True, "max_window_layers": 1, "sliding_window": WINDOW}),
    "Qwen 3": ("qwen3", {"head_dim": 32}),
    "Gemma": ("gemma", {"head_dim": 16}),
    "Gemma 2": (
        "gemma2",
        MIXED | {"head_dim": 16, "attn_logit_softcapping": 1.5, "final_logit_softcapping": 6.0},
    ),
    "Gemma 3": ("gemma3_text", MIXED | {"head_dim": 16, "query_pre_attn_scalar": 16}),
    "Phi": ("phi", {"partial_rotary_factor": 0.5}),
    "Phi 3": ("phi3", {"sliding_window": WINDOW}),
    "Granite": ("granite", MULTIPLIERS),
    "SmolLM 3": ("smollm3", {"num_hidden_layers": 4, "no_rope_layer_interval": 2}),
    "OLMo 2": ("olmo2", {}),
    "OLMo 3": ("olmo3", MIXED),
    "StableLM": ("stablelm", {}),
    "Cohere": ("cohere", {"logit_scale": 0.3}),
    "Cohere 2": ("cohere2", MIXED | {"logit_scale": 0.3}),
    "StarCoder 2": ("starcoder2", {"sliding_window": WINDOW}),
    "GLM 4": ("glm4", {"head_dim": 16}),
    "Mixtral": ("mixtral", EXPERTS),
    "DeepSeek V3": (
        "deepseek_v3",
        {
            "num_key_value_heads": 4,
            "moe_intermediate_size": 64,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "n_group": 1,
            "topk_group": 1,
            "kv_lora_rank": 16,
            "q_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 16,
            "first_k_dense_replace": 1,
        },
    ),
    "GPT-2": ("gpt2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256}),
}
# Fast numerics with a notice: attention sinks, or attention outside transformers' interface
ONLY_FAST = {
    "gpt-oss": ("gpt_oss", EXPERTS | MIXED | {"head_dim": 16, "rope_parameters": {"rope_theta": 1e4}}),
    "Falcon": ("falcon", {"alibi": False}),
}
# Its attention uses transformers' interface since 5.24
(FAMILIES if version.parse(transformers.__version__) >= version.parse("5.24") else ONLY_FAST)["GPT-J"] = (
    "gptj",
    {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "rotary_dim": 8},
)
# Chains only, with a notice: positions or windows are computed inside the attention of the model
ONLY_CHAINS = {
    "BLOOM": ("bloom", {"hidden_size": 64, "n_layer": 2, "n_head": 4}),
    "MPT": ("mpt", {"d_model": 64, "n_layers": 2, "n_heads": 4, "max_seq_len": 256}),
    "Falcon, ALiBi": ("falcon", {"alibi": True}),
    "GPT Neo": (
        "gpt_neo",
        {"hidden_size": 64, "num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]]}
        | {"window_size": WINDOW, "max_position_embeddings": 256},
    ),
}
ALL = FAMILIES | ONLY_FAST | ONLY_CHAINS
_SIZED_OTHERWISE = {"gpt2", "gptj", "bloom", "mpt", "gpt_neo"}
TREE = TreeConfig(width=3, depth=4, nodes=10)
CHAIN = TreeConfig(width=1, depth=4, nodes=5)


def family_model(name, **options):
    """Return a random model of a family, with its own attention, effective biases and large logits."""
    model_type, values = ALL[name]
    common = OLDER if model_type in _SIZED_OTHERWISE else SMALL
    if model_type == "mpt":
        common = {"vocab_size": TOKENIZER_SIZE, "initializer_range": 0.15}
    if model_type == "falcon":
        common = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
    torch.manual_seed(0)
    config = AutoConfig.for_model(model_type, **(common | values | options))
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().requires_grad_(False)
    for parameter_name, parameter in model.named_parameters():
        if parameter_name.endswith(("bias", "sinks")):
            parameter.normal_(std=0.3)
    output = model.get_output_embeddings()
    output.weight = torch.nn.Parameter(output.weight * 2, requires_grad=False)
    return model.to(DEVICE)


def family_head(target):
    """Return a random head with the sizes of the target and a plain rotary embedding, bound to the target."""
    heads = target.config.num_attention_heads
    torch.manual_seed(1)
    config = JakiroConfig(
        hidden_size=target.hidden_size,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        vocab_size=target.vocab_size,
        expert_intermediate_size=32,
    )
    head = JakiroHead(config).to(target.device).eval().requires_grad_(False)
    return head.bind(target.embedding, target.output_weight)


@pytest.mark.parametrize("name", ALL)
def test_family_equals_its_stock_model_in_logits_and_text(name):
    model = family_model(name)
    with torch.inference_mode():
        target = TargetModel(copy.deepcopy(model), byte_tokenizer())
        assert_logits_equal_stock_model(model, target)
    assert target.numerics == ("exact" if name in FAMILIES else "fast")
    assert target.chains_only == (name in ONLY_CHAINS)
    assert any("fast numerics is used" in notice for notice in target.notices) == (name not in FAMILIES)
    assert any("only chains" in notice for notice in target.notices) == (name in ONLY_CHAINS)
    head, script, drafted = HeadDrafter(family_head(target)), ScriptedDrafter(model, 0.3), []
    tree = CHAIN if target.chains_only else TREE
    for sampling in (SamplingParams(max_new_tokens=8), SamplingParams(1.0, top_p=0.9, seed=1, max_new_tokens=8)):
        expected = reference_answer(model, prompt_ids("Tell me."), sampling, target.stop_ids)
        for drafter, own_tree in ((None, None), (head, TREE), (script, tree)):
            method = PLAIN if drafter is None else DEFAULT
            trace = drafting_with(target, drafter).run("Tell me.", sampling, method=method.name, tree=own_tree)
            assert trace.token_ids == expected
            drafted += trace.steps if drafter is script else []
            assert any(len(step.nodes) > 1 for step in trace.steps) == (drafter is not None)
            if target.chains_only:
                parents = [[node.parent for node in step.nodes] for step in trace.steps]
                assert all(chain == list(range(-1, len(chain) - 1)) for chain in parents)
    assert_drafting_took_part(drafted)


@pytest.mark.parametrize("name", [*FAMILIES][:5])
def test_greedy_text_with_all_processors_equals_transformers_generate(name):
    model = family_model(name)
    generator = JakiroGenerator(Resources(TargetModel(copy.deepcopy(model), byte_tokenizer())))
    ids = torch.tensor([prompt_ids("Tell me. Tell me.")], device=DEVICE)
    shared = {"max_new_tokens": 24, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2}
    ends = {"eos_token_id": sorted(generator.target.stop_ids), "pad_token_id": 0}
    processors = {"sequence_bias": [[[7], 2.0], [[9], -1.0]], "suppress_tokens": list(range(40, 80))}
    with torch.inference_mode():
        expected = model.generate(input_ids=ids, do_sample=False, **shared, **ends, **processors)
    sampling = SamplingParams(**shared, logit_bias={7: 2.0, 9: -1.0}, suppress_tokens=tuple(range(40, 80)))
    trace = generator.run("Tell me. Tell me.", sampling, PLAIN.name)
    assert trace.token_ids == expected[0, ids.shape[1] :].tolist()


def drafting_with(target: TargetModel, drafter: Drafter | None) -> JakiroGenerator:
    """Return a generator that drafts with this drafter in its default method."""
    return JakiroGenerator(Resources(target), {} if drafter is None else {DEFAULT.name: drafter})


def assert_logits_equal_stock_model(model, target):
    """Check the logits of a prompt, of each node of a tree, and of the output function, and the raw embedding rows."""
    prompt = torch.arange(2 * WINDOW + 3, device=DEVICE) * 7 % 250
    tokens, parents = [9, 20, 30, 40, 50, 40, 60], [-1, 0, 0, 1, 1, 2, 3]
    if target.chains_only:
        tokens, parents = [9, 20, 40, 60], [-1, 0, 1, 2]

    def path_of(node):
        return [] if node < 0 else [*path_of(parents[node]), tokens[node]]

    def stock(ids):
        return model(input_ids=ids[None], use_cache=False).logits[0]

    cache = target.new_cache(60 + target.row_bucket(1))
    features, last = target.prefill(prompt, cache)
    assert_close(last[0], stock(prompt)[-1])
    assert_close(target.logits(features), stock(prompt))
    scores = target.score(tree_of(tokens, parents), cache)
    for node in range(len(tokens)):
        ids = torch.cat([prompt, torch.tensor(path_of(node), device=DEVICE)])
        assert_close(scores.logits[node], stock(ids)[-1])
    assert torch.equal(target.embedding, model.get_input_embeddings().weight)


def assert_close(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-4, rtol=1e-4)


RECURRENT = {
    "mamba": {"hidden_size": 8, "state_size": 4},
    "mamba2": {},
    "recurrent_gemma": {},
    "jamba": {},
    "falcon_h1": {},
    "bamba": {},
    "qwen3_next": {},
    "lfm2": {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]},
    "rwkv": {},
    "xlstm": {},
}


REFUSED = {
    **{name: f"^{name} has layers of the kind .* cannot be rolled back" for name in RECURRENT},
    **dict.fromkeys(["t5", "bart", "t5gemma"], "is an encoder-decoder model; Jakiro needs a decoder-only"),
    "llama4_text": "llama4_text has layers with chunked attention",
}


@pytest.mark.parametrize("model_type", REFUSED)
def test_unsupported_families_are_refused_before_their_weights_are_read(model_type):
    config = AutoConfig.for_model(model_type, **RECURRENT.get(model_type, {}))
    with pytest.raises(ValueError, match=REFUSED[model_type]):
        refuse_what_cannot_work(config)


def test_model_with_other_logits_in_tree_passes_is_refused(monkeypatch):
    model = tiny_model()
    stock = type(model.model).forward

    def blind_to_masks(self, *args, attention_mask=None, position_ids=None, **kwargs):
        output = stock(self, *args, **kwargs)
        if kwargs.get("past_key_values") is not None:
            output.last_hidden_state.mul_(-1)
        return output

    monkeypatch.setattr(type(model.model), "forward", blind_to_masks)
    monkeypatch.setattr("jakiro.models.weights.FusedLlama.build", lambda *_: None)
    with pytest.raises(ValueError, match=r"llama cannot be a target: .* \(other logits\); choose another model"):
        TargetModel(model, byte_tokenizer())


def test_no_token_is_read_beyond_the_last_position():
    """A table of positions ends there, and dynamic rotary factors would change for the whole pass."""
    for name, field in (("GPT-2", "n_positions"), ("Llama, dynamic NTK", "max_position_embeddings")):
        model = family_model(name, **{field: len(prompt_ids("Tell me.")) + 9})
        generator = drafting_with(TargetModel(copy.deepcopy(model), byte_tokenizer()), ScriptedDrafter(model, 0.0))
        sampling = SamplingParams(max_new_tokens=32)
        traces = [generator.run("Tell me.", sampling, method=m, tree=TREE) for m in ("autoregressive", "jakiro")]
        assert traces[0].token_ids == traces[1].token_ids and len(traces[1].token_ids) == 10
        assert traces[1].end_reason == "context"


def test_rotary_factors_that_change_with_length_limit_the_context_with_a_notice():
    factors = {"short_factor": [1.0] * 8, "long_factor": [4.0] * 8}
    values = SMALL | rope("longrope", **factors) | {"original_max_position_embeddings": 64}
    config = AutoConfig.for_model("phi3", **values)
    target = TargetModel(AutoModelForCausalLM.from_config(config).eval(), byte_tokenizer())
    assert target.max_positions == 64
    assert "64 of its 256 positions are used" in target.notices[0]


@pytest.mark.parametrize(
    ("limit", "drafts"), [(10, {False}), (len(prompt_ids("Hello")) + 12, {True, False}), (500, {True})]
)
def test_decoding_beyond_the_positions_of_the_head_is_plain_and_reported(limit, drafts):
    target, sampling = tiny_target(), SamplingParams(max_new_tokens=24)
    drafting = HeadDrafter(tiny_head(target), max_positions=limit)
    trace = drafting_with(target, drafting).run("Hello", sampling, tree=TREE)
    assert trace.token_ids == drafting_with(target, None).run("Hello", sampling, method=PLAIN.name).token_ids
    drafted = [len(step.nodes) > 1 for step in trace.steps]
    assert sorted(drafted, reverse=True) == drafted and set(drafted) == drafts
    sentence = f"The draft head was trained for {limit:,} positions"
    assert [step.plan.why.startswith(sentence) for step in trace.steps] == [not is_drafted for is_drafted in drafted]


def test_notices_are_those_of_the_requested_numerics():
    target = TargetModel(family_model(next(iter(ONLY_CHAINS))), byte_tokenizer(), numerics="fast")
    generator = JakiroGenerator(Resources(target), notices=["Loaded."])
    for numerics in ("exact", "fast"):
        notices = generator.with_numerics(numerics).status["notices"]
        assert "Loaded." in notices and len(set(notices)) == len(notices)
        assert any("fast numerics is used" in notice for notice in notices) == (numerics == "exact")


def test_concurrent_passes_use_the_attention_of_their_own_numerics():
    exact = TargetModel(family_model("Qwen 3"), byte_tokenizer())
    fast, ids = exact.with_numerics("fast"), torch.arange(12, device=DEVICE)
    tree = DraftTree.root_only(ids[-1:])

    def score(target):
        cache = target.new_cache(80)
        target.prefill(ids[:-1], cache)
        return target.score(tree, cache).logits

    expected, last = score(exact), exact.model.base_model.layers[-1]

    def run_fast_pass(*_):
        hook.remove()
        thread = threading.Thread(target=score, args=(fast,))
        thread.start()
        thread.join()

    cache = exact.new_cache(80)
    exact.prefill(ids[:-1], cache)
    hook = last.register_forward_pre_hook(run_fast_pass)
    assert torch.equal(exact.score(tree, cache).logits, expected)
    assert not torch.equal(score(fast), expected), "the numerics must differ"
