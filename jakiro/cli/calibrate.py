"""The command `calibrate`: fills a `CalibrateConfig` from its options and shows the shares that were found."""

import logging
from pathlib import Path
from typing import Annotated

from jakiro.cli.loading import set_up
from jakiro.cli.options import CorpusPaths, OneDevice, Target, Threads, argument, option
from jakiro.training import calibrate as library
from jakiro.training.calibrate import CalibrateConfig

_DEFAULTS = CalibrateConfig(head="", corpora=())
log = logging.getLogger("jakiro")


def calibrate(
    head: Annotated[Path, argument("Folder of the head; only its config is rewritten.")],
    data: CorpusPaths,
    target: Target = None,
    rows: Annotated[int, option("Held-out rows to fit weights on.")] = _DEFAULTS.rows,
    texts: Annotated[int, option("Their messages that the target answers at each temperature.")] = _DEFAULTS.texts,
    max_new_tokens: Annotated[int, option("Longest answer.")] = _DEFAULTS.max_new_tokens,
    unread: Annotated[bool, option("Use rows that the head's manifest does not list as held out.")] = False,
    seed: Annotated[int, option("The same seed gives the same positions, noise and answers.")] = _DEFAULTS.seed,
    device: OneDevice = None,
    threads: Threads = None,
) -> None:
    """Calibrate a head again, at temperatures 0, 0.7 and 1, on text that it was not trained on."""
    set_up(threads)
    corpora = tuple(map(str, data))
    config = CalibrateConfig(str(head), corpora, target, rows, texts, max_new_tokens, unread, seed, device)
    for level, share in library.calibrate(config).items():
        log.info("%s %.3f", level, share)
