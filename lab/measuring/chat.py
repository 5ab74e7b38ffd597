"""A chat of six turns with and without a prefix cache: `python -m lab.measuring.chat`.

The same generator answers each turn in both modes, alternately; the measured time is the time to the first token. The
exit status is 1 if a text differs or the first token of turn five takes more than 1.3 times as long as in turn one.
"""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated

import typer

from jakiro import JakiroGenerator
from jakiro.cli.options import option
from jakiro.config import SamplingParams
from jakiro.decode.prefix_cache import OwnPrefixes, PrefixStore
from jakiro.trace import Trace
from lab.commands import Length, run
from lab.figures import markdown
from lab.measuring.lanes import rotated

QUESTIONS = (
    "What is a lighthouse, and why were lighthouses built on rocky coasts?",
    "How were they maintained in earlier times, and how did a normal day pass?",
    "How did the keepers live in winter, when no boat arrived for weeks?",
    "How was the lamp lit before there was any electricity on the coast?",
    "Which of all these tasks was the most dangerous one, and why so?",
    "Please summarise all your answers so far in two short sentences.",
)
GOAL = 1.3
CACHED, UNCACHED = "cached", "not cached"


@dataclass(frozen=True)
class Turn:
    """One turn in both modes: seconds to the first token, prompt tokens, and tokens taken from the cache."""

    seconds: dict[str, float]
    num_prompt_tokens: int
    num_reused_tokens: int
    same_text: bool


def chat(generator: JakiroGenerator, methods: Sequence[str], length: int, seed: int) -> list[Turn]:
    """Run one conversation; the mode that is measured first alternates with seed and turn."""
    store = PrefixStore()
    prefixes = {CACHED: store.of(seed), UNCACHED: None}
    sampling = SamplingParams(0.7 if seed else 0.0, seed=seed, max_new_tokens=length)
    messages, turns = [], []
    for number, question in enumerate(QUESTIONS):
        messages.append({"role": "user", "content": question})
        seconds, traces = {}, {}
        for mode in rotated(prefixes, seed + number):
            seconds[mode], traces[mode] = answer(generator, methods, messages, sampling, prefixes[mode])
        pairs = zip(traces[CACHED], traces[UNCACHED], strict=True)
        same_text = all(cached.token_ids == uncached.token_ids for cached, uncached in pairs)
        header = traces[CACHED][0].header
        turns.append(Turn(seconds, header.num_prompt_tokens, header.num_reused_tokens, same_text))
        messages.append({"role": "assistant", "content": traces[UNCACHED][0].text})
    return turns


def answer(
    generator: JakiroGenerator, methods, messages, sampling: SamplingParams, prefixes: OwnPrefixes | None
) -> tuple[float, list[Trace]]:
    """Return the seconds until all lanes have their first token, and the traces of the lanes."""
    start = time.perf_counter()
    race = generator.race(messages, sampling, methods, prefixes=prefixes)
    seconds = time.perf_counter() - start
    for _ in race:
        pass
    return seconds, list(race.traces.values())


def table(rounds: Sequence[Sequence[Turn]]) -> tuple[str, float]:
    """Return a table with medians over rounds, and the first-token time of turn five ÷ turn one, with the cache."""
    rows, cached_ms = [], []
    for number, turns in enumerate(zip(*rounds, strict=True), start=1):
        ms = {mode: 1000 * median(turn.seconds[mode] for turn in turns) for mode in (CACHED, UNCACHED)}
        cached_ms.append(ms[CACHED])
        num_prompt_tokens = median(turn.num_prompt_tokens for turn in turns)
        num_reused_tokens = median(turn.num_reused_tokens for turn in turns)
        same_text = "yes" if all(turn.same_text for turn in turns) else "NO"
        times = [f"{milliseconds:.0f} ms" for milliseconds in ms.values()]
        rows.append([str(number), f"{num_prompt_tokens:.0f}", f"{num_reused_tokens:.0f}", *times, same_text])
    columns = ["turn", "prompt tokens", "in the cache", "first token, cached", "not cached", "same text"]
    return markdown(columns, rows), cached_ms[4] / cached_ms[0]


def main(
    methods: Annotated[str, option("Lanes of each answer, comma-separated.")] = "jakiro",
    length: Length = 96,
    rounds: Annotated[int, option("Conversations; only the first is greedy.")] = 3,
) -> None:
    """Measure a chat of six turns with and without a prefix cache."""
    generator, names = JakiroGenerator.from_pretrained(), methods.split(",")
    chat(generator, names, 4, 0)
    chats = [chat(generator, names, length, seed) for seed in range(rounds)]
    text, ratio = table(chats)
    typer.echo(f"{text}\n\nFirst token of turn five ÷ turn one: {ratio:.2f}.")
    if ratio > GOAL or not all(turn.same_text for turns in chats for turn in turns):
        sys.exit(1)


if __name__ == "__main__":
    run(main)
