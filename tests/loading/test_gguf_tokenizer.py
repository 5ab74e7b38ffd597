"""Tokenizers of GGUF files: their ids equal llama.cpp's, which are stored in tests/data."""

import json
import random
import unicodedata

import pytest
import sentencepiece
from transformers import CohereTokenizer, GPTNeoXTokenizer, Qwen2Tokenizer
from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

from jakiro.loading.gguf_file import open_gguf
from jakiro.loading.gguf_tokenizer import tokenizer_of
from jakiro.loading.weights import load_tokenizer
from jakiro.text import IncrementalDecoder, TokenText
from tests.gguf_vocabularies import DATA, NAMES, RULES, SPECIAL, TEXTS, byte_level_keys, keys_of, vocabulary_file

# llama.cpp approximates letter classes that its regular expressions lack; the rules here follow the models
LIKE = {"tekken": "हिन्दी में", "gpt-4o": "हिन्दी में"}


# As in sentencepiece and unlike llama.cpp, no space follows a user-defined token
AFTER_DEFINED = "Hi<|end|>\n<think>\n\nx</think>"


def small_keys(rule: str = "gpt-2", **values) -> dict:
    """Return the metadata of the small vocabulary, with other values for some keys."""
    keys = keys_of(rule) | {f"tokenizer.ggml.{key}": value for key, value in values.items()}
    return {key: value for key, value in keys.items() if value is not None}


def ids(tokenizer, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("name", NAMES)
def test_ids_equal_those_of_llama_cpp(name):
    tokenizer = tokenizer_of({key: value for key, value in keys_of(name).items() if value is not None}, "small.gguf")
    for text, expected in zip(TEXTS, DATA["ids"][name], strict=True):
        if text != LIKE.get(name) and (name, text) != ("sentencepiece", AFTER_DEFINED):
            assert ids(tokenizer, text) == expected, text
        if not any(token in text for token in SPECIAL):
            assert tokenizer.decode(ids(tokenizer, text), clean_up_tokenization_spaces=False) == text


def test_rules_give_different_ids():
    different = {json.dumps(DATA["ids"][rule]) for rule in RULES}
    # dbrx splits like llama-bpe, and for these texts the merges give the same pieces
    assert len(different) >= len(RULES) - 1


def test_rule_of_the_default_model_is_read(default_tokenizer):
    assert ids(default_tokenizer, "x=\n\n12") == [104, 45, 1116, 33, 34]
    for text, expected in zip(TEXTS, DATA["ids"]["default model"], strict=True):
        assert ids(default_tokenizer, text) == expected, text


@pytest.fixture
def default_tokenizer():
    from jakiro.loading.embedded import wheel_is_installed, wheel_path

    if not wheel_is_installed() and not wheel_path().is_file():
        pytest.skip("the default model is not installed")
    return load_tokenizer()


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2", "sentencepiece", "sentencepiece without a blank"])
def test_stored_tokenizer_equals_the_original(own_cache, name, tmp_path):
    keys = keys_of(name) | {"tokenizer.chat_template": "{{ messages[0].content }}"}
    path = vocabulary_file(tmp_path / "small.gguf", keys)
    stored, original = load_tokenizer(str(path)), tokenizer_of(open_gguf(path).metadata, path)
    assert stored.chat_template == "{{ messages[0].content }}" and stored.eos_token == original.eos_token
    for text in TEXTS:
        assert stored(text)["input_ids"] == original(text)["input_ids"]


def test_tokens_in_a_text_are_special_by_their_type():
    tokenizer = tokenizer_of(small_keys(), "small.gguf")
    end, think = (tokenizer.convert_tokens_to_ids(name) for name in SPECIAL)
    assert (end, think) == (len(DATA["tokens"]) - 2, len(DATA["tokens"]) - 1)
    assert ids(tokenizer, "a<|end|>b<think>c")[1::2] == [end, think]
    plain = tokenizer("a<|end|>b<think>c", split_special_tokens=True)["input_ids"]
    assert end not in plain and think in plain
    assert tokenizer.decode([end, think], skip_special_tokens=True) == "<think>"
    # A token that ends an answer is special, even if its type is not
    named = small_keys(eot_token_id=think)
    assert "<think>" not in tokenizer_of(named, "small.gguf").decode([think], skip_special_tokens=True)


@pytest.mark.parametrize(
    ("rule", "is_kept"), [("llama-bpe", True), ("tekken", True), ("dbrx", False), ("qwen2", False)]
)
def test_piece_that_is_a_token_is_not_merged_by_some_rules(rule, is_kept):
    """The merges never give this token."""
    tokens = [*DATA["tokens"][:-2], "zqzq", *SPECIAL]
    keys = {key: value for key, value in byte_level_keys(tokens, DATA["merges"], rule).items() if value is not None}
    tokenizer = tokenizer_of(keys, "small.gguf")
    assert (ids(tokenizer, "zqzq") == [len(tokens) - 3]) == is_kept


@pytest.mark.parametrize(
    ("name", "values", "begins", "ends"),
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
def test_tokens_at_both_ends_of_a_text_are_read_from_the_file(name, values, begins, ends):
    tokenizer = tokenizer_of(small_keys(name, **values), "small.gguf")
    inner = ids(tokenizer, "1. one")
    first, last = ([tokenizer.bos_token_id] if begins else []), ([tokenizer.eos_token_id] if ends else [])
    assert tokenizer("1. one")["input_ids"] == [*first, *inner, *last]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"pre": "my-own"}, "splits text by the unsupported rule my-own"),
        ({"pre": None}, r"has no tokenizer\.ggml\.pre, the rule that splits text; convert the model again"),
        ({"model": "bert"}, "is of the unsupported kind bert; gpt2 and llama are supported"),
        ({"merges": None}, r"has no tokenizer\.ggml\.merges"),
        ({"tokens": None}, r"has no tokenizer\.ggml\.tokens"),
        ({"model": "llama"}, r"has no tokenizer\.ggml\.scores"),
        ({"token_type": [1, 1]}, "has 702 tokens and 2 types"),
        ({"eos_token_id": 9999}, "has eos 9,999 and 702 tokens"),
        ({"normalizer.lowercase": True}, r"has the unsupported key tokenizer\.ggml\.normalizer\.lowercase True"),
        ({"remove_extra_whitespaces": True}, r"has the unsupported key tokenizer\.ggml\.remove_extra_whitespaces True"),
        ({"tokens": [*DATA["tokens"][:-1], "a"]}, "has the token 'a' twice, as ids 64 and 701"),
    ],
)
def test_unsupported_tokenizer_settings_are_named(values, sentence):
    with pytest.raises(ValueError, match=rf"small\.gguf cannot be read: its tokenizer {sentence}"):
        tokenizer_of(small_keys(**values), "small.gguf")


