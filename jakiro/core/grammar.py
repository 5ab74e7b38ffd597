"""Grammars: which tokens may follow a prefix, by llguidance, which reads the tokens' bytes."""

import json
import weakref
from collections.abc import Collection, Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from jakiro.config import Grammar, cut_short, require
from jakiro.core.logits_processors import HostRule, allows, forbid
from jakiro.text import TokenText

# Optional whitespace between JSON tokens, as llama.cpp limits it. Without a limit a greedy model may write blanks until
# the answer is cut. A schema overrides this with its own "x-guidance" object (llguidance's name).
JSON_WHITESPACE = {"whitespace_pattern": r" |\n{1,2}[ \t]{0,20}"}

_tokenizers: "weakref.WeakKeyDictionary[TokenText, LLTokenizer]" = weakref.WeakKeyDictionary()


class _Vocabulary:
    """What llguidance asks of a tokenizer: each token's bytes; rows of an embedding without a token have none."""

    bos_token_id = None

    def __init__(self, token_text: TokenText, vocab_size: int, eos_token_id: int) -> None:
        self.tokens, self.eos_token_id = [token_text.piece(token_id) for token_id in range(vocab_size)], eos_token_id
        self.special_token_ids = [token_id for token_id in token_text.special_tokens if token_id < vocab_size]
        special = set(self.special_token_ids)
        self._ids = {piece: number for number, piece in enumerate(self.tokens) if piece and number not in special}
        self._longest, self._encode = max(map(len, self._ids)), token_text.encode

    def __call__(self, text: str) -> list[int]:
        """Ids of a text. Where a grammar leaves one text only, its first id is all that llguidance allows.

        The tokenizer's own where their bytes are the text's; some write a space before it, and then the longest tokens
        that fit are taken one after another.
        """
        wanted, ids = text.encode(), self._encode(text)
        if b"".join(self.tokens[token_id] for token_id in ids) == wanted:
            return ids
        ids, place = [], 0
        while place < len(wanted):
            lengths = range(self._longest, 0, -1)
            length = next((length for length in lengths if wanted[place : place + length] in self._ids), 0)
            if not length:
                break
            ids.append(self._ids[wanted[place : place + length]])
            place += length
        return ids


def check(grammar: Grammar) -> None:
    """Compiles a grammar without a model.

    Raises:
        ValueError: one sentence on what is wrong with it.
    """
    wrong, troubles = LLMatcher.validate_grammar_with_warnings(_compiled(grammar))
    if wrong:
        raise ValueError(_sentence(troubles[0]))


class GrammarRule(HostRule):
    """A grammar's side of a token rule, see `HostRule`.

    A token that ends an answer is never read: it may come where the mask has it, and nothing follows it.

    Args:
        vocab_size: of the target's logits. stop_ids: tokens that end its answers.

    Raises:
        ValueError: the grammar is none, or no token ends an answer.
    """

    name = "grammar"

    def __init__(self, grammar: Grammar, token_text: TokenText, vocab_size: int, stop_ids: Collection[int]) -> None:
        self._stop_ids, self._piece = sorted(stop_ids), token_text.piece
        require(bool(stop_ids), "A grammar needs a token that ends the answer, and this model has none.")
        if token_text not in _tokenizers:
            vocabulary = TokenizerWrapper(_Vocabulary(token_text, vocab_size, self._stop_ids[0]))
            _tokenizers[token_text] = LLTokenizer(vocabulary, eos_token=self._stop_ids)
        self._matcher = LLMatcher(_tokenizers[token_text], _compiled(grammar))
        self._mask = np.zeros((vocab_size + 31) // 32, dtype=np.uint32)
        if self._matcher.is_error():
            raise ValueError(_sentence(self._matcher.get_error()))

    def advance(self, committed_ids: Sequence[int]) -> None:
        own = [token_id for token_id in committed_ids if token_id not in self._stop_ids]
        place = self._matcher.try_consume_tokens(own)
        if place < len(own):
            name = self._piece(own[place]).decode(errors="replace")
            raise ValueError(
                f"Token {place + 1} of the answer's beginning, “{name}”, is outside its grammar; choose another one."
            )

    def forbid(self, token_ids: Sequence[int], parents: Sequence[int], allowed: np.ndarray) -> None:
        """Walks the tree depth first, and each node's tokens are taken back; see `HostRule`.

        Where other rules leave nothing that the grammar allows, the grammar counts alone. What follows a node that it
        forbids stays as it is: nothing there is ever accepted.
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
            raise ValueError(_sentence(matcher.get_error()))
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


def _compiled(grammar: Grammar) -> str:
    """The grammar as llguidance reads it."""
    if grammar.kind == "regex":
        return LLMatcher.grammar_from_regex(grammar.source)
    if grammar.kind == "choice":
        return LLMatcher.grammar_from_lark("start: " + " | ".join(json.dumps(text) for text in grammar.source))
    if grammar.kind == "lark":
        return LLMatcher.grammar_from_lark(grammar.source)
    schema = "{}" if grammar.kind == "json" else grammar.source
    try:
        if isinstance(json.loads(schema), bool):
            schema = f'{{"allOf": [{schema}]}}'
    except ValueError as error:
        raise ValueError(f"A JSON schema must be JSON: {error}.") from error
    return LLMatcher.grammar_from_json_schema(schema, defaults=JSON_WHITESPACE)


def _sentence(trouble: str) -> str:
    """One sentence of what llguidance says."""
    # What points into the grammar stands below its line
    lines = [line.strip() for line in trouble.split("   1 |")[0].splitlines()]
    return f"The grammar cannot be used: {cut_short(' '.join(line for line in lines if line.strip('^')), 200)}."
