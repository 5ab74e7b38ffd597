"""The command `trigrams`: its options."""

from pathlib import Path
from typing import Annotated

from jakiro.cli.loading import set_up
from jakiro.cli.options import CorpusPaths, Target, option
from jakiro.drafting.trigrams import LEAST_COUNT, MOST_SUCCESSORS
from jakiro.training.trigrams import count_trigrams


def trigrams(
    corpora: CorpusPaths,
    target: Target = None,
    out: Annotated[Path | None, option("File to write; without it, where the target's drafts look for it.")] = None,
    least_count: Annotated[int, option("Leave out what was seen less often.", min=1)] = LEAST_COUNT,
    most_successors: Annotated[int, option("Successors of one pair.", min=1)] = MOST_SUCCESSORS,
) -> None:
    """Count what follows each pair of tokens in a corpus, to draft from."""
    set_up(None)
    count_trigrams(corpora, target, out, least_count, most_successors)
