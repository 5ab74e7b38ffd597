"""The command `calibrate`: shows the shares that were found."""

import logging

from jakiro.cli.fields import filled, options_from
from jakiro.cli.loading import set_up
from jakiro.cli.options import Threads
from jakiro.training import calibrate as library
from jakiro.training.calibrate import CalibrateConfig

log = logging.getLogger("jakiro")


@options_from(CalibrateConfig)
def calibrate(threads: Threads = None, **given) -> None:
    """Calibrate a head again, at temperatures 0, 0.7 and 1, on text that it was not trained on."""
    set_up(threads)
    for level, share in library.calibrate(filled(CalibrateConfig, given)).items():
        log.info("%s %.3f", level, share)
