"""Logits processors: each node has the logits that transformers' processors compute for the prefix of this node."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from jakiro.config import Grammar, SamplingParams
from jakiro.core.grammar import GrammarProcessor, check
from jakiro.core.logits_processors import LogitsProcessorList, allows, drafted_path, make_logits_processors
from jakiro.core.tree import ancestor_mask
from jakiro.text import TokenText
from tests.support import DEVICE, TOKENIZER_SIZE, byte_tokenizer, processors, tree_of

VOCAB_SIZE = 12
TOKENS, PARENTS = [3, 1, 2, 3, 4, 5, 4, 3], [-1, 0, 0, 0, 1, 1, 2, 5]
SETTINGS = st.fixed_dictionaries({
    "repetition_penalty": st.sampled_from([1, 1.1, 2, 0.5]),
    "presence_penalty": st.sampled_from([0, 1.5, -0.5]),
    "frequency_penalty": st.sampled_from([0, 0.7, -2]),
    "no_repeat_ngram_size": st.sampled_from([0, 1, 2, 3, 4]),
    "logit_bias": st.sampled_from([(), {5: 4.0, 11: -3.0}]),
    "suppress_tokens": st.sampled_from([(), (0, 4, 11)]),
})  # fmt: skip
IDS = st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=9)


def our_processors(sampling: SamplingParams) -> LogitsProcessorList | None:
    return make_logits_processors(sampling, VOCAB_SIZE, DEVICE, None)


def root_only(prompt):
    """Return the tree and the mask before the first token."""
    return tree_of(prompt[-1:], [-1]), torch.ones((1, 1), dtype=torch.bool, device=DEVICE)


def expected_row(row, sampling, prompt, answer):
    """Return the logits after transformers' processors, then OpenAI's penalties for the tokens of the answer."""
    row = processors(sampling)(torch.tensor([[*prompt, *answer]], device=DEVICE), row[None].clone())[0]
    for token_id, count in Counter(answer).items():
        row[token_id] -= sampling.frequency_penalty * count + sampling.presence_penalty
    return row


def path_to(node):
    return [] if node <= 0 else [*path_to(PARENTS[node]), TOKENS[node]]


@settings(max_examples=150)
@given(SETTINGS, IDS, IDS, st.integers(0, 2**32))
def test_logits_of_each_node_equal_transformers_processors_on_its_prefix(values, before, answer, seed):
    sampling, random = SamplingParams(**values), torch.Generator().manual_seed(seed)
    ours, prompt = our_processors(sampling), [6, *before]
    logits = torch.randn((len(TOKENS), VOCAB_SIZE), generator=random).mul(3).to(DEVICE)
    if ours is None:
        assert sampling == SamplingParams()
        return
    ours.start(prompt)
    first = ours.adjust(logits[:1], *root_only(prompt))
    torch.testing.assert_close(first[0], expected_row(logits[0], sampling, prompt, []), rtol=0, atol=0)
    answer = [*answer, TOKENS[0]]
    for ids in (answer[:2], answer[2:]):
        ours.advance(ids, torch.tensor(ids, dtype=torch.int64, device=DEVICE))
    original, tree = logits.clone(), tree_of(TOKENS, PARENTS)
    mask = ancestor_mask(tree.parents, tree.max_depth)
    for _ in range(2):
        adjusted = ours.adjust(logits, tree, mask)
        for node in range(len(TOKENS)):
            expected = expected_row(logits[node], sampling, prompt, [*answer, *path_to(node)])
            torch.testing.assert_close(adjusted[node], expected, rtol=1e-6, atol=1e-6)
    assert torch.equal(logits, original), "the logits of the target must not change"
    if ours.penalties is not None:
        at_all = ours.penalties.adjust(logits, tree.token_ids, drafted_path(mask))
        at_seen = ours._penalise(logits, tree, mask)
        assert torch.equal(at_all, at_seen), "adjusting all tokens must equal adjusting tokens of the text"
    forbidden = ours.forbidden_by(TOKENS)
    for node in range(1, len(TOKENS)):
        assert (forbidden[node] is not None) == bool(adjusted[PARENTS[node], TOKENS[node]] == -torch.inf)


@pytest.mark.parametrize("size", range(1, 13))
@pytest.mark.parametrize("num_tokens", range(1, 13))
def test_each_node_of_a_chain_forbids_the_same_tokens_as_plain_decoding(size, num_tokens):
    """Includes histories so short that the chain completes the first n-gram, with one to three different tokens."""
    sampling, logits = SamplingParams(no_repeat_ngram_size=size), torch.zeros((9, VOCAB_SIZE), device=DEVICE)
    for period in (1, 2, 3):
        text = [index % period for index in range(num_tokens + 8)]
        history, chain = text[:num_tokens], text[num_tokens - 1 :]
        ours, tree = our_processors(sampling), tree_of(chain, range(-1, len(chain) - 1))
        ours.start(history[:1])
        ours.advance(history[1:], torch.tensor(history[1:], dtype=torch.int64, device=DEVICE))
        masks = ours.adjust(logits, tree, ancestor_mask(tree.parents, tree.max_depth))
        for node in range(len(chain)):
            expected = expected_row(logits[node], sampling, text[: num_tokens + node], [])
            assert torch.equal(masks[node], expected), (period, node)


@pytest.mark.parametrize("values", [{"logit_bias": {12: 1}}, {"suppress_tokens": (3, 12)}])
def test_token_that_the_model_lacks_is_refused(values):
    (name,) = values
    with pytest.raises(ValueError, match=f"{name} contains token 12; expected token ids from 0 to 11 for this model."):
        our_processors(SamplingParams(**values))


TEXT = TokenText(byte_tokenizer())
END = byte_tokenizer().eos_token_id


def ids_of(text: str) -> list[int]:
    return TEXT.encode(text)


def grammar_processor(kind, source="", stop_ids=(END,)) -> GrammarProcessor:
    processor = GrammarProcessor(Grammar(kind, source), TEXT, TOKENIZER_SIZE, stop_ids)
    processor.start([])
    return processor


def allowed_by(processor, token_ids=(-1,), parents=(-1,)):
    """Return the texts of the tokens that may follow each node."""
    rows = np.full((len(token_ids), (TOKENIZER_SIZE + 31) // 32), 0xFFFFFFFF, dtype=np.uint32)
    processor.forbid(token_ids, parents, rows)
    return [
        {TEXT.piece(token).decode("latin1") for token in range(TOKENIZER_SIZE) if allows(row, token)} for row in rows
    ]


SCHEMA = '{"type": "object", "properties": {"a": {"enum": [1, 22]}}, "required": ["a"], "additionalProperties": false}'


@pytest.mark.parametrize(
    ("kind", "source", "texts"),
    [
        ("choice", ["yes", "yet", "no"], ["yes", "yet", "no"]),
        ("regex", "[a-c]{2}x?", ["ab", "ccx"]),
        ("lark", 'start: "a" b+\nb: "b" | "c"', ["ab", "acbc"]),
        ("json_schema", SCHEMA, ['{"a":22}', '{"a": 1}']),
        ("json", "", ["[1,{}]", '"x"', "true"]),
    ],
)
def test_grammar_allows_its_texts_token_by_token_and_then_the_end(kind, source, texts):
    for text in texts:
        processor = grammar_processor(kind, source)
        for character in text:
            assert character in allowed_by(processor)[0], (text, character)
            processor.advance(ids_of(character))
        assert "<|im_end|>" in allowed_by(processor)[0]
        assert "<|im_start|>" not in allowed_by(processor)[0]
        processor.advance([END])


def test_grammar_has_priority_over_settings_that_forbid_all_its_tokens():
    sampling = SamplingParams(suppress_tokens=tuple(ids_of("yn")), grammar=Grammar("choice", ["yes", "no"]))
    ours = make_logits_processors(sampling, TOKENIZER_SIZE, DEVICE, grammar_processor("choice", ["yes", "no"]))
    ours.start([1])
    logits = ours.adjust(torch.zeros((1, TOKENIZER_SIZE), device=DEVICE), *root_only([1]))
    assert set(torch.isfinite(logits[0]).nonzero()[:, 0].tolist()) == set(ids_of("yn"))


@pytest.mark.parametrize(
    ("kind", "source", "message"),
    [
        ("regex", "a(", "unclosed group"),
        ("lark", "start: x", "unknown name"),
        ("json_schema", "{x", "A JSON schema must be valid JSON"),
        ("json_schema", '{"type": "nope"}', "nope"),
        ("json_schema", '{"not": {}}', "not"),
        ("json_schema", "3", "schema must be"),
    ],
)
def test_invalid_grammar_is_refused_in_one_sentence(kind, source, message):
    for call in (lambda: check(Grammar(kind, source)), lambda: grammar_processor(kind, source)):
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_grammar_requires_a_stop_token():
    with pytest.raises(ValueError, match="requires a stop token"):
        grammar_processor("json", stop_ids=())
    check(Grammar("json"))
