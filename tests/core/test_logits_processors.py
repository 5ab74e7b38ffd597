"""Logits processors: the logits of each node are those of transformers' processors on the prefix of this node."""

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


def rule_of(sampling: SamplingParams) -> LogitsProcessorList | None:
    return make_logits_processors(sampling, VOCAB_SIZE, DEVICE, None)


def root_alone(prompt):
    """Return the tree and the mask before the first token."""
    return tree_of(prompt[-1:], [-1]), torch.ones((1, 1), dtype=torch.bool, device=DEVICE)


def expected_row(row, sampling, prompt, answer):
    """Return the logits by transformers' processors, and by OpenAI's formula for the tokens of the answer."""
    row = processors(sampling)(torch.tensor([[*prompt, *answer]], device=DEVICE), row[None].clone())[0]
    for token_id, count in Counter(answer).items():
        row[token_id] -= sampling.frequency_penalty * count + sampling.presence_penalty
    return row


def path_to(node):
    return [] if node <= 0 else [*path_to(PARENTS[node]), TOKENS[node]]


@settings(max_examples=150)
@given(SETTINGS, IDS, IDS, st.integers(0, 2**32))
def test_each_node_s_logits_are_those_of_transformers_processors_on_its_own_prefix(values, before, answer, seed):
    sampling, random = SamplingParams(**values), torch.Generator().manual_seed(seed)
    rule, prompt = rule_of(sampling), [6, *before]
    logits = torch.randn((len(TOKENS), VOCAB_SIZE), generator=random).mul(3).to(DEVICE)
    if rule is None:
        assert sampling == SamplingParams()
        return
    rule.start(prompt)
    first = rule.adjust(logits[:1], *root_alone(prompt))
    torch.testing.assert_close(first[0], expected_row(logits[0], sampling, prompt, []), rtol=0, atol=0)
    answer = [*answer, TOKENS[0]]
    for ids in (answer[:2], answer[2:]):
        rule.advance(ids, torch.tensor(ids, dtype=torch.int64, device=DEVICE))
    kept, tree = logits.clone(), tree_of(TOKENS, PARENTS)
    mask = ancestor_mask(tree.parents, tree.max_depth)
    for _ in range(2):
        adjusted = rule.adjust(logits, tree, mask)
        for node in range(len(TOKENS)):
            own = expected_row(logits[node], sampling, prompt, [*answer, *path_to(node)])
            torch.testing.assert_close(adjusted[node], own, rtol=1e-6, atol=1e-6)
    assert torch.equal(logits, kept), "the target's own logits stay"
    if rule.penalties is not None:
        at_all = rule.penalties.adjust(logits, tree.token_ids, drafted_path(mask))
        at_seen = rule._penalise(logits, tree, mask)
        assert torch.equal(at_all, at_seen), "captured passes look at all tokens, others at those that came"
    forbidden = rule.forbidden_by(TOKENS)
    for node in range(1, len(TOKENS)):
        assert (forbidden[node] is not None) == bool(adjusted[PARENTS[node], TOKENS[node]] == -torch.inf)


@pytest.mark.parametrize("size", range(1, 13))
@pytest.mark.parametrize("num_tokens", range(1, 13))
def test_each_node_of_a_chain_forbids_what_plain_decoding_forbids_after_the_same_tokens(size, num_tokens):
    """Includes histories so short that the chain completes the first n-gram, with one to three different tokens."""
    sampling, logits = SamplingParams(no_repeat_ngram_size=size), torch.zeros((9, VOCAB_SIZE), device=DEVICE)
    for period in (1, 2, 3):
        text = [index % period for index in range(num_tokens + 8)]
        history, chain = text[:num_tokens], text[num_tokens - 1 :]
        rule, tree = rule_of(sampling), tree_of(chain, range(-1, len(chain) - 1))
        rule.start(history[:1])
        rule.advance(history[1:], torch.tensor(history[1:], dtype=torch.int64, device=DEVICE))
        masks = rule.adjust(logits, tree, ancestor_mask(tree.parents, tree.max_depth))
        for node in range(len(chain)):
            own = expected_row(logits[node], sampling, text[: num_tokens + node], [])
            assert torch.equal(masks[node], own), (period, node)


@pytest.mark.parametrize("values", [{"logit_bias": {12: 1}}, {"suppress_tokens": (3, 12)}])
def test_a_token_that_the_model_does_not_know_is_refused(values):
    (name,) = values
    with pytest.raises(ValueError, match=f"{name} contains token 12; expected token ids from 0 to 11 for this model."):
        rule_of(SamplingParams(**values))


TEXT = TokenText(byte_tokenizer())
END = byte_tokenizer().eos_token_id


def ids_of(text: str) -> list[int]:
    return TEXT.encode(text)


def grammar_rule(kind, source="", stop_ids=(END,)) -> GrammarProcessor:
    rule = GrammarProcessor(Grammar(kind, source), TEXT, TOKENIZER_SIZE, stop_ids)
    rule.start([])
    return rule


def allowed_by(rule, token_ids=(-1,), parents=(-1,)):
    """Return the texts of the tokens that may follow each node."""
    rows = np.full((len(token_ids), (TOKENIZER_SIZE + 31) // 32), 0xFFFFFFFF, dtype=np.uint32)
    rule.forbid(token_ids, parents, rows)
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
def test_each_form_allows_its_texts_token_by_token_and_then_the_end(kind, source, texts):
    for text in texts:
        rule = grammar_rule(kind, source)
        for character in text:
            assert character in allowed_by(rule)[0], (text, character)
            rule.advance(ids_of(character))
        assert "<|im_end|>" in allowed_by(rule)[0]
        assert "<|im_start|>" not in allowed_by(rule)[0]
        rule.advance([END])


def test_where_other_settings_leave_nothing_of_the_grammar_the_grammar_counts():
    sampling = SamplingParams(suppress_tokens=tuple(ids_of("yn")), grammar=Grammar("choice", ["yes", "no"]))
    rule = make_logits_processors(sampling, TOKENIZER_SIZE, DEVICE, grammar_rule("choice", ["yes", "no"]))
    rule.start([1])
    logits = rule.adjust(torch.zeros((1, TOKENIZER_SIZE), device=DEVICE), *root_alone([1]))
    assert set(torch.isfinite(logits[0]).nonzero()[:, 0].tolist()) == set(ids_of("yn"))


@pytest.mark.parametrize(
    ("kind", "source", "says"),
    [
        ("regex", "a(", "unclosed group"),
        ("lark", "start: x", "unknown name"),
        ("json_schema", "{x", "A JSON schema must be valid JSON"),
        ("json_schema", '{"type": "nope"}', "nope"),
        ("json_schema", '{"not": {}}', "not"),
        ("json_schema", "3", "schema must be"),
    ],
)
def test_a_grammar_that_cannot_be_compiled_is_refused_in_a_sentence(kind, source, says):
    for refused in (lambda: check(Grammar(kind, source)), lambda: grammar_rule(kind, source)):
        with pytest.raises(ValueError, match=says) as caught:
            refused()
        assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_a_grammar_needs_a_token_that_ends_the_answer():
    with pytest.raises(ValueError, match="requires a stop token"):
        grammar_rule("json", stop_ids=())
    check(Grammar("json"))
