"""The tokenizer that a GGUF file's metadata describes, as a transformers tokenizer.

A byte-level vocabulary comes with its merges, and with the name of the rule that splits text before it merges
(`tokenizer.ggml.pre`); one of SentencePiece comes with scores. Rules are those of the models' own tokenizer.json and
of llama.cpp, whose tokenizer the tests compare with.
"""

import re
from collections import Counter
from collections.abc import Mapping

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
# llama.cpp's list of cased letters. Letters that NFC maps to others are escapes: some editors normalise source text
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

# By the names that a file gives them: what is cut out one after the other, each of the rest of the one before
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
# A piece that is a token is that token, whatever the merges say; and with these a text begins with its first token
_WHOLE = {
    "llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken", "glm4", "midm-2.0", "lfm2", "falcon-h1",
}  # fmt: skip
_BEGIN = _WHOLE - {"glm4"}
# Models whose tokenizers apply Unicode normalisation form C: Qwen's, Cohere's, and GPT-NeoX's of OLMo and MPT.
# llama.cpp does not normalise
_NFC = {"qwen2", "qwen35", "deepseek-r1-qwen", "command-r", "olmo", "mpt"}

_BLANK = "▁"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_NAMES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_READ = {
    "model", "pre", "tokens", "token_type", "scores", "merges", "add_bos_token", "add_eos_token", "add_space_prefix",
    *(f"{name}_token_id" for name in (*_NAMES.values(), "eot", "eom")),
}  # fmt: skip
# Of tokens for other uses of a model
_UNUSED = {
    "token_type_count",
    *(f"{name}_token_id" for name in ("seperator", "cls", "mask", "prefix", "suffix", "middle")),
}
_UNUSED |= {f"fim_{name}_token_id" for name in ("pre", "suf", "mid", "pad", "rep", "sep")}
_NEUTRAL = {"remove_extra_whitespaces": False, "add_sep_token": False}


def tokenizer_of(metadata: Mapping[str, Value], path) -> object:
    """A transformers tokenizer, with the file's chat template.

    Raises:
        ValueError: it is of a kind, or splits text by a rule, that is not known here, or lacks a part.
    """
    from transformers import PreTrainedTokenizerFast

    prefix = "tokenizer.ggml."
    keys = {key.removeprefix(prefix): value for key, value in metadata.items() if key.startswith(prefix)}

    def refusal(why: str) -> ValueError:
        return ValueError(f"{path} cannot be read: its tokenizer {why}.")

    # A normaliser that is switched off changes nothing
    keys = {key: value for key, value in keys.items() if not (key.startswith("normalizer.") and value is False)}
    unknown = sorted(keys.keys() - _READ - _UNUSED - _NEUTRAL.keys())
    if unknown:
        raise refusal(f"has {prefix}{unknown[0]}, and what that would change is not known here")
    for key, value in _NEUTRAL.items():
        if keys.get(key, value) != value:
            raise refusal(f"has {prefix}{key} {keys[key]}, which is not done here")
    kind, tokens = keys.get("model"), keys.get("tokens")
    needed = {"gpt2": "merges", "llama": "scores"}.get(kind)
    if needed is None:
        raise refusal(f"is of kind {kind}, and gpt2 and llama are read")
    for name in ("tokens", needed):
        if not isinstance(keys.get(name), list) or not keys[name]:
            raise refusal(f"lacks {prefix}{name}")
    types = keys.get("token_type", [_NORMAL] * len(tokens))
    for name, values in (("types", types), ("scores", keys.get("scores", tokens))):
        if len(values) != len(tokens):
            raise refusal(f"has {len(tokens):,} tokens and {len(values):,} {name}")
    # As llama.cpp: a vocabulary may be padded with empty tokens
    tokens = [token or f"[EMPTY_{index}]" for index, token in enumerate(tokens)]
    if kind == "llama":
        tokens = _mark_blanks(tokens, types)
    keys["tokens"] = tokens
    if len(set(tokens)) != len(tokens):
        twice = next(token for token, count in Counter(tokens).items() if count > 1)
        first = tokens.index(twice)
        raise refusal(f"has the token {twice!r} twice, as ids {first:,} and {tokens.index(twice, first + 1):,}")
    split = keys.get("pre")
    if kind == "gpt2" and split not in _SPLITS:
        missing = f"splits text by a rule named {split}, which is not known here"
        raise refusal(missing if split else f"lacks {prefix}pre, the rule that splits text; convert the model again")
    ids = {name: keys.get(f"{key}_token_id") for name, key in _NAMES.items()}
    if kind == "llama":
        ids |= {name: default for name, default in (("bos", 1), ("eos", 2), ("unk", 0)) if ids[name] is None}
    for name, token_id in ids.items():
        if token_id is not None and token_id >= len(tokens):
            raise refusal(f"has {name} {token_id:,} and {len(tokens):,} tokens")
    special = {f"{name}_token": tokens[token_id] for name, token_id in ids.items() if token_id is not None}
    build = _byte_level if kind == "gpt2" else _sentence_piece
    with one_sentence("target model", str(path), "tokenizer"):
        backend = build(keys, special)
    ends = [keys.get(f"{name}_token_id") for name in ("eot", "eom")]
    named = {*special.values(), *(tokens[token_id] for token_id in ends if token_id is not None)}
    _add_whole_tokens(backend, tokens, types, named, normalized=kind == "llama")
    first = ids["bos"] if keys.get("add_bos_token", kind == "llama" or split in _BEGIN) else None
    last = ids["eos"] if keys.get("add_eos_token", False) else None
    _add_ends(backend, tokens, first, last)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False, **special)
    tokenizer.chat_template = metadata.get("tokenizer.chat_template")
    return tokenizer


