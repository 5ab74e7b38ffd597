"""Published drafters that are the fastest nowhere here: their heads, tables and trees, plugged in as anybody's methods.

The page of a checkout offers them beside the package's (`app.py`); elsewhere `--methods-from lab.published` does.
"""

from lab.published import aded, mcsd, mcsd_improved, recycling
from lab.published.gumiho import drafting as gumiho

METHODS = (
    recycling.METHOD,
    aded.METHOD,
    mcsd.METHOD,
    mcsd_improved.METHOD,
    gumiho.METHOD,
)
