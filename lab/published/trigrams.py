"""How often each token followed each pair of tokens in some texts: counted, kept in one small file, looked up."""

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
# Larger counts are saved as this number
_TOP_COUNT = 2**16 - 1


@dataclass(frozen=True, slots=True)
class TrigramTable:
    """Successors of pairs of tokens, the most frequent first.

    Attributes:
        pairs: (pairs,) int64, first token · vocab_size + second, ascending.
        starts: (pairs + 1,) int64, where each pair's successors begin and the last one's end.
        token_ids, counts: (successors,) int64.
        vocab_size: of the tokenizer. tokenizer: its `fingerprint`.
        manifest: how the table was made, as plain data.
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
        """The table of some texts.

        Args:
            texts: token ids each; no trigram spans two of them.
            least_count: rarer trigrams are left out.
            most_successors: of one pair; among equally frequent ones the smaller ids are kept.
        """
        keys = [_trigrams(np.asarray(text, dtype=np.int64), vocab_size) for text in texts]
        found, counts = np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *keys]), return_counts=True)
        found, counts = found[counts >= least_count], counts[counts >= least_count]
        pairs, token_ids = np.divmod(found, vocab_size)
        order = np.lexsort((token_ids, -counts, pairs))
        pairs, token_ids, counts = pairs[order], token_ids[order], counts[order]
        _, first, lengths = np.unique(pairs, return_index=True, return_counts=True)
        kept = np.arange(pairs.shape[0]) - np.repeat(first, lengths) < most_successors
        distinct, lengths = np.unique(pairs[kept], return_counts=True)
        starts = np.concatenate([[0], lengths.cumsum()]).astype(np.int64)
        about = (manifest or {}) | {"least_count": least_count, "most_successors": most_successors}
        return cls(distinct, starts, token_ids[kept], counts[kept].astype(np.int64), vocab_size, tokenizer, about)

    def after(self, first: int, second: int) -> tuple[list[int], list[int]]:
        """Tokens that followed the pair and how often, the most frequent first; empty where none is known."""
        pair = first * self.vocab_size + second
        place = int(self.pairs.searchsorted(pair))
        if place == self.pairs.shape[0] or self.pairs[place] != pair:
            return [], []
        found = slice(int(self.starts[place]), int(self.starts[place + 1]))
        return self.token_ids[found].tolist(), self.counts[found].tolist()

    def save(self, path: Path) -> None:
        """Writes one compressed file, in one move."""
        first, second = np.divmod(self.pairs, self.vocab_size)
        about = (self.manifest or {}) | {"vocab_size": self.vocab_size, "tokenizer": self.tokenizer}
        columns = {
            "first": first,
            "second": second,
            "lengths": np.diff(self.starts),
            "token_ids": self.token_ids,
            "counts": np.minimum(self.counts, _TOP_COUNT),
        }
        narrow = {name: column.astype(np.min_scalar_type(column.max(initial=0))) for name, column in columns.items()}
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as unfinished, unfinished.open("wb") as file:
            np.savez_compressed(file, manifest=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **narrow)

    @classmethod
    def load(cls, path: Path) -> "TrigramTable":
        """Reads what `save` wrote.

        Raises:
            ValueError: it is no such file.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(file["manifest"].tobytes())
                columns = {
                    name: file[name].astype(np.int64) for name in ("first", "second", "lengths", "token_ids", "counts")
                }
            vocab_size = about.pop("vocab_size")
            pairs = columns["first"] * vocab_size + columns["second"]
            starts = np.concatenate([[0], columns["lengths"].cumsum()]).astype(np.int64)
            table = cls(
                pairs, starts, columns["token_ids"], columns["counts"], vocab_size, about.pop("tokenizer"), about
            )
            table._check()
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is not a table of trigrams ({error}); count it again.") from error
        return table

    def _check(self) -> None:
        """Raises ValueError where the columns contradict each other."""
        same = self.token_ids.shape == self.counts.shape == (int(self.starts[-1]),)
        ascending = bool((np.diff(self.pairs) > 0).all()) and bool((np.diff(self.starts) >= 0).all())
        if not same or not ascending or self.token_ids.max(initial=0) >= self.vocab_size:
            raise ValueError("its columns contradict each other")


def _trigrams(token_ids: np.ndarray, vocab_size: int) -> np.ndarray:
    """(tokens − 2,) int64, a number for each three tokens in a row."""
    return (token_ids[:-2] * vocab_size + token_ids[1:-1]) * vocab_size + token_ids[2:]


def fingerprint(tokenizer) -> str:
    """Equal for tokenizers that give the same numbers to the same tokens."""
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return hashlib.sha256(json.dumps(vocabulary).encode()).hexdigest()


def table_path(target_name: str) -> Path:
    """Where a target's table is kept in the user's cache."""
    return own_path("trigrams", target_name, ".npz")


def find_table(target_name: str) -> Path | None:
    """The table that was counted for a target: the user's own, else the lab's; None where there is none."""
    return own_or_ours(table_path(target_name))
