"""What follows each pair of tokens in a corpus, counted for drafting without a head."""

import logging
from collections.abc import Sequence
from pathlib import Path

from jakiro.drafting.trigrams import TrigramTable, fingerprint, table_path
from jakiro.training.corpus import read_corpus
from jakiro.zoo import table as zoo
from jakiro.zoo import weights

log = logging.getLogger("jakiro")


def count_trigrams(corpora: Sequence[Path], target: str | None, out: Path | None) -> TrigramTable:
    """Counts trigrams and writes their table.

    Args:
        corpora: corpus files, or folders that hold them.
        target: a known name, a folder or a Hub id; None is the default.
        out: the file; None is where the target's drafts look for it.
    """
    name = target or zoo.DEFAULT_TARGET
    tokenizer = weights.load_tokenizer(target)
    texts = [row.ids for row in read_corpus(corpora)]
    manifest = {"target": name, "texts": len(texts), "tokens": sum(map(len, texts))}
    counted = TrigramTable.counted(texts, len(tokenizer), fingerprint(tokenizer), manifest=manifest)
    path = out or table_path(name)
    counted.save(path)
    log.info(
        "Counted %d trigrams after %d pairs in %d tokens; wrote %.2f MB to %s.",
        len(counted.token_ids), len(counted.pairs), manifest["tokens"], path.stat().st_size / 1e6, path,
    )  # fmt: skip
    return counted
