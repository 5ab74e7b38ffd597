"""Published drafters that are never the fastest here, with their heads, tables and trees.

The page of a checkout offers them in addition to the package's methods (`app.py`). Elsewhere, use `--methods-from
lab.published`.
"""

from lab.published import aded, mcsd, mcsd_improved, recycling
from lab.published.gumiho import drafting as gumiho

METHODS = tuple(method.METHOD for method in (recycling, aded, mcsd, mcsd_improved, gumiho))
