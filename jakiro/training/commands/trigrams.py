"""The command `trigrams`: counts what follows each pair of tokens in a corpus, for drafting without a head."""

import logging
from pathlib import Path
from typing import Annotated

from jakiro.drafting.trigrams import LEAST_COUNT, MOST_SUCCESSORS, TrigramTable, fingerprint, table_path
from jakiro.training.commands.options import CorpusPaths, Target, option, set_up
from jakiro.training.corpus import read_corpus
from jakiro.zoo import table as zoo
from jakiro.zoo import weights

log = logging.getLogger("jakiro")


def trigrams(
    corpora: CorpusPaths,
    target: Target = None,
    out: Annotated[Path | None, option("File to write; without it, where the target's drafts look for it.")] = None,
    least_count: Annotated[int, option("Leave out what was seen less often.", min=1)] = LEAST_COUNT,
    most_successors: Annotated[int, option("Successors of one pair.", min=1)] = MOST_SUCCESSORS,
) -> None:
    """Count what follows each pair of tokens in a corpus, to draft from."""
    set_up(None)
    name = target or zoo.DEFAULT_TARGET
    tokenizer = weights.load_tokenizer(target)
    texts = [row.ids for row in read_corpus(corpora)]
    manifest = {"target": name, "texts": len(texts), "tokens": sum(map(len, texts))}
    counted = TrigramTable.counted(
        texts, len(tokenizer), fingerprint(tokenizer), least_count, most_successors, manifest
    )
    path = out or table_path(name)
    counted.save(path)
    log.info(
        "Counted %d trigrams after %d pairs in %d tokens; wrote %.2f MB to %s.",
        len(counted.token_ids), len(counted.pairs), manifest["tokens"], path.stat().st_size / 1e6, path,
    )  # fmt: skip
