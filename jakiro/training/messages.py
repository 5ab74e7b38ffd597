"""Messages of many kinds for a target to answer, each a form filled from lists of words.

A target's own messages (`corpus.py`) are about what it likes to be asked. A head also needs what people ask: code,
sums, questions of fact, and texts to shorten or rewrite. Each message is drawn with its own seed, so a longer list
begins with the shorter one.
"""

import random
import string
import tomllib
from collections.abc import Sequence

from jakiro.system import assets_folder

_LISTS = tomllib.loads((assets_folder() / "prompts" / "messages.toml").read_text(encoding="utf-8"))
_SHARES, _FORMS = _LISTS["shares"], _LISTS["forms"]
_WORDS = {name: tuple(" ".join(words.split()).split("; ")) for name, words in _LISTS["words"].items()}
_WORDS |= {f"other_{name}": _WORDS[name] for name in ("concept", "name", "character", "goal", "animal", "algorithm")}
_WORDS["third_name"] = _WORDS["name"]
# Kinds that are left out where there is no passage, and the most characters of one
_WITH_PASSAGE = ("summary", "rewriting", "reading")
_LONGEST_PASSAGE = 1600


def made_messages(count: int, seed: int = 0, passages: Sequence[str] = ()) -> list[str]:
    """Messages of many kinds.

    Args:
        count: how many.
        seed: the same seed makes the same messages.
        passages: texts to summarise, rewrite or ask about; without any, these kinds are left out.

    Returns:
        `count` messages; a few may be equal.
    """
    return [_message(random.Random(f"{seed} {number}"), passages) for number in range(count)]


def _message(draw: random.Random, passages: Sequence[str]) -> str:
    shares = {kind: share for kind, share in _SHARES.items() if passages or kind not in _WITH_PASSAGE}
    (kind,) = draw.choices(list(shares), list(shares.values()))
    form = draw.choice(_FORMS[kind])
    fields = [field for _, field, _, _ in string.Formatter().parse(form) if field]
    words = {field: draw.choice(_WORDS[field]) for field in fields if field in _WORDS}
    few = draw.randint(2, 9)
    words |= {
        "few": few, "double": 2 * few, "fourfold": 4 * few, "eightfold": 8 * few, "small": draw.randint(3, 25),
        "large": draw.randint(30, 900), "cents": draw.randint(2, 40), "percent": 5 * draw.randint(1, 19),
        "note": draw.choice((20, 50, 100, 500)),
    }  # fmt: skip
    if "passage" in fields:
        words["passage"] = draw.choice(passages)[:_LONGEST_PASSAGE].rsplit(maxsplit=1)[0]
    return form.format(**words)
