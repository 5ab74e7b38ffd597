"""How often each source of trigrams knows what comes next: the table of a corpus, the prompt, the answer so far."""

from collections.abc import Sequence
from dataclasses import dataclass

from jakiro.training.replay import Answer
from lab.published.trigrams import TrigramTable

SOURCES = ("table", "prompt", "answer")


@dataclass(slots=True)
class Hits:
    """Places of answers, counted.

    Attributes:
        known: those whose two tokens the source had seen together. hit: of these, those whose next token it had seen
            after them. alone: of these, those that no other source had seen.
    """

    known: int = 0
    hit: int = 0
    alone: int = 0


def hits_by_source(answers: Sequence[Answer], table: TrigramTable) -> tuple[int, dict[str, Hits]]:
    """The number of places, and the counts of each source."""
    num_places, found = 0, {source: Hits() for source in SOURCES}
    for answer in answers:
        ids = answer.ids.tolist()
        seen: dict[str, dict[tuple[int, int], set[int]]] = {"prompt": {}, "answer": {}}
        for place in range(2, answer.end + 1):
            pair, token_id = (ids[place - 2], ids[place - 1]), ids[place]
            if place > answer.start:
                num_places += 1
                after = {
                    "table": set(table.after(*pair)[0]),
                    **{name: own.get(pair, set()) for name, own in seen.items()},
                }
                right = [source for source in SOURCES if token_id in after[source]]
                for source in SOURCES:
                    found[source].known += bool(after[source])
                    found[source].hit += source in right
                    found[source].alone += right == [source]
            seen["prompt" if place < answer.start else "answer"].setdefault(pair, set()).add(token_id)
    return num_places, found