DECOMPOSED = [
    "e\u0301", "caf\u0065\u0301 na\u00efve", "tie\u0302\u0301ng Vie\u0323\u0302t",
    "\u1112\u1161\u11ab\u1100\u1173\u11af", "\u304b\u3099", "\u30cf\u309a", "A\u030a \u212b \u2126 \u212a",
]  # fmt: skip
BASE = DATA["tokens"][:-2]
ORACLES = {
    "qwen2": lambda: Qwen2Tokenizer(vocab={t: i for i, t in enumerate(BASE)}, merges=pairs(DATA["merges"])),
    "deepseek-r1-qwen": lambda: Qwen2Tokenizer(vocab={t: i for i, t in enumerate(BASE)}, merges=pairs(DATA["merges"])),
    "qwen35": lambda: Qwen3_5Tokenizer(vocab={t: i for i, t in enumerate(BASE)}, merges=pairs(DATA["merges"])),
    "command-r": lambda: CohereTokenizer(vocab={t: i for i, t in enumerate(BASE)}, merges=pairs(DATA["merges"])),
    "olmo": lambda: GPTNeoXTokenizer(vocab={t: i for i, t in enumerate(BASE)}, merges=pairs(DATA["merges"])),
    "mpt": lambda: GPTNeoXTokenizer(vocab={t: i for i, t in enumerate(BASE)}, merges=pairs(DATA["merges"])),
}


def pairs(merges: list[str]) -> list[tuple[str, str]]:
    return [tuple(merge.split(" ", 1)) if merge[0] != " " else (" ", merge[2:]) for merge in merges]


@pytest.mark.parametrize("rule", ORACLES)
def test_text_is_normalized_as_by_the_class_of_transformers(rule):
    published, ours = ORACLES[rule](), tokenizer_of(small_keys(pre=rule), "small.gguf")
    for text in (*DECOMPOSED, *(unicodedata.normalize("NFD", text) for text in TEXTS)):
        if not any(token in text for token in SPECIAL):
            assert ids(ours, text) == ids(published, text), ascii(text)
    assert ids(ours, DECOMPOSED[0]) == ids(ours, "\u00e9")


@pytest.mark.parametrize("rule", ["llama-bpe", "gpt-2", "deepseek-v3", "tekken"])
def test_other_rules_do_not_normalize(rule):
    tokenizer = tokenizer_of(small_keys(rule), "small.gguf")
    assert tokenizer.decode(ids(tokenizer, DECOMPOSED[0])) == DECOMPOSED[0]


def test_disabled_normalizer_is_accepted():
    off = small_keys(**{"normalizer.lowercase": False, "normalizer.strip_accents": False})
    assert ids(tokenizer_of(off, "small.gguf"), "Aé") == ids(tokenizer_of(small_keys(), "small.gguf"), "Aé")


