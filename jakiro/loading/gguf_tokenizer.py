"""The tokenizer in a GGUF file's metadata as a transformers tokenizer.

A byte-level vocabulary has merges and the name of a rule that splits text before merging (`tokenizer.ggml.pre`); a
SentencePiece vocabulary has scores. The rules follow the models' tokenizer.json and llama.cpp; tests compare with the
latter.
"""

import re
from collections import Counter
from collections.abc import Mapping

from jakiro.config import shortened
from jakiro.loading.gguf_file import Value
from jakiro.loading.incompatibilities import one_sentence
from jakiro.text.tokens import PREFIX_BLANK

_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SIGNS, _BLANKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_PATHS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_ANY_MARK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_HAN = "[一-龥\u3040-\u309f\u30a0-\u30ff]+"

_GPT2 = (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",)
_DIGITS = (r"\p{N}", *_GPT2)
_LLAMA3 = (rf"{_SHORT}|{_LETTERS}|\p{{N}}{{1,3}}|{_SIGNS}|{_BLANKS}",)
_QWEN2 = (rf"{_SHORT}|{_LETTERS}|\p{{N}}|{_SIGNS}|{_BLANKS}",)
_QWEN35 = (rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_BLANKS}",)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*|\p{{N}}|{_PATHS}|{_BLANKS}",
)
_GPT4O = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{_SHORT}?|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{_SHORT}?"
    rf"|\p{{N}}{{1,3}}|{_PATHS}|{_BLANKS}",
)
_DEEPSEEK_V3 = (r"\p{N}{1,3}", _HAN, rf"{_ANY_MARK}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_BLANKS}")
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥\u0800-一가-\ud7ff]+", r"\p{N}")
_SEED_CODER = (rf"{_SHORT}|{_LETTERS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+|{_BLANKS}",)
_VIKING = (r" ?[^(\s|.,!?…。，、।۔،)]+", r"\p{N}")
# llama.cpp's list of cased letters. Letters that NFC changes are escapes, because some editors normalise source text
_CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ"
    "\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_DEEPSEEK_LLM = (
    r"[\r\n]", rf"\s?[{_CASED}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥\u0800-一가-\ud7ff]+", r"\p{N}+",
)  # fmt: skip
_FALCON = (r"[\p{P}\$\+<=>\^~\|`]+", *_GPT2, r"[0-9][0-9][0-9]")
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", *_GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")

# Splitting rules by their names in files: expressions that are applied one after the other
_SPLITS = {
    "gpt-2": _GPT2, "phi-2": _GPT2, "mpt": _GPT2, "olmo": _GPT2, "jais": _GPT2, "exaone4": _GPT2, "mellum": _GPT2,
    "a.x-4.0": _GPT2, "trillion": _GPT2, "gigachat": _GPT2, "granite-docling": _GPT2,
    "starcoder": _DIGITS, "refact": _DIGITS, "command-r": _DIGITS, "smollm": _DIGITS, "codeshell": _DIGITS,
    "exaone": _DIGITS, "minerva-7b": _DIGITS,
    "llama3": _LLAMA3, "llama-v3": _LLAMA3, "llama-bpe": _LLAMA3, "falcon3": _LLAMA3, "pixtral": _LLAMA3,
    "dbrx": _LLAMA3, "smaug-bpe": _LLAMA3, "chatglm-bpe": _LLAMA3, "glm4": _LLAMA3,
    "midm-2.0": _LLAMA3, "lfm2": _LLAMA3, "falcon-h1": _LLAMA3,
    "qwen2": _QWEN2, "deepseek-r1-qwen": _QWEN2, "stablelm2": _QWEN2, "megrez": _QWEN2, "hunyuan": _QWEN2,
    "grok-2": _QWEN2, "kormo": _QWEN2, "solar-open": _QWEN2, "bailingmoe": _QWEN2, "llada-moe": _QWEN2,
    "qwen35": _QWEN35, "seed-coder": _SEED_CODER, "viking": _VIKING,
    "tekken": _TEKKEN, "gpt-4o": _GPT4O, "llama4": _GPT4O, "minimax-m2": _GPT4O,
    "deepseek-llm": _DEEPSEEK_LLM,
    "deepseek-v3": _DEEPSEEK_V3, "hunyuan-dense": _DEEPSEEK_V3, "joyai-llm": _DEEPSEEK_V3,
    "deepseek-coder": _DEEPSEEK_CODER, "falcon": _FALCON, "default": _DEFAULT,
}  # fmt: skip
# Rules with which a piece that is a token is not merged from parts; and rules that add the first token by default
_WHOLE = {
    "llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken", "glm4", "midm-2.0", "lfm2", "falcon-h1",
}  # fmt: skip
_BEGIN = _WHOLE - {"glm4"}
# Models with tokenizers that apply Unicode normalisation form C: Qwen's, Cohere's, and GPT-NeoX's of OLMo and MPT.
# llama.cpp does not normalise
_NFC = {"qwen2", "qwen35", "deepseek-r1-qwen", "command-r", "olmo", "mpt"}

