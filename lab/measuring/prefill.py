"""How fast prompts are read, beside transformers and llama.cpp: `python -m lab.measuring.prefill`.

Every lane reads the same tokens and ends with the last position's logits. Lanes take turns in every round, a different
one first each time, so that what else runs on the machine falls on all of them.
"""

import argparse
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from jakiro.bench.environment import environment
from jakiro.loading import weights
from jakiro.loading.embedded import EMBEDDED_TARGET
from jakiro.models.target import TargetModel
from jakiro.prompts import load_questions
from jakiro.system import assets_folder, comma_list, write_atomically
from lab import raw
from lab.peers.llama import LLAMA_CPP, LlamaCppRunner

OURS, STOCK = "Jakiro", "transformers"
LENGTHS = (30, 500, 3800)

# Reads token ids to the last position's logits; returns the seconds that took
Reader = Callable[[Sequence[int]], float]


@dataclass(frozen=True, slots=True)
class Reading:
    """One prompt length: seconds of each lane, in the order of the rounds."""

    num_tokens: int
    seconds: dict[str, tuple[float, ...]]

    def tokens_per_second(self, lane: str) -> float:
        """By the median round."""
        return self.num_tokens / statistics.median(self.seconds[lane])

    @property
    def share(self) -> float:
        """Our speed as a part of the fastest other lane's, the median over rounds."""
        others = [seconds for lane, seconds in self.seconds.items() if lane != OURS]
        rounds = zip(self.seconds[OURS], *others, strict=True)
        return statistics.median(min(theirs) / ours for ours, *theirs in rounds)


def read_prompts(
    readers: dict[str, Reader], token_ids: Sequence[int], lengths: Sequence[int], rounds: int
) -> Iterator[Reading]:
    """A reading for each length, as it ends; every lane reads once before it is timed.

    Args:
        token_ids: at least as many as the longest length.
    """
    lanes = list(readers)
    for length in lengths:
        prompt = list(token_ids[:length])
        seconds: dict[str, list[float]] = {lane: [] for lane in lanes}
        for lane in lanes:
            readers[lane](prompt)
        for number in range(rounds):
            for offset in range(len(lanes)):
                lane = lanes[(number + offset) % len(lanes)]
                seconds[lane].append(readers[lane](prompt))
        yield Reading(length, {lane: tuple(times) for lane, times in seconds.items()})


def our_reader(target) -> Reader:
    """`TargetModel.prefill` into a cache of its own, as every answer begins."""

    def read(prompt: Sequence[int]) -> float:
        ids = torch.tensor(prompt, device=target.device)
        start = time.perf_counter()
        _, logits = target.prefill(ids, target.new_cache(len(prompt)))
        logits.argmax().item()
        return time.perf_counter() - start

    return read


def stock_reader(model) -> Reader:
    """A stock transformers model's forward pass with a cache, as its `generate` begins."""

    @torch.inference_mode()
    def read(prompt: Sequence[int]) -> float:
        ids = torch.tensor([prompt], device=model.device)
        start = time.perf_counter()
        model(input_ids=ids, use_cache=True, logits_to_keep=1).logits.argmax().item()
        return time.perf_counter() - start

    return read


def long_text(tokenizer, count: int) -> list[int]:
    """So many tokens of our long prompts, again from the beginning where they end."""
    prompts = load_questions(assets_folder() / "prompts" / "long.jsonl")
    ids = tokenizer("\n".join(turn for prompt in prompts for turn in prompt.turns))["input_ids"]
    return (ids * -(-count // len(ids)))[:count]


def sentence_of(reading: Reading) -> str:
    """A reading as a line: each lane's tokens a second, and ours as a part of the fastest other's."""
    lanes = ", ".join(f"{lane} {reading.tokens_per_second(lane):,.0f}" for lane in reading.seconds)
    return f"{reading.num_tokens:,} tokens: {lanes} tokens/s; ours is {100 * reading.share:.0f} % of the faster other."


def as_json(stamp: dict, rounds: int, readings: Sequence[Reading]) -> str:
    """Where and how it was measured, and every reading's seconds, a line for each length.

    Args:
        stamp: what `environment` gives.
    """
    return raw.lines({"environment": stamp, "rounds": rounds}, "readings", [asdict(reading) for reading in readings])


def main() -> None:
    parser = argparse.ArgumentParser(description="Read prompts of several lengths by every lane in turn.")
    parser.add_argument("--lengths", default=",".join(map(str, LENGTHS)), help="comma list of tokens")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="keep every reading's seconds in this file, as JSON")
    chosen = parser.parse_args()
    lengths = comma_list("--lengths", chosen.lengths, int)
    model, tokenizer, sha256 = weights.load_target(None, "cpu", torch.float32)
    target = TargetModel(model, tokenizer, EMBEDDED_TARGET, sha256)
    stock = weights.load_target(None, "cpu", torch.float32)[0]
    readers = {OURS: our_reader(target), STOCK: stock_reader(stock)}
    if importlib.util.find_spec("llama_cpp") is not None:
        readers[LLAMA_CPP] = LlamaCppRunner(LLAMA_CPP, EMBEDDED_TARGET, torch.get_num_threads()).read
    readings = []
    for reading in read_prompts(readers, long_text(tokenizer, max(lengths)), lengths, chosen.rounds):
        readings.append(reading)
        print(sentence_of(reading), flush=True)  # noqa: T201 - the command's result
    if chosen.out is not None:
        about = {"target": target.name, "device": "cpu", "dtype": "float32", "compiled": target.compiled}
        write_atomically(chosen.out, as_json(environment(about), chosen.rounds, readings))


if __name__ == "__main__":
    main()
