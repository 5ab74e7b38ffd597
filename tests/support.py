"""Shared test helpers: tiny seeded models, a byte tokenizer, a scripted drafter and a reference decoder.

The reference decoder is a stock transformers model with transformers' logits processors and no cache. Only the noise
function is ours.
"""

import copy
import functools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from dataclasses import fields as dataclass_fields
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    LogitsProcessorList,
    MinPLogitsWarper,
    NoRepeatNGramLogitsProcessor,
    PreTrainedTokenizerFast,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
    SuppressTokensLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import DraftTree
from jakiro.drafters.base import (
    Committed,
    Context,
    Drafter,
    DraftRequest,
    DraftSession,
    Method,
    Proposal,
    Proposer,
    Resources,
)
from jakiro.drafters.merged import MergedDrafter
from jakiro.drafters.prompt_lookup import PromptLookupDrafter
from jakiro.drafters.registry import DEFAULT, METHODS, WITH_COPIES, Methods
from jakiro.generator import JakiroGenerator
from jakiro.heads.base import DraftHead
from jakiro.heads.checkpoint import save_head
from jakiro.heads.kinds import make_head
from jakiro.heads.model_head import ModelConfig, ModelHead
from jakiro.models.target import TargetModel
from jakiro.trace import Step, pooled_tau

DEVICE = torch.device(os.environ.get("JAKIRO_TEST_DEVICE") or "cpu")
HIDDEN_SIZE = 64
TOKENIZER_SIZE = 260
TREE = TreeConfig(width=6, depth=5, nodes=20)
# A prompt that repeats itself, and sampling settings for parametrized tests
REPETITIVE = "one two three one two three one two three one two"
SAMPLINGS = {
    "greedy": SamplingParams(max_new_tokens=24),
    "sampled": SamplingParams(temperature=1.0, seed=1, max_new_tokens=24),
    "nucleus": SamplingParams(temperature=0.7, top_p=0.9, top_k=50, seed=1, max_new_tokens=24),
}
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@functools.cache
def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per byte, four special tokens and a ChatML-like template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|pad|>", extra_special_tokens=["<|im_start|>"]
    )
    tokenizer.add_special_tokens({"bos_token": "<|endoftext|>"})
    tokenizer.chat_template = CHAT_TEMPLATE
    assert len(tokenizer) == TOKENIZER_SIZE
    return tokenizer


