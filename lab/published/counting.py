"""Count the tokens that follow each pair of tokens in a corpus, for drafting with `aded`.

python -m lab.published.counting CORPUS… [--target NAME] [--out FILE]
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from jakiro.loading import registry, weights
from jakiro.system import errors_as_one_sentence
from jakiro.training.corpus import read_corpus
from lab.published.trigrams import TrigramTable, fingerprint, table_path


def count_trigrams(corpora: Sequence[Path], target: str | None, out: Path | None) -> tuple[TrigramTable, Path]:
    """Count trigrams and write their table.

    Args:
        corpora: corpus files, or folders with corpus files.
        target: a known name, a folder or a Hub id; None is the default.
        out: output file; None is the file in the cache that `aded` reads.

    Returns:
        The table and its path.
    """
    name = target or registry.DEFAULT_TARGET
    tokenizer = weights.load_tokenizer(target)
    texts = [row.ids for row in read_corpus(corpora)]
    manifest = {"target": name, "texts": len(texts), "tokens": sum(map(len, texts))}
    counted = TrigramTable.counted(texts, len(tokenizer), fingerprint(tokenizer), manifest=manifest)
    path = out or table_path(name)
    counted.save(path)
    return counted, path


def main(
    corpora: Annotated[list[Path], typer.Argument(help="Corpus files (*.jsonl.gz), or folders with such files.")],
    target: Annotated[str | None, typer.Option(help="Target of the corpus; default: the default one.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Output file; default: the file in the cache that the method aded reads.")
    ] = None,
) -> None:
    """Count the tokens that follow each pair of tokens in a corpus, for the method aded."""
    table, path = count_trigrams(corpora, target, out)
    size = path.stat().st_size / 1e6
    typer.echo(
        f"Counted {len(table.token_ids)} trigrams after {len(table.pairs)} pairs; wrote {size:.2f} MB to {path}."
    )


if __name__ == "__main__":
    with errors_as_one_sentence():
        typer.run(main)
