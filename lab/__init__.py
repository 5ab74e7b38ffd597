"""What answered a question once and backs a table in the documents. It plugs into the product as anybody's code would:
`--methods-from lab` registers its drafting methods. Nothing outside this folder imports it, and it is not installed.
"""

from jakiro.drafters.registry import METHODS as OURS
from lab.methods import METHODS as TRIED
from lab.peers import PEERS
from lab.published import METHODS as PUBLISHED

METHODS = (*PUBLISHED, *TRIED)
# The package's methods and these
KNOWN = OURS.with_further(METHODS)

__all__ = ["KNOWN", "METHODS", "PEERS"]
