"""Count the tokens that follow each pair of tokens in a corpus, for drafting with `aded`.

python -m lab.published.counting CORPUS… [--target NAME] [--out FILE]
"""

from pathlib import Path
from typing import Annotated

import typer

from jakiro.cli.options import CorpusPaths, Target, option
from jakiro.loading import registry, weights
from jakiro.training.corpus import read_corpus
from lab.commands import run
from lab.published.trigrams import TrigramTable, fingerprint, table_path


def main(
    corpora: CorpusPaths,
    target: Target = None,
    out: Annotated[Path | None, option("Output file; default: the file in the cache that the method reads.")] = None,
) -> None:
    """Count the tokens that follow each pair of tokens in a corpus, for the method aded."""
    name = target or registry.DEFAULT_TARGET
    tokenizer = weights.load_tokenizer(target)
    texts = [row.ids for row in read_corpus(corpora)]
    manifest = {"target": name, "texts": len(texts), "tokens": sum(map(len, texts))}
    table = TrigramTable.counted(texts, len(tokenizer), fingerprint(tokenizer), manifest=manifest)
    path = out or table_path(name)
    table.save(path)
    size = path.stat().st_size / 1e6
    typer.echo(
        f"Counted {len(table.token_ids)} trigrams after {len(table.pairs)} pairs; wrote {size:.2f} MB to {path}."
    )


if __name__ == "__main__":
    run(main)
