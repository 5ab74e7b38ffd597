"""Texts of the tab "Learn" from `lesson.json`: ten stops with their questions, and the labels of the tab.

A stop's `idea`, `try`, `notice` and `belief` together have fewer than ninety words. `options` are pairs of an answer
and the reason why it is right or wrong; `right` is the index of the right one.
"""

import json
from pathlib import Path

# Methods whose trees the last stop shows; they need no other head than the default one
FAMILY = ("jakiro", "mcsd", "aded", "recycling", "prompt_lookup")
_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
STOPS, BROWSER = _TEXTS["stops"], _TEXTS["labels"]
