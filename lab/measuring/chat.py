"""A chat of six turns with and without what earlier turns have read: `python -m lab.measuring.chat`.

Each turn is asked both ways, in turns, by the same generator; the seconds are those until the first token is known. It
ends with 1 where a text differs or the first token of turn five takes more than 1.3 times that of turn one.
"""

import argparse
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jakiro.config import SamplingParams
from jakiro.decode.prefix_cache import OwnPrefixes, PrefixStore

QUESTIONS = (
    "What is a lighthouse, and why were lighthouses built on rocky coasts?",
    "Who looked after them in earlier times, and what did a normal day look like?",
    "What did these people do in winter, when no boat could come for weeks?",
    "How was the lamp lit before there was any electricity on the coast?",
    "Which of all these tasks was the most dangerous one, and why so?",
    "Please sum up what you told me so far in two short sentences.",
)
GOAL = 1.3


@dataclass(frozen=True)
class Asked:
    """One question asked both ways: seconds to the first token, tokens of the prompt, and those known before."""

    seconds: dict[str, float]
    prompt: int
    known: int
    same: bool


def chat(generator, methods: Sequence[str], length: int, seed: int, store: PrefixStore, first: str) -> list[Asked]:
    """One conversation; `first` says which way goes first in the first turn."""
    ways = {"kept": store.of(seed), "whole": None}
    order = [first, *(way for way in ways if way != first)]
    sampling = SamplingParams(0.7 if seed else 0.0, seed=seed, max_new_tokens=length)
    messages, found = [], []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        seconds, traces = {}, {}
        for way in order:
            seconds[way], traces[way] = answer(generator, methods, messages, sampling, ways[way])
        ids = {way: [trace.token_ids for trace in of_way] for way, of_way in traces.items()}
        header = traces["kept"][0].header
        found.append(Asked(seconds, header.num_prompt_tokens, header.num_reused_tokens, ids["kept"] == ids["whole"]))
        messages.append({"role": "assistant", "content": traces["whole"][0].text})
        order.reverse()
    return found


def answer(generator, methods, messages, sampling: SamplingParams, prefixes: OwnPrefixes | None):
    """Seconds until all lanes know their first token, as the page waits for, and the lanes' traces."""
    start = time.perf_counter()
    race = generator.race(messages, sampling, methods, prefixes=prefixes)
    seconds = time.perf_counter() - start
    for _ in race:
        pass
    return seconds, list(race.traces.values())


def table(rounds: Sequence[Sequence[Asked]]) -> tuple[list[str], float]:
    """Lines of medians over rounds, and turn five's first token over turn one's, with what was read kept."""
    lines = ["| turn | prompt tokens | known before | first token, kept | read whole | same text |", f"|{' --- |' * 6}"]
    medians = []
    for number, asked in enumerate(zip(*rounds, strict=True), start=1):
        ms = {way: 1000 * statistics.median(one.seconds[way] for one in asked) for way in ("kept", "whole")}
        medians.append(ms["kept"])
        prompt, known = (statistics.median(getattr(one, name) for one in asked) for name in ("prompt", "known"))
        same = "yes" if all(one.same for one in asked) else "NO"
        lines.append(f"| {number} | {prompt:.0f} | {known:.0f} | {ms['kept']:.0f} ms | {ms['whole']:.0f} ms | {same} |")
    return lines, medians[4] / medians[0]


def memory(generator, conversations: int, store: PrefixStore) -> str:
    """Many conversations of two turns each, of as many owners, and the memory that stays taken."""
    sampling, sizes, held = SamplingParams(max_new_tokens=4), [], []
    for number in range(conversations):
        messages = [{"role": "user", "content": f"Conversation {number}. {QUESTIONS[0]}"}]
        for question in QUESTIONS[1:3]:
            _, (trace,) = answer(generator, ["jakiro"], messages, sampling, store.of(number))
            said = {"role": "assistant", "content": trace.text}
            messages += [said, {"role": "user", "content": question}]
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        sizes.append(pages * resource.getpagesize() / 2**20)
        held.append(store.num_bytes / 2**20)
    return (
        f"{conversations} conversations: {max(held):.0f} MB kept at most of {store.max_bytes / 2**20:.0f}; process "
        f"{sizes[0]:.0f} MB after the first, {sizes[len(sizes) // 2]:.0f} after half, {sizes[-1]:.0f} after all."
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default="jakiro", help="lanes of each answer, comma-separated")
    parser.add_argument("--length", type=int, default=96, help="tokens an answer")
    parser.add_argument("--rounds", type=int, default=3, help="conversations; the first is greedy, others are sampled")
    parser.add_argument("--conversations", type=int, default=0, help="then so many short ones, for memory")
    parser.add_argument("--megabytes", type=int, default=256, help="kept for those at most")
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
    if arguments.conversations:
        lines.append(memory(generator, arguments.conversations, PrefixStore(arguments.megabytes * 2**20)))
    sys.stdout.write("\n".join([*lines, ""]))
    return 0 if ratio <= GOAL and all(asked.same for found in rounds for asked in found) else 1


if __name__ == "__main__":
    sys.exit(main())
