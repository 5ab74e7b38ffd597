"""Counts of the tokens that follow each pair of tokens in some texts, stored in one small file."""

import hashlib
import json
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from jakiro.system import atomic_file
from lab.files import own_or_ours, own_path

MOST_SUCCESSORS = 12
LEAST_COUNT = 2
# Larger counts are stored as this number
_TOP_COUNT = 2**16 - 1


@dataclass(frozen=True, slots=True)
class TrigramTable:
    """Successors of pairs of tokens, the most frequent first.

    Attributes:
        pairs: (pairs,) int64, first token · vocab_size + second token, ascending.
        starts: (pairs + 1,) int64, start of each pair's successors and end of the last ones.
        token_ids, counts: (successors,) int64.
        vocab_size: size of the tokenizer's vocabulary.
        tokenizer: `fingerprint` of the tokenizer.
        manifest: plain data on how the table was made.
    """

    pairs: np.ndarray
    starts: np.ndarray
    token_ids: np.ndarray
    counts: np.ndarray
    vocab_size: int
    tokenizer: str = ""
    manifest: dict | None = None

    @classmethod
    def empty(cls, vocab_size: int) -> "TrigramTable":
        none = np.zeros(0, dtype=np.int64)
        return cls(none, np.zeros(1, dtype=np.int64), none, none, vocab_size)

    @classmethod
    def counted(
        cls,
        texts: Iterable[Sequence[int]],
        vocab_size: int,
        tokenizer: str = "",
        least_count: int = LEAST_COUNT,
        most_successors: int = MOST_SUCCESSORS,
        manifest: dict | None = None,
    ) -> "TrigramTable":
        """Return the table of some texts.

        Args:
            texts: token ids of each text; trigrams do not span two texts.
            least_count: rarer trigrams are left out.
            most_successors: maximum number per pair; of equally frequent ones the smaller ids are used.
        """
        keys = [_trigrams(np.asarray(text, dtype=np.int64), vocab_size) for text in texts]
        trigrams, counts = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *keys]), return_counts=True)
        trigrams, counts = trigrams[counts >= least_count], counts[counts >= least_count]
        pairs, token_ids = np.divmod(trigrams, vocab_size)
        order = np.lexsort((token_ids, -counts, pairs))
        pairs, token_ids, counts = pairs[order], token_ids[order], counts[order]
        _, first, lengths = np.unique(pairs, return_index=True, return_counts=True)
        is_kept = np.arange(pairs.shape[0]) - np.repeat(first, lengths) < most_successors
        distinct, lengths = np.unique(pairs[is_kept], return_counts=True)
        starts = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
        about = (manifest or {}) | {"least_count": least_count, "most_successors": most_successors}
        return cls(distinct, starts, token_ids[is_kept], counts[is_kept].astype(np.int64), vocab_size, tokenizer, about)

    def after(self, first: int, second: int) -> tuple[list[int], list[int]]:
        """Return the tokens that followed the pair and their counts, the most frequent first."""
        pair = first * self.vocab_size + second
        place = int(self.pairs.searchsorted(pair))
        if place == self.pairs.shape[0] or self.pairs[place] != pair:
            return [], []
        successors = slice(int(self.starts[place]), int(self.starts[place + 1]))
        return self.token_ids[successors].tolist(), self.counts[successors].tolist()

    def save(self, path: Path) -> None:
        """Write one compressed file atomically."""
        first, second = np.divmod(self.pairs, self.vocab_size)
        about = (self.manifest or {}) | {"vocab_size": self.vocab_size, "tokenizer": self.tokenizer}
        columns = {"first": first, "second": second, "lengths": np.diff(self.starts)}
        columns |= {"token_ids": self.token_ids, "counts": np.minimum(self.counts, _TOP_COUNT)}
        narrow = {name: column.astype(np.min_scalar_type(column.max(initial=0))) for name, column in columns.items()}
        with atomic_file(path) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, manifest=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **narrow)

    @classmethod
    def load(cls, path: Path) -> "TrigramTable":
        """Read a file written by `save`.

        Raises:
            ValueError: the file is not a table of trigrams.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(file["manifest"].tobytes())
                first, second, lengths, token_ids, counts = (
                    file[name].astype(np.int64) for name in ("first", "second", "lengths", "token_ids", "counts")
                )
            vocab_size, tokenizer = about.pop("vocab_size"), about.pop("tokenizer")
            starts = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
            table = cls(first * vocab_size + second, starts, token_ids, counts, vocab_size, tokenizer, about)
            table._check()
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not a table of trigrams ({error}); count the trigrams again.") from error
        return table

    def _check(self) -> None:
        """Raise ValueError if the columns contradict each other."""
        same = self.token_ids.shape == self.counts.shape == (int(self.starts[-1]),)
        ascending = bool((np.diff(self.pairs) > 0).all()) and bool((np.diff(self.starts) >= 0).all())
        if not same or not ascending or self.token_ids.max(initial=0) >= self.vocab_size:
            raise ValueError("its columns contradict each other")


def _trigrams(token_ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """Return (tokens − 2,) int64, one number per three consecutive tokens."""
    return (token_ids[:-2] * vocab_size + token_ids[1:-1]) * vocab_size + token_ids[2:]


def fingerprint(tokenizer) -> str:
    """Return a hash of the vocabulary and its ids."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()


def table_path(target_name: str) -> Path:
    """Return the path of a target's table in the user's cache."""
    return own_path("trigrams", target_name, ".npz")


def find_table(target_name: str) -> Path | None:
    """Return the table that was counted for a target: the user's, else the lab's, else None."""
    return own_or_ours(table_path(target_name))