_PREFIX = "tokenizer.ggml."
_BLANK = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_NAMES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_READ = {
    "model", "pre", "tokens", "token_type", "scores", "merges", "add_bos_token", "add_eos_token", "add_space_prefix",
    *(f"{name}_token_id" for name in (*_NAMES.values(), "eot", "eom")),
}  # fmt: skip
# Keys of tokens for other uses of a model
_UNUSED = {
    "token_type_count",
    *(f"{name}_token_id" for name in ("seperator", "cls", "mask", "prefix", "suffix", "middle")),
}
_UNUSED |= {f"fim_{name}_token_id" for name in ("pre", "suf", "mid", "pad", "rep", "sep")}
_NEUTRAL = {"remove_extra_whitespaces": False, "add_sep_token": False}


class _UnsupportedError(Exception):
    """A tokenizer that is not supported; the message continues "its tokenizer"."""


def tokenizer_of(metadata: Mapping[str, Value], path) -> object:
    """Return a transformers tokenizer with the file's chat template.

    Raises:
        ValueError: the kind or the splitting rule of the tokenizer is not supported, or a part is missing.
    """
    keys = {key.removeprefix(_PREFIX): value for key, value in metadata.items() if key.startswith(_PREFIX)}
    try:
        return _make_tokenizer(keys, str(path), metadata.get("tokenizer.chat_template"))
    except _UnsupportedError as error:
        raise ValueError(f"{path} cannot be read: its tokenizer {error}.") from None


def _make_tokenizer(keys: dict[str, Value], path: str, chat_template: str | None) -> object:
    from transformers import PreTrainedTokenizerFast

    _check_keys(keys)
    is_sentence_piece, split = keys["model"] == "llama", keys.get("pre")
    types = keys.setdefault("token_type", [_NORMAL] * len(keys["tokens"]))
    keys["tokens"] = tokens = _checked_tokens(keys)
    ids = _special_ids(keys)
    special = {f"{name}_token": tokens[token_id] for name, token_id in ids.items() if token_id is not None}
    with one_sentence("target model", path, "tokenizer"):
        backend = _sentence_piece(keys, special["unk_token"]) if is_sentence_piece else _byte_level(keys)
    end_ids = [keys.get(f"{name}_token_id") for name in ("eot", "eom")]
    named = {*special.values(), *(tokens[token_id] for token_id in end_ids if token_id is not None)}
    _add_whole_tokens(backend, tokens, types, named, normalized=is_sentence_piece)
    first_id = ids["bos"] if keys.get("add_bos_token", is_sentence_piece or split in _BEGIN) else None
    last_id = ids["eos"] if keys.get("add_eos_token", False) else None
    _add_ends(backend, tokens, first_id, last_id)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **special)
    tokenizer.chat_template = chat_template
    return tokenizer


def _check_keys(keys: Mapping[str, Value]) -> None:
    """Check that all keys are supported and that none is missing."""
    for key, value in keys.items():
        # A normaliser that is switched off has no effect
        is_off = key.startswith("normalizer.") and value is False
        if not is_off and key not in _READ | _UNUSED and value != _NEUTRAL.get(key):
            raise _UnsupportedError(f"has the unsupported key {_PREFIX}{key} {shortened(value)}")
    kind = keys.get("model")
    if kind not in ("gpt2", "llama"):
        raise _UnsupportedError(f"is of the unsupported kind {kind}; gpt2 and llama are supported")
    for name in ("tokens", "merges" if kind == "gpt2" else "scores"):
        if not isinstance(keys.get(name), list) or not keys[name]:
            raise _UnsupportedError(f"has no {_PREFIX}{name}")
    if kind == "gpt2" and not keys.get("pre"):
        raise _UnsupportedError(f"has no {_PREFIX}pre, the rule that splits text; convert the model again")
    if kind == "gpt2" and keys["pre"] not in _SPLITS:
        raise _UnsupportedError(f"splits text by the unsupported rule {keys['pre']}")


def _checked_tokens(keys: Mapping[str, Value]) -> list[str]:
    """Return the tokens after a check that they are unique, with names for empty ones."""
    tokens = keys["tokens"]
    for name, values in (("types", keys["token_type"]), ("scores", keys.get("scores", tokens))):
        if len(values) != len(tokens):
            raise _UnsupportedError(f"has {len(tokens):,} tokens and {len(values):,} {name}")
    # As in llama.cpp, a vocabulary may be padded with empty tokens
    tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
    if keys["model"] == "llama":
        tokens = _mark_blanks(tokens, keys["token_type"])
    if len(set(tokens)) != len(tokens):
        repeated = next(token for token, count in Counter(tokens).items() if count > 1)
        first_id = tokens.index(repeated)
        second_id = tokens.index(repeated, first_id + 1)
        raise _UnsupportedError(f"has the token {repeated!r} twice, as ids {first_id:,} and {second_id:,}")
    return tokens


