"""Tokenizers of GGUF files: the ids are llama.cpp's, as kept in tests/data."""

import json

import pytest

from jakiro.loading.gguf_file import open_gguf
from jakiro.loading.gguf_tokenizer import tokenizer_of
from jakiro.loading.weights import load_tokenizer
from tests.gguf_vocabularies import DATA, NAMES, RULES, SPECIAL, TEXTS, byte_level_keys, keys_of, vocabulary_file

# llama.cpp stands in for classes of letters that its own regular expressions lack; the rules here are the models' own
LIKE = {"tekken": "हिन्दी में", "gpt-4o": "हिन्दी में"}


def small(rule: str = "gpt-2", **more) -> dict:
    """Metadata of the small vocabulary, with other values for some keys."""
    keys = keys_of(rule) | {f"tokenizer.ggml.{key}": value for key, value in more.items()}
    return {key: value for key, value in keys.items() if value is not None}


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", NAMES)
def test_ids_are_those_of_llama_cpp(name):
    tokenizer = tokenizer_of({key: value for key, value in keys_of(name).items() if value is not None}, "small.gguf")
    for text, expected in zip(TEXTS, DATA["ids"][name], strict=True):
        if text != LIKE.get(name):
            assert ids(tokenizer, text) == expected, text
        if not any(token in text for token in SPECIAL):
            assert tokenizer.decode(ids(tokenizer, text), clean_up_tokenization_spaces=False) == text


def test_rules_differ_so_that_a_wrong_one_shows():
    different = {json.dumps(DATA["ids"][rule]) for rule in RULES}
    # dbrx splits like llama-bpe, and each piece of these texts is what their merges make of it
    assert len(different) >= len(RULES) - 1


def test_the_default_models_own_rule_is_read(default_tokenizer):
    assert ids(default_tokenizer, "x=\n\n12") == [104, 45, 1116, 33, 34]
    for text, expected in zip(TEXTS, DATA["ids"]["default model"], strict=True):
        assert ids(default_tokenizer, text) == expected, text


@pytest.fixture
def default_tokenizer():
    from jakiro.loading.embedded import wheel_is_installed, wheel_path

    if not wheel_is_installed() and not wheel_path().is_file():
        pytest.skip("the default model is not here")
    return load_tokenizer()


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "sentencepiece", "sentencepiece without a blank"])
def test_a_tokenizer_is_the_same_once_it_was_kept_and_read(own_cache, name, tmp_path):
    keys = keys_of(name) | {"tokenizer.chat_template": "{{ messages[0].content }}"}
    path = vocabulary_file(tmp_path / "small.gguf", keys)
    kept, own = load_tokenizer(str(path)), tokenizer_of(open_gguf(path).metadata, path)
    assert kept.chat_template == "{{ messages[0].content }}" and kept.eos_token == own.eos_token
    for text in TEXTS:
        assert kept(text)["input_ids"] == own(text)["input_ids"]


def test_tokens_that_a_text_holds_whole_are_special_or_not_by_their_type():
    tokenizer = tokenizer_of(small(), "small.gguf")
    end, think = (tokenizer.convert_tokens_to_ids(name) for name in SPECIAL)
    assert (end, think) == (len(DATA["tokens"]) - 2, len(DATA["tokens"]) - 1)
    assert ids(tokenizer, "a<|end|>b<think>c")[1::2] == [end, think]
    plain = tokenizer("a<|end|>b<think>c", split_special_tokens=True)["input_ids"]
    assert end not in plain and think in plain
    assert tokenizer.decode([end, think], skip_special_tokens=True) == "<think>"
    # One that ends an answer is special whatever its type says
    named = small(eot_token_id=think)
    assert "<think>" not in tokenizer_of(named, "small.gguf").decode([think], skip_special_tokens=True)


@pytest.mark.parametrize(("rule", "whole"), [("llama-bpe", True), ("tekken", True), ("dbrx", False), ("qwen2", False)])
def test_a_piece_that_is_a_token_is_that_token_by_some_rules(rule, whole):
    """Whatever the merges say, which here never make it."""
    tokens = [*DATA["tokens"][:-2], "zqzq", *SPECIAL]
    keys = {key: value for key, value in byte_level_keys(tokens, DATA["merges"], rule).items() if value is not None}
    tokenizer = tokenizer_of(keys, "small.gguf")
    assert (ids(tokenizer, "zqzq") == [len(tokens) - 3]) == whole


@pytest.mark.parametrize(
    ("name", "more", "begins", "ends"),
    [
        ("gpt-2", {"add_bos_token": None}, False, False),
        ("gpt-2", {"add_bos_token": True}, True, False),
        ("gpt-2", {"add_eos_token": True}, False, True),
        ("llama-bpe", {"add_bos_token": None}, True, False),
        ("llama-bpe", {"add_bos_token": False}, False, False),
        ("tekken", {"add_bos_token": None, "add_eos_token": True}, True, True),
        ("sentencepiece", {"add_bos_token": None}, True, False),
        ("sentencepiece", {"add_bos_token": False, "add_eos_token": True}, False, True),
    ],
)
def test_what_a_text_begins_and_ends_with_is_read(name, more, begins, ends):
    tokenizer = tokenizer_of(small(name, **more), "small.gguf")
    inner = ids(tokenizer, "1. one")
    first, last = ([tokenizer.bos_token_id] if begins else []), ([tokenizer.eos_token_id] if ends else [])
    assert tokenizer("1. one")["input_ids"] == [*first, *inner, *last]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"pre": "my-own"}, "splits text by a rule named my-own, which is not known here"),
        ({"pre": None}, r"lacks tokenizer\.ggml\.pre, the rule that splits text; convert the model again"),
        ({"model": "bert"}, "is of kind bert, and gpt2 and llama are read"),
        ({"merges": None}, r"lacks tokenizer\.ggml\.merges"),
        ({"tokens": None}, r"lacks tokenizer\.ggml\.tokens"),
        ({"model": "llama"}, r"lacks tokenizer\.ggml\.scores"),
        ({"token_type": [1, 1]}, "has 702 tokens and 2 types"),
        ({"eos_token_id": 9999}, "has eos 9,999 and 702 tokens"),
        ({"normalizer.lowercase": True}, r"has tokenizer\.ggml\.normalizer\.lowercase, and what that would change"),
        ({"remove_extra_whitespaces": True}, r"has tokenizer\.ggml\.remove_extra_whitespaces True"),
        ({"tokens": [*DATA["tokens"][:-1], "a"]}, "has the token a twice"),
    ],
)
def test_what_is_not_known_of_a_tokenizer_is_named(more, sentence):
    with pytest.raises(ValueError, match=rf"small\.gguf cannot be read: its tokenizer {sentence}"):
        tokenizer_of(small(**more), "small.gguf")
