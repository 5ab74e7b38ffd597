"""The command `corpus`."""

import logging

from jakiro.cli.fields import filled, options_from
from jakiro.cli.loading import set_up
from jakiro.cli.options import Threads
from jakiro.training.corpus import CorpusConfig, CorpusOptions, write_corpus

log = logging.getLogger("jakiro")


@options_from(CorpusConfig, CorpusOptions)
def corpus(threads: Threads = None, **given) -> None:
    """Let a target write the text that its head is trained on."""
    set_up(threads)
    config = filled(CorpusConfig, given, options=filled(CorpusOptions, given))
    log.info("Wrote %d tokens to %s.", write_corpus(config), config.out)
