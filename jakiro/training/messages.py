"""Generated messages of many kinds for a target to answer: forms filled from word lists.

Messages that a target writes itself (`corpus.py`) have a narrow range of topics. A head also needs the requests of
users: code, arithmetic, factual questions, and texts to shorten or rewrite. Each message has its own seed, so a longer
list starts with the shorter one.
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
# Kinds that require a passage, and the maximum number of its characters
_WITH_PASSAGE = ("summary", "rewriting", "reading")
_LONGEST_PASSAGE = 1600


def made_messages(count: int, seed: int = 0, passages: Sequence[str] = ()) -> list[str]:
    """Return messages of many kinds; a few may be equal.

    Args:
        count: number of messages.
        seed: the same seed gives the same messages.
        passages: texts to summarise, rewrite or ask about; without any, these kinds are left out.
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