def _special_ids(keys: Mapping[str, Value]) -> dict[str, int | None]:
    """Return the ids of the named special tokens by transformers' names."""
    defaults = {"bos": 1, "eos": 2, "unk": 0} if keys["model"] == "llama" else {}
    ids = {name: keys.get(f"{key}_token_id", defaults.get(name)) for name, key in _NAMES.items()}
    for name, token_id in ids.items():
        if token_id is not None and token_id >= len(keys["tokens"]):
            raise _UnsupportedError(f"has {name} {token_id:,} and {len(keys['tokens']):,} tokens")
    return ids


def _mark_blanks(tokens: list[str], types: list[int]) -> list[str]:
    """Return the tokens with blanks in user-defined ones as `▁`, as in SentencePiece; converters to GGUF undo this.

    A token is unchanged if its new name is another token's.
    """
    vocabulary, pairs = set(tokens), zip(tokens, types, strict=True)
    names = [token.replace(" ", _BLANK) if kind == _USER_DEFINED else token for token, kind in pairs]
    return [token if name in vocabulary else name for token, name in zip(tokens, names, strict=True)]


def _byte_level(keys: Mapping[str, Value]):
    """Return the backend of a vocabulary with merges."""
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    split = keys["pre"]
    vocabulary = {token: index for index, token in enumerate(keys["tokens"])}
    # The second part starts after the first blank that is not the first letter. A merge that is listed twice keeps its
    # first rank, as in llama.cpp
    positions = {merge: merge.find(" ", 1) for merge in keys["merges"]}
    merges = [(merge[:position], merge[position + 1 :]) for merge, position in positions.items()]
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=split in _WHOLE))
    if split in _NFC:
        backend.normalizer = normalizers.NFC()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(rule), behavior="isolated") for rule in _SPLITS[split]),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def _sentence_piece(keys: Mapping[str, Value], unknown_token: str):
    """Return the backend of a vocabulary with scores.

    SentencePiece puts one blank before the text, also before a user-defined token, but not after one. The package
    tokenizers normalises the name of such a token as if it were a text; the second step removes the blank from it
    again, because the token would otherwise be found only after a blank. A text that is nothing but such a name has no
    prefix blank for the same reason; it decodes to the same text.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers

    tokens, types = keys["tokens"], keys["token_type"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    merges = _merges(tokens, keys["scores"], types, vocabulary)
    model = models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, fuse_unk=True, unk_token=unknown_token)
    backend = Tokenizer(model)
    steps = [normalizers.Replace(" ", _BLANK)]
    ends = [decoders.Replace(_BLANK, " ")]
    if keys.get("add_space_prefix", True):
        ends = [decoders.Replace(Regex(PREFIX_BLANK), ""), *ends]
        names = [token for token, kind in zip(tokens, types, strict=True) if kind == _USER_DEFINED]
        if names:
            pattern = "|".join(map(re.escape, names))
            steps = [normalizers.Replace(Regex(rf"\A{_BLANK}(?=(?:{pattern})\z)"), ""), *steps]
        steps = [normalizers.Prepend(_BLANK), *steps]
    backend.normalizer = normalizers.Sequence(steps)
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), *ends])
    return backend


def _merges(
    tokens: list[str], scores: list[float], types: list[int], vocabulary: Mapping[str, int]
) -> list[tuple[str, str]]:
    """Return the pairs of tokens that merge to a third one, best score first, as SentencePiece prefers them.

    Only normal tokens are merged: typed text must not become a control token.
    """
    pairs = []
    for token, score, kind in zip(tokens, scores, types, strict=True):
        for length in range(1, len(token) if kind == _NORMAL else 0):
            left, right = token[:length], token[length:]
            if left in vocabulary and right in vocabulary:
                pairs.append((-score, vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for *_, left, right in sorted(pairs)]


def _add_whole_tokens(backend, tokens: list[str], types: list[int], named: set[str], normalized: bool) -> None:
    """Add the tokens that are never split: control tokens are special, user-defined tokens are not.

    Args:
        named: tokens that are special in spite of their type.
        normalized: find user-defined tokens in the normalised text, which has `▁` for blanks.
    """
    from tokenizers import AddedToken

    kinds = dict(zip(tokens, types, strict=True))
    special = [token for token, kind in kinds.items() if kind in (_CONTROL, _UNKNOWN) or token in named]
    defined = [token for token, kind in kinds.items() if kind == _USER_DEFINED and token not in named]
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    backend.add_tokens([AddedToken(token, normalized=normalized, special=False) for token in defined])


def _add_ends(backend, tokens: list[str], first: int | None, last: int | None) -> None:
    """Set the post-processor that adds BOS and EOS to a text; chat templates write their own.

    Args:
        first, last: ids of BOS and EOS; None adds none.
    """
    from tokenizers import processors

    begin, end = ([] if token_id is None else [tokens[token_id]] for token_id in (first, last))
    if begin or end:
        single = [*begin, "$A", *end]
        pair = [*single, *(f"{piece}:1" for piece in (*begin, "$B", *end))]
        added = [(tokens[token_id], token_id) for token_id in (first, last) if token_id is not None]
        backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=added)