@functools.cache
def word_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with ten one-word tokens and no end-of-sequence token."""
    words = ["the", "cat", "dog", "sees", "hears", "a", "small", "bird", "and", "sleeps"]
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=backend)


@functools.cache
def _tiny_model(seed: int, dtype: torch.dtype, vocab_size: int, hidden_size: int, layers: int) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=2 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        initializer_range=0.15,
        eos_token_id=None,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    # Large logits, so that the two best tokens rarely tie and the temperature matters
    model.lm_head.weight.mul_(2.0)
    return model.to(dtype=dtype)


def tiny_model(
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    vocab_size: int = TOKENIZER_SIZE,
    hidden_size: int = HIDDEN_SIZE,
    layers: int = 2,
) -> LlamaForCausalLM:
    """Return a random seeded Llama with grouped-query attention.

    It is a fresh copy, because `TargetModel` packs its layers in place.
    """
    return copy.deepcopy(_tiny_model(seed, dtype, vocab_size, hidden_size, layers)).to(DEVICE)


def save_target(folder: Path, model: nn.Module | None = None, **options) -> None:
    """Save a model, by default a tiny one, and the tokenizer."""
    (tiny_model() if model is None else model).save_pretrained(folder, **options)
    byte_tokenizer().save_pretrained(folder)


def save_pair(folder: Path) -> Path:
    """Save a tiny target and its head in the subfolders `target` and `head`; return the folder."""
    save_head(tiny_head(tiny_target()), folder / "head")
    save_target(folder / "target")
    return folder


def tiny_target(
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    numerics: str = "exact",
    vocab_size: int = TOKENIZER_SIZE,
) -> TargetModel:
    return TargetModel(tiny_model(seed, dtype, vocab_size), byte_tokenizer(), "tiny", "0" * 64, numerics)


def tiny_head(
    target: TargetModel,
    fusion: str = "summed",
    draft_vocab_size: int | None = None,
    seed: int = 1,
    num_experts: int = 2,
    bind: bool = True,
    known: Methods = METHODS,
    kind: str | None = None,
    **fields,
) -> DraftHead:
    """Return a random seeded head for a tiny target.

    Args:
        draft_vocab_size: size of a reduced vocabulary with random tokens; None for the full vocabulary.
        known: registered methods and their kinds of heads.
        kind: kind of the head; by default "jakiro", or "eagle" with one expert.
        fields: additional config fields.
    """
    torch.manual_seed(seed)
    config, kind = target.config, known.kinds[kind or ("eagle" if num_experts == 1 else "jakiro")]
    values = {
        "hidden_size": config.hidden_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "vocab_size": target.vocab_size,
        "expert_intermediate_size": config.hidden_size,
        "draft_vocab_size": draft_vocab_size,
        "fusion": fusion,
        "num_experts": num_experts,
        "rope_parameters": dict(config.rope_parameters),
        "max_position_embeddings": 2048,
    }
    names = {item.name for item in dataclass_fields(kind.config)}
    config = kind.config(**{name: value for name, value in values.items() if name in names} | fields)
    head = make_head(config, known.kinds)
    if draft_vocab_size is not None:
        head.draft_token_ids.copy_(torch.randperm(target.vocab_size)[:draft_vocab_size].sort().values)
    head = head.to(device=target.device, dtype=target.dtype).eval().requires_grad_(False)
    return head.bind(target.embedding, target.output_weight) if bind else head


HEADS = {
    "summed": {"fusion": "summed"},
    "decoupled": {"fusion": "decoupled"},
    "summed, reduced vocabulary": {"fusion": "summed", "draft_vocab_size": 90},
    "decoupled, reduced vocabulary": {"fusion": "decoupled", "draft_vocab_size": 90},
    "one expert": {"fusion": "summed", "num_experts": 1},
}
# Also the kinds of heads that other projects publish
ALL_HEADS = HEADS | {
    "eagle3": {"kind": "eagle3", "feature_layers": (1,), "num_states": 1, "draft_vocab_size": 90},
    "dflash": {
        "kind": "dflash", "feature_layers": (1,), "reads_last": True, "block_size": 5, "mask_token_id": 259,
        "num_layers": 2, "sliding_layers": (1,), "sliding_window": 12, "draft_vocab_size": 90,
    },
}  # fmt: skip


def head_for(method: str) -> str:
    """Return the head that a method is tested with: "eagle3", "dflash" or "summed"."""
    return next((head for head in ("eagle3", "dflash") if head in heads_of(METHODS[method])), "summed")


def heads_of(method: Method) -> tuple[str, ...]:
    """Return the keys of `ALL_HEADS` that a method is tested with.

    A method for Jakiro heads is tested with both fusions; other methods use their own kind of head.
    """
    if "jakiro" in method.needs.head:
        return "summed", "decoupled"
    return tuple(kind for kind in method.needs.head if kind in ALL_HEADS) or ("summed",)


def further_heads(target: TargetModel, known: Methods = METHODS) -> dict:
    """Return loaders by kind: a random head for each method with its own kind of head, and a tiny draft model."""

    def reader(fields: dict):
        head = functools.partial(tiny_head, target, draft_vocab_size=90, known=known, **fields)
        return lambda: (head(), {"name": "tiny", "sha256": "2" * 64})

    def model():
        small = TargetModel(tiny_model(3, hidden_size=32, layers=1), byte_tokenizer(), "small", "3" * 64)
        return ModelHead(small, target.vocab_size), {"name": "small", "sha256": "3" * 64}

    heads = {method.needs.head[0]: reader(head_fields(method)) for method in with_own_head(known)}
    return heads | {ModelConfig.kind: model}


def with_own_head(methods: Methods = METHODS) -> list[Method]:
    """Return the methods with trained heads, without the default method."""
    return [method for method in methods.values() if method.trains is not None and method is not DEFAULT]


def head_fields(method: Method) -> dict:
    """Return the arguments of `tiny_head` for a method's own kind of head.

    Exit layers are numbered from 1, because a tiny target has only two layers.
    """
    exits = method.trains.get("exit_layers", ())
    fields = {"kind": method.needs.head[0], **method.trains}
    return fields | ({"exit_layers": tuple(range(1, len(exits) + 1))} if exits else {})


def tiny_generator(
    head: str | None = "summed",
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    numerics: str = "exact",
    methods: Methods = METHODS,
) -> JakiroGenerator:
    """Return a generator of a tiny target with a head of `ALL_HEADS`, or without a head."""
    return JakiroGenerator(tiny_resources(tiny_target(seed, dtype, numerics), head, methods), methods=methods)


def tiny_resources(target: TargetModel, head: str | None, methods: Methods) -> Resources:
    """Return the resources of a target with a head of `ALL_HEADS`, or without a head."""
    if head is None:
        return Resources(target)
    target = target.with_feature_layers(ALL_HEADS[head].get("feature_layers", ()))
    info = {"name": f"tiny {head}", "sha256": "1" * 64}
    return Resources(target, tiny_head(target, **ALL_HEADS[head]), info, further_heads(target, methods))


def scripted_generator(
    error_rate: float = 0.3,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    numerics: str = "exact",
    vocab_size: int = TOKENIZER_SIZE,
) -> JakiroGenerator:
    """Return a generator of a tiny target with the scripted drafter."""
    drafter = ScriptedDrafter(tiny_model(seed, dtype, vocab_size), error_rate)
    target = tiny_target(seed, dtype, numerics, vocab_size)
    copying = MergedDrafter(drafter, PromptLookupDrafter())
    return JakiroGenerator(Resources(target), {DEFAULT.name: drafter, WITH_COPIES.name: copying})


def prompt_ids(text: str) -> list[int]:
    """Return the token ids of a user message in the chat template of the tiny tokenizer."""
    messages = [{"role": "user", "content": text}]
    return byte_tokenizer().apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]


def processors(sampling: SamplingParams) -> LogitsProcessorList:
    """Return transformers' logits processors for these settings, in the order of `generate`."""
    result = LogitsProcessorList()
    if sampling.logit_bias:
        result.append(SequenceBiasLogitsProcessor([[[token_id], bias] for token_id, bias in sampling.logit_bias]))
    if sampling.repetition_penalty != 1:
        result.append(RepetitionPenaltyLogitsProcessor(float(sampling.repetition_penalty)))
    if sampling.no_repeat_ngram_size:
        result.append(NoRepeatNGramLogitsProcessor(sampling.no_repeat_ngram_size))
    if sampling.suppress_tokens:
        result.append(SuppressTokensLogitsProcessor(list(sampling.suppress_tokens), DEVICE))
    return result


