"""A chat of six turns with and without a prefix cache: `python -m lab.measuring.chat`.

The same generator answers each turn in both modes, alternately; the measured time is the time to the first token. The
exit status is 1 if a text differs or the first token of turn five takes more than 1.3 times as long as in turn one.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from jakiro.config import SamplingParams
from jakiro.decode.prefix_cache import OwnPrefixes, PrefixStore

QUESTIONS = (
    "What is a lighthouse, and why were lighthouses built on rocky coasts?",
    "How were they maintained in earlier times, and how did a normal day pass?",
    "How did the keepers live in winter, when no boat arrived for weeks?",
    "How was the lamp lit before there was any electricity on the coast?",
    "Which of all these tasks was the most dangerous one, and why so?",
    "Please summarise all your answers so far in two short sentences.",
)
GOAL = 1.3


@dataclass(frozen=True)
class Asked:
    """One turn in both modes: seconds to the first token, prompt tokens, and tokens taken from the cache."""

    seconds: dict[str, float]
    prompt: int
    num_reused: int
    same: bool


def chat(generator, methods: Sequence[str], length: int, seed: int, store: PrefixStore, first: str) -> list[Asked]:
    """Run one conversation.

    Args:
        first: the mode that is measured first in the first turn.
    """
    ways = {"kept": store.of(seed), "whole": None}
    order = [first, *(way for way in ways if way != first)]
    sampling = SamplingParams(0.7 if seed else 0.0, seed=seed, max_new_tokens=length)
    messages, turns = [], []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        seconds, traces = {}, {}
        for way in order:
            seconds[way], traces[way] = answer(generator, methods, messages, sampling, ways[way])
        ids = {way: [trace.token_ids for trace in of_way] for way, of_way in traces.items()}
        header = traces["kept"][0].header
        turns.append(Asked(seconds, header.num_prompt_tokens, header.num_reused_tokens, ids["kept"] == ids["whole"]))
        messages.append({"role": "assistant", "content": traces["whole"][0].text})
        order.reverse()
    return turns


def answer(generator, methods, messages, sampling: SamplingParams, prefixes: OwnPrefixes | None):
    """Return the seconds until all lanes have their first token, and the traces of the lanes."""
    start = time.perf_counter()
    race = generator.race(messages, sampling, methods, prefixes=prefixes)
    seconds = time.perf_counter() - start
    for _ in race:
        pass
    return seconds, list(race.traces.values())


def table(rounds: Sequence[Sequence[Asked]]) -> tuple[list[str], float]:
    """Return lines with medians over rounds, and the first-token time of turn five ÷ turn one, with the cache."""
    lines = [
        "| turn | prompt tokens | in the cache | first token, cached | not cached | same text |",
        f"|{' --- |' * 6}",
    ]
    medians = []
    for number, turns in enumerate(zip(*rounds, strict=True), start=1):
        ms = {way: 1000 * statistics.median(turn.seconds[way] for turn in turns) for way in ("kept", "whole")}
        medians.append(ms["kept"])
        prompt, num_reused = (
            statistics.median(getattr(turn, name) for turn in turns) for name in ("prompt", "num_reused")
        )
        same = "yes" if all(turn.same for turn in turns) else "NO"
        lines.append(
            f"| {number} | {prompt:.0f} | {num_reused:.0f} | {ms['kept']:.0f} ms | {ms['whole']:.0f} ms | {same} |"
        )
    return lines, medians[4] / medians[0]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="jakiro", help="lanes of each answer, comma-separated")
    parser.add_argument("--length", type=int, default=96, help="tokens per answer")
    parser.add_argument("--rounds", type=int, default=3, help="conversations; only the first is greedy")
    arguments = parser.parse_args()
    from jakiro import JakiroGenerator

    generator = JakiroGenerator.from_pretrained()
    methods = arguments.methods.split(",")
    chat(generator, methods, 4, 0, PrefixStore(), "whole")
    rounds = [
        chat(generator, methods, arguments.length, seed, PrefixStore(), ("kept", "whole")[seed % 2])
        for seed in range(arguments.rounds)
    ]
    lines, ratio = table(rounds)
    lines += ["", f"First token of turn five ÷ turn one: {ratio:.2f}."]
    sys.stdout.write("\n".join([*lines, ""]))
    return 0 if ratio <= GOAL and all(turn.same for turns in rounds for turn in turns) else 1


if __name__ == "__main__":
    sys.exit(main())
