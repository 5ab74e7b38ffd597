"""Grammars for structured output: llguidance computes which tokens may follow a prefix from the tokens' bytes."""

import json
import weakref
from collections.abc import Collection, Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from jakiro.config import Grammar, cut_short, require
from jakiro.core.logits_processors import LogitsProcessor, allows, forbid
from jakiro.text import TokenText

# Optional whitespace between JSON tokens, as llama.cpp limits it. Without a limit a greedy model may write blanks until
# the answer is cut. A schema overrides this with its own "x-guidance" object (llguidance's name).
JSON_WHITESPACE = {"whitespace_pattern": r" |\n{1,2}[ \t]{0,20}"}

_tokenizers: "weakref.WeakKeyDictionary[TokenText, LLTokenizer]" = weakref.WeakKeyDictionary()


class _Vocabulary:
    """A tokenizer as llguidance requires it: the bytes of each token; empty for embedding rows without a token."""

    bos_token_id = None

    def __init__(self, token_text: TokenText, vocab_size: int, eos_token_id: int) -> None:
        self.tokens, self.eos_token_id = [token_text.piece(token_id) for token_id in range(vocab_size)], eos_token_id
        self.special_token_ids = [token_id for token_id in token_text.special_tokens if token_id < vocab_size]
        special = set(self.special_token_ids)
        self._ids = {piece: number for number, piece in enumerate(self.tokens) if piece and number not in special}
        self._longest, self._encode = max(map(len, self._ids)), token_text.encode

    def __call__(self, text: str) -> list[int]:
        """Encode a text. If a grammar leaves only one text, llguidance allows only its first id.

        The tokenizer's ids are used if their bytes are the text's. Some tokenizers prepend a space; then the text is
        split greedily into the longest tokens.
        """
        content, ids = text.encode(), self._encode(text)
        if b"".join(self.tokens[token_id] for token_id in ids) == content:
            return ids
        ids, start = [], 0
        while start < len(content):
            lengths = range(self._longest, 0, -1)
            length = next((length for length in lengths if content[start : start + length] in self._ids), 0)
            if not length:
                break
            ids.append(self._ids[content[start : start + length]])
            start += length
        return ids


def check(grammar: Grammar) -> None:
    """Check a grammar without a model.

    Raises:
        ValueError: the grammar is invalid.
    """
    is_invalid, messages = LLMatcher.validate_grammar_with_warnings(_compile(grammar))
    if is_invalid:
        raise ValueError(_one_line(messages[0]))


class GrammarProcessor(LogitsProcessor):
    """A logits processor that allows only the tokens that continue a text of the grammar.

    The matcher never consumes stop tokens: one may come where the mask allows it, and nothing follows it.

    Args:
        vocab_size: Width of the target's logits.
        stop_ids: Tokens that end a completion.

    Raises:
        ValueError: the grammar is invalid, or the target has no stop token.
    """

    name = "grammar"

    def __init__(self, grammar: Grammar, token_text: TokenText, vocab_size: int, stop_ids: Collection[int]) -> None:
        self._stop_ids, self._piece = sorted(stop_ids), token_text.piece
        require(
            bool(stop_ids),
            "A grammar requires a stop token, but this model has none; set eos_token_id in its generation_config.json.",
        )
        if token_text not in _tokenizers:
            vocabulary = TokenizerWrapper(_Vocabulary(token_text, vocab_size, self._stop_ids[0]))
            _tokenizers[token_text] = LLTokenizer(vocabulary, eos_token=self._stop_ids)
        self._matcher = LLMatcher(_tokenizers[token_text], _compile(grammar))
        self._mask = np.zeros((vocab_size + 31) // 32, dtype=np.uint32)
        if self._matcher.is_error():
            raise ValueError(_one_line(self._matcher.get_error()))

    def advance(self, committed_ids: Sequence[int]) -> None:
        token_ids = [token_id for token_id in committed_ids if token_id not in self._stop_ids]
        num_consumed = self._matcher.try_consume_tokens(token_ids)
        if num_consumed < len(token_ids):
            text = self._piece(token_ids[num_consumed]).decode(errors="replace")
            raise ValueError(
                f"Token {num_consumed + 1} of the completion's prefix, “{text}”, does not match the grammar; choose "
                "another prefix or grammar."
            )

    def forbid(self, token_ids: Sequence[int], parents: Sequence[int], allowed: np.ndarray) -> None:
        """Walk the tree depth first and roll the matcher back after each node; see `LogitsProcessor.forbid`.

        If other processors leave no token that the grammar allows, only the grammar applies. Rows below a forbidden
        node stay unchanged, because no node there can be accepted.
        """
        children: list[list[int]] = [[] for _ in token_ids]
        for node in range(1, len(token_ids)):
            children[parents[node]].append(node)
        self._visit(0, token_ids, children, allowed)

    def _visit(
        self, node: int, token_ids: Sequence[int], children: Sequence[Sequence[int]], allowed: np.ndarray
    ) -> None:
        matcher, row = self._matcher, allowed[node]
        matcher.unsafe_compute_mask_ptr(self._mask.ctypes.data, self._mask.nbytes)
        if matcher.is_error():
            raise ValueError(_one_line(matcher.get_error()))
        both = row & self._mask
        row[:] = both if both.any() else self._mask
        for child in children[node]:
            token_id = token_ids[child]
            if token_id in self._stop_ids or not allows(row, token_id):
                continue
            if matcher.try_consume_tokens([token_id]):
                self._visit(child, token_ids, children, allowed)
                matcher.rollback(1)
            else:
                forbid(row, token_id)


def _compile(grammar: Grammar) -> str:
    """Return the grammar in llguidance's format."""
    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.source)
    if grammar.kind == "choice":
        return LLMatcher.grammar_from_lark("start: " + " | ".join(json.dumps(text) for text in grammar.source))
    if grammar.kind == "lark":
        return LLMatcher.grammar_from_lark(grammar.source)
    schema = "{}" if grammar.kind == "json" else grammar.source
    try:
        value = json.loads(schema)
    except ValueError as error:
        raise ValueError(f"A JSON schema must be valid JSON: {error}.") from error
    require(
        isinstance(value, (dict, bool)), f"A JSON schema must be an object or a boolean; got {cut_short(schema, 60)}."
    )
    if isinstance(value, bool):
        schema = f'{{"allOf": [{schema}]}}'
    return LLMatcher.grammar_from_json_schema(schema, defaults=JSON_WHITESPACE)


def _one_line(message: str) -> str:
    """Return an error of llguidance in one line."""
    # llguidance quotes the grammar after this marker and points at the place with carets below it
    lines = [line.strip() for line in message.split("   1 |")[0].splitlines()]
    return f"The grammar is invalid: {cut_short(' '.join(line for line in lines if line.strip('^')), 200)}."