def warpers(sampling: SamplingParams) -> LogitsProcessorList:
    """Return transformers' logits warpers in the order of `generate`; the temperature must be above 0."""
    result = LogitsProcessorList([TemperatureLogitsWarper(float(sampling.temperature))])
    if sampling.top_k:
        result.append(TopKLogitsWarper(sampling.top_k))
    if sampling.top_p < 1:
        result.append(TopPLogitsWarper(sampling.top_p))
    if sampling.min_p:
        result.append(MinPLogitsWarper(sampling.min_p))
    return result


@torch.no_grad()
def reference_choice(
    model: nn.Module, ids: Sequence[int], sampling: SamplingParams, num_prompt_tokens: int | None = None
) -> int:
    """Return the token that a stock model chooses after `ids`, without a cache.

    Frequency and presence penalties are subtracted directly.
    """
    device = model.get_input_embeddings().weight.device
    scores = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[:, -1].float()
    scores = processors(sampling)(torch.tensor([ids], device=device), scores)
    for token_id, count in Counter(ids[len(ids) if num_prompt_tokens is None else num_prompt_tokens :]).items():
        scores[:, token_id] -= sampling.frequency_penalty * count + sampling.presence_penalty
    if sampling.temperature > 0:
        scores = warpers(sampling)(None, scores)
        vocabulary = torch.arange(scores.shape[-1], device=device)
        scores = scores + KeyedNoise(sampling.seed).at(torch.tensor([len(ids)], device=device), vocabulary)
    return int(scores.argmax())