def sentence_piece(tmp_path, defined: list[str], **options):
    """Return a model trained by sentencepiece, and its metadata as written by llama.cpp's converter.

    Args:
        defined: user-defined tokens, with `▁` for blanks.
        options: options of the trainer.
    """
    sentences = ["The sky is blue.", "Why is the sea blue?", "A bird sees the sea.", "a  b   c", "x = 1"]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences * 50), model_prefix=str(tmp_path / "t"), vocab_size=330, model_type="bpe",
        byte_fallback=True, hard_vocab_limit=False, minloglevel=2, unk_id=0, bos_id=1, eos_id=2, pad_id=-1,
        normalization_rule_name="identity", remove_extra_whitespaces=False, user_defined_symbols=defined, **options,
    )  # fmt: skip
    published = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "t.model"))
    ids = range(published.get_piece_size())
    pieces = [published.id_to_piece(index) for index in ids]
    types = [4 if piece in defined else 6 if published.is_byte(index) else 1 for index, piece in enumerate(pieces)]
    types[:3] = [2, 3, 3]
    tokens = [piece.replace("▁", " ") if kind == 4 else piece for piece, kind in zip(pieces, types, strict=True)]
    keys = {"model": "llama", "tokens": tokens, "scores": [published.get_score(index) for index in ids]}
    keys |= {"token_type": types, "add_space_prefix": options.get("add_dummy_prefix", True)}
    return published, {f"tokenizer.ggml.{key}": value for key, value in keys.items()}


@pytest.mark.parametrize("prefix", [True, False])
def test_user_defined_tokens_are_encoded_as_by_sentencepiece(prefix, tmp_path):
    published, keys = sentence_piece(tmp_path, ["▁▁", "<think>", "▁▁▁▁"], add_dummy_prefix=prefix)
    tokenizer, source = tokenizer_of(keys, "small.gguf"), random.Random(0)
    parts = ["a", "b", " ", "  ", "<think>", "sky", "\n", "é", "the ", "      "]
    texts = ["".join(source.choice(parts) for _ in range(source.randint(1, 8))) for _ in range(2000)]
    for text in ("a  b", "  ", "    ", "<think>a", " <think>", *texts):
        token_ids = ids(tokenizer, text)
        # A text that equals the name has no leading space, see `_sentence_piece`
        if text != "<think>":
            assert token_ids == published.encode(text), repr(text)
        assert tokenizer.decode(token_ids, clean_up_tokenization_spaces=False) == text
        decoder = IncrementalDecoder(TokenText(tokenizer))
        assert "".join(decoder.push([token_id]) for token_id in token_ids) + decoder.finish() == text


def test_typed_text_is_never_merged_to_a_control_token(tmp_path):
    _, keys = sentence_piece(tmp_path, [])
    tokens, types = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.token_type"]
    extra = ["<", "</", "s>", "/"]
    keys["tokenizer.ggml.tokens"] = tokens + extra
    keys["tokenizer.ggml.token_type"] = types + [1] * len(extra)
    keys["tokenizer.ggml.scores"] = keys["tokenizer.ggml.scores"] + [-1.0] * len(extra)
    tokenizer = tokenizer_of(keys, "small.gguf")
    assert 2 not in tokenizer("a</s>", add_special_tokens=False, split_special_tokens=True)["input_ids"]


def test_empty_tokens_and_repeated_merges_are_handled_as_by_llama_cpp():
    tokens, merges = [*DATA["tokens"][:-2], "", "", *SPECIAL], DATA["merges"]
    keys = byte_level_keys(tokens, merges + merges[:50][::-1], "gpt-2")
    padded, plain = tokenizer_of(keys, "small.gguf"), tokenizer_of(small_keys(), "small.gguf")
    assert padded.convert_ids_to_tokens([len(tokens) - 4, len(tokens) - 3]) == ["[EMPTY_700]", "[EMPTY_701]"]
    for text in TEXTS:
        if not any(token in text for token in SPECIAL):
            assert ids(padded, text) == ids(plain, text)


@pytest.mark.parametrize(
    ("like", "names"),
    [
        ("qwen2", ["kormo", "solar-open", "bailingmoe", "llada-moe"]),
        ("llama-bpe", ["midm-2.0", "lfm2", "falcon-h1"]),
        ("gpt-2", ["a.x-4.0", "trillion", "gigachat", "granite-docling"]),
        ("gpt-4o", ["minimax-m2"]),
        ("deepseek-v3", ["hunyuan-dense", "joyai-llm"]),
    ],
)
def test_names_of_the_same_rule_give_the_same_ids(like, names):
    for name in names:
        tokenizer = tokenizer_of(small_keys(pre=name, add_bos_token=None), "small.gguf")
        for text, expected in zip(TEXTS, DATA["ids"][like], strict=True):
            if text != LIKE.get(like):
                assert ids(tokenizer, text) == expected, (name, text)


@pytest.mark.parametrize(
    ("rule", "text", "pieces"),
    [
        ("seed-coder", "it's 12;\n\nx", ["it", "'s", " ", "1", "2", ";", "\n\n", "x"]),
        ("viking", "a 12.5, (b)", ["a", " ", "1", "2", ".", "5", ", (", "b", ")"]),
        ("deepseek-llm", "Größe, 123\nдом 中文", ["Gr", "öß", "e", ",", " ", "123", "\n", "дом", " ", "中文"]),
    ],
)
def test_rules_with_several_expressions_split_text(rule, text, pieces):
    """A later expression also splits the matches of an earlier one; the third one of DeepSeek matches Latin letters."""
    splits = tokenizer_of(small_keys(pre=rule), "small.gguf").backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[start:end] for _, (start, end) in splits] == pieces
