"""Vocabularies of GGUF files, and texts with every boundary that a pre-tokenizer rule may set.

llama.cpp's ids of the texts are stored in tests/data; `lab/tests/peers/test_kept_ids.py` writes them.
"""

import json
import random
from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from tests.gguf_files import write_gguf
from tests.support import tiny_model

KEPT = Path(__file__).parent / "data" / "gguf_tokenizers.json"
DATA = json.loads(KEPT.read_text(encoding="utf-8"))
RULES = (
    "gpt-2", "smollm", "llama-bpe", "dbrx", "qwen2", "qwen35", "tekken", "gpt-4o", "deepseek-v3", "deepseek-coder",
    "falcon", "default",
)  # fmt: skip
NAMES = (*RULES, "sentencepiece", "sentencepiece without a blank")
SPECIAL = ("<|end|>", "<think>")
TEXTS = (
    "x=\n\n12", "    1. one\n    2. two\n", "3.14159, 1,000,000 or 2026-11-26T18:00", "a\n\n\nb \n\n c\t\t\td",
    "don't won't I'LL we've It'S", "  hi", " hi ", "\n", "\n\n", "\t", "   ", "x", "  \n  ", "naïve café ÀÉÎ ÖÄÜß",
    "日本語のテキスト12です。", "한국어 문장입니다.", "Привет, мир!", "مرحبا بالعالم", "हिन्दी में", "ภาษาไทย", "שלום",
    "😀😃👩‍👩‍👧 🏳️‍🌈", "| a | b |\n|---|---|\n| 1 | 2 |\n", "```python\ndef f(x):\n    return x**2  # ²\n```\n",
    'printf("%d\\n", 0x1F);return 0;}', "http://example.com/a/b?c=d#g", "foo_bar fooBar FooBAR FOO_bar2 x1y2z3",
    "½ ⅓ ² ① Ⅷ ٣ ४ 四", "\u00a0\u2003\u3000x", "\r\n\r\nx\r\ny", "$100 €50 +1 -2 <=3 ^4 ~5 `6`", "...!!!??? -- — … «x»",
    "1234567890123", "ab12cd345", "'S 'T 'RE", "Hi<|end|>\n<think>\n\nx</think>", "α=1, β≠2 → γ∈ℝ", "ǅ ǆ Ǆ", "K's ſ's",
)  # fmt: skip


def small_vocabulary() -> tuple[list[str], list[str]]:
    """Return tokens and merges that cross every boundary of a rule: they are trained without a pre-tokenizer."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False, min_frequency=1)
    source = random.Random(0)
    pieces = [piece for text in TEXTS for piece in (text[start : start + 6] for start in range(len(text)))]
    backend.train_from_iterator([*pieces, *(text * 2 for text in source.sample(TEXTS, len(TEXTS)))], trainer)
    described = json.loads(backend.to_str())["model"]
    tokens = sorted(described["vocab"], key=described["vocab"].get)
    return [*tokens, *SPECIAL], [" ".join(pair) for pair in described["merges"]]


def byte_level_keys(tokens: list[str], merges: list[str], rule: str | None) -> dict:
    """Return the metadata of a byte-level vocabulary whose last tokens are `SPECIAL`."""
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": rule,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 2) + [3, 4],
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": len(tokens) - 2,
        "tokenizer.ggml.bos_token_id": len(tokens) - 2,
        "tokenizer.ggml.add_bos_token": False,
    }


def sentence_piece_keys(texts: Sequence[str] = TEXTS, prefix: bool = True) -> dict:
    """Return the metadata of a vocabulary with scores: bytes, letters of the texts, and pieces of 2 to 5 letters."""
    letters = sorted(
        {letter for text in texts for letter in text.replace(" ", "▁") if letter.isascii() or letter == "▁"}
    )
    marked = [text.replace(" ", "▁") for text in texts]
    pieces = {
        text[start : start + size] for text in marked for size in (2, 3, 5) for start in range(0, len(text), size)
    }
    alphabet = set(letters)
    pieces = sorted((piece for piece in pieces if len(piece) > 1 and set(piece) <= alphabet), key=lambda p: (len(p), p))
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, *pieces, *SPECIAL]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(index) for index in range(len(tokens))],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (len(letters) + len(pieces)) + [3, 4],
        "tokenizer.ggml.merges": None,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": prefix,
    }


def keys_of(name: str) -> dict:
    """Return the metadata of a stored vocabulary by its name, which is a rule or a SentencePiece variant."""
    if name in RULES:
        return byte_level_keys(DATA["tokens"], DATA["merges"], name)
    return sentence_piece_keys(prefix=name == "sentencepiece")


def vocabulary_file(path: Path, keys: dict) -> Path:
    """Write a file with this tokenizer and a minimal model."""
    return write_gguf(path, tiny_model(vocab_size=len(keys["tokenizer.ggml.tokens"])), keys=keys)