def reference_answer(
    model: nn.Module, prompt: Sequence[int], sampling: SamplingParams, stop_ids: Iterable[int] = ()
) -> list[int]:
    """Return the token ids of an answer by the reference decoder, including the stop token."""
    ids, stops = list(prompt), set(stop_ids)
    while len(ids) < len(prompt) + sampling.max_new_tokens:
        ids.append(reference_choice(model, ids, sampling, len(prompt)))
        if ids[-1] in stops:
            break
    return ids[len(prompt) :]


@dataclass(eq=False)
class ScriptedDrafter(Drafter):
    """A drafter that proposes the target's own choice with an error rate, and random wrong siblings."""

    proposers = (Proposer("script", "Script", "Proposes the target's choice with a fixed error rate."),)

    model: nn.Module
    error_rate: float
    seed: int = 0
    info: dict = field(default_factory=lambda: {"name": "script", "sha256": None})
    _choices: dict = field(default_factory=dict)

    def choice(self, ids: list[int], sampling: SamplingParams) -> int:
        """Return the target's choice after `ids`; it is computed once."""
        key = (sampling, *ids)
        if key not in self._choices:
            self._choices[key] = reference_choice(self.model, ids, sampling)
        return self._choices[key]

    def start(self, prompt: Context, sampling: SamplingParams, noise: KeyedNoise) -> "ScriptedSession":
        assert prompt.ids.tolist() == prompt.token_ids
        return ScriptedSession(self, sampling, prompt.token_ids)


@dataclass
class ScriptedSession(DraftSession):
    """A session of the scripted drafter.

    Attributes:
        token_ids: prompt and committed ids; the last one is the root.
    """

    drafter: ScriptedDrafter
    sampling: SamplingParams
    token_ids: list[int]
    _future: list[int] = field(default_factory=list)

    def observe(self, committed: Committed) -> None:
        assert committed.ids.tolist() == committed.token_ids and len(committed.token_ids) == committed.features.shape[0]
        for token_id in committed.token_ids:
            if self._future and self._future.pop(0) != token_id:
                self._future = []
            self.token_ids.append(token_id)

    def rewind(self, length: int) -> None:
        self.token_ids, self._future = self.token_ids[:length], []

    def propose(self, limits: DraftRequest) -> Proposal:
        """Return a chain of the target's choices, some of them wrong, with wrong siblings at random positions."""
        tree_config = limits.tree
        while len(self._future) < tree_config.depth:
            self._future.append(self.drafter.choice(self.token_ids + self._future, self.sampling))
        random = torch.Generator().manual_seed(self.drafter.seed * 1000 + len(self.token_ids))
        vocab_size = self.drafter.model.config.vocab_size
        tokens, parents, depths, parent = [self.token_ids[-1]], [-1], [0], 0
        for depth in range(1, tree_config.depth + 1):
            wrong = float(torch.rand((), generator=random)) < self.drafter.error_rate
            candidate = (self._future[depth - 1] + wrong) % vocab_size
            num_free = tree_config.nodes - len(tokens)
            levels_below = tree_config.depth - depth
            count = min(tree_config.width, max(num_free - levels_below, 1), num_free)
            shuffled = torch.randperm(vocab_size, generator=random).tolist()
            siblings = [token for token in shuffled if token not in (candidate, self._future[depth - 1])][: count - 1]
            position = int(torch.randint(0, count, (), generator=random)) if count else 0
            siblings.insert(position, candidate)
            for token in siblings[:count]:
                tokens.append(token)
                parents.append(parent)
                depths.append(depth)
            if not count:
                break
            parent = len(tokens) - count + position
        return Proposal(tree_of(tokens, parents))