def _mark_blanks(tokens: list[str], types: list[int]) -> list[str]:
    """Return the tokens with blanks in user-defined ones as `▁`, as SentencePiece has them; converters undo this."""
    known = set(tokens)
    marked = [
        token.replace(" ", _BLANK) if kind == _USER_DEFINED else token
        for token, kind in zip(tokens, types, strict=True)
    ]
    return [new if new not in known else old for new, old in zip(marked, tokens, strict=True)]


def _byte_level(keys: Mapping[str, Value], special: Mapping[str, str]):
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    split = keys["pre"]
    vocabulary = {token: index for index, token in enumerate(keys["tokens"])}
    # The second part begins after the first blank that is not the first letter. A merge that is listed twice keeps its
    # first rank, as in llama.cpp
    places = [(merge, merge.find(" ", 1)) for merge in dict.fromkeys(keys["merges"])]
    merges = [(merge[:place], merge[place + 1 :]) for merge, place in places]
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


def _sentence_piece(keys: Mapping[str, Value], special: Mapping[str, str]):
    """Return the tokenizer of a vocabulary with scores.

    SentencePiece puts one blank before the text, also before a user-defined token, but not after one. The package
    tokenizers normalises the name of such a token as if it were a text; the second step removes the blank from it
    again, because the token would otherwise be found only after a blank. A text that is nothing but such a name has no
    prefix blank for the same reason; it decodes to the same text.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers

    tokens = keys["tokens"]
    types = keys.get("token_type", [_NORMAL] * len(tokens))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    backend = Tokenizer(
        models.BPE(
            vocab=vocabulary, merges=_merges(tokens, keys["scores"], types, vocabulary), byte_fallback=True,
            fuse_unk=True, unk_token=special["unk_token"],
        )
    )  # fmt: skip
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
    found = []
    for token, score, kind in zip(tokens, scores, types, strict=True):
        if kind != _NORMAL:
            continue
        for place in range(1, len(token)):
            left, right = token[:place], token[place:]
            if left in vocabulary and right in vocabulary:
                found.append((-score, vocabulary[left], vocabulary[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def _add_whole_tokens(backend, tokens: list[str], types: list[int], named: set[str], normalized: bool) -> None:
    """Add the tokens that are never split: control tokens are special, user-defined tokens are not.

    Args:
        named: special tokens whatever their type says.
        normalized: find user-defined tokens in the normalised text, which has `▁` for blanks.
    """
    from tokenizers import AddedToken

    kinds = dict(zip(tokens, types, strict=True))
    special = [token for token, kind in kinds.items() if kind in (_CONTROL, _UNKNOWN) or token in named]
    defined = [token for token, kind in kinds.items() if kind == _USER_DEFINED and token not in named]
    backend.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in special])
    backend.add_tokens([AddedToken(token, normalized=normalized, special=False) for token in defined])


def _add_ends(backend, tokens: list[str], first: int | None, last: int | None) -> None:
    """What a text that is no conversation begins and ends with."""
    from tokenizers import processors

    around = [(tokens[token_id], token_id) for token_id in (first, last) if token_id is not None]
    if around:
        begin = [] if first is None else [tokens[first]]
        end = [] if last is None else [tokens[last]]
        single = [*begin, "$A", *end]
        pair = [*single, *(f"{piece}:1" for piece in (*begin, "$B", *end))]
        backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=around)
