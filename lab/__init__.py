"""Research code: methods, measurements and tables that answer one question each or produce a table of the documents.

`--methods-from lab` registers its drafting methods. No other folder imports it, and it is not installed.
"""

from jakiro.drafters.registry import METHODS as OURS
from lab.methods import METHODS as TRIED
from lab.peers import PEERS
from lab.published import METHODS as PUBLISHED

METHODS = (*PUBLISHED, *TRIED)
# The methods of the package and of the lab
KNOWN = OURS.with_further(METHODS)

__all__ = ["KNOWN", "METHODS", "PEERS"]