def tree_of(token_ids: Sequence[int], parents: Sequence[int]) -> DraftTree:
    """Return a tree with these tokens and parents, without evidence; all nodes come from the first proposer."""
    count, depths = len(token_ids), [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)

    def integers(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64, device=DEVICE)

    return replace(
        DraftTree.root_only(integers(token_ids[:1])),
        token_ids=integers(token_ids),
        parents=integers(parents),
        depths=integers(depths),
        scores=-torch.arange(count, dtype=torch.float32, device=DEVICE),
        draft_passes=integers([0] * count),
        proposers=integers([-1] + [0] * (count - 1)),
        also=integers([0] * count),
        draft_probs=torch.full((count,), torch.nan, device=DEVICE),
        max_depth=max(depths),
    )


def assert_drafting_took_part(steps: Sequence[Step]) -> None:
    """Check steps of several runs: over 1.3 tokens per step, and a step with accepted and rejected candidates."""
    drafted = [step for step in steps if len(step.nodes) > 1]
    assert drafted
    assert pooled_tau(drafted) > 1.3
    assert any(0 < len(step.accepted_path) < step.tested_depth for step in drafted)


def assert_is_a_tree(tree: DraftTree) -> None:
    """Check that parents come before children, depths are consistent and siblings are distinct."""
    tokens, parents, depths = tree.token_ids.tolist(), tree.parents.tolist(), tree.depths.tolist()
    assert parents[0] == -1 and depths[0] == 0
    for node in range(1, len(tokens)):
        assert 0 <= parents[node] < node, f"node {node} has parent {parents[node]}"
        assert depths[node] == depths[parents[node]] + 1
    assert len({(parent, token) for parent, token in zip(parents, tokens, strict=True)}) == len(tokens)
    assert max(depths) <= tree.max_depth


def run_pytest(folder: Path, *options: str | Path, **variables: str) -> str:
    """Run pytest in a subprocess, without parallel workers, and return its output; fail if a test fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")} | variables
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options]
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


class PassRecorder:
    """A recorder of the logits of every target pass of a generator."""

    def __init__(self, monkeypatch, target: TargetModel) -> None:
        self.passes: list[Tensor] = []
        score = target.score

        def score_and_record(tree, cache):
            scores = score(tree, cache)
            self.passes.append(scores.logits.clone())
            return scores

        monkeypatch.setattr(target, "score", score_and_record)

    def take_logits(self, steps: Sequence[Step]) -> Tensor:
        """Return the logits from which the tokens after the first were chosen, and clear the record.

        Returns:
            (num_committed, vocab_size) logits.
        """
        rows = [logits[[0, *step.accepted_path]] for logits, step in zip(self.passes, steps, strict=True)]
        self.passes.clear()
        return torch.cat(rows)


def committed(ids: Tensor, features: Tensor) -> Committed:
    """Return the committed tokens of a step, for a session without a decoding loop."""
    return Committed(ids.tolist(), ids, features)


def prompt_of(ids: Tensor, features: Tensor) -> Context:
    """Return the prompt of an answer, for a drafter without a target."""
    return Context(ids.tolist(), ids, features)
