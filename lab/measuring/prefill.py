"""Time to read prompts, compared with transformers and llama.cpp: `python -m lab.measuring.prefill`.

Every lane reads the same tokens up to the last position's logits. Lanes alternate in every round, starting with another
one each time, so that other programs on the machine slow down all of them equally.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import torch
import typer

from jakiro.bench.environment import environment
from jakiro.cli.options import option
from jakiro.loading import weights
from jakiro.loading.embedded import EMBEDDED_TARGET
from jakiro.models.target import TargetModel
from jakiro.prompts import load_questions
from jakiro.system import assets_folder, comma_list, write_atomically
from lab import raw
from lab.commands import Out, run
from lab.measuring.lanes import rotated
from lab.peers.llama import LLAMA_CPP, LlamaCppRunner, is_installed

OURS, STOCK = "Jakiro", "transformers"

# Reads token ids up to the last position's logits; returns the seconds
Reader = Callable[[Sequence[int]], float]


@dataclass(frozen=True, slots=True)
class Reading:
    """One prompt length: seconds of each lane, in the order of the rounds."""

    num_tokens: int
    seconds: dict[str, tuple[float, ...]]

    def tokens_per_second(self, lane: str) -> float:
        """Return the tokens per second of the median round."""
        return self.num_tokens / statistics.median(self.seconds[lane])

    @property
    def share(self) -> float:
        """Our speed ÷ the speed of the fastest other lane, the median over rounds."""
        other_lanes = [seconds for lane, seconds in self.seconds.items() if lane != OURS]
        rounds = zip(self.seconds[OURS], *other_lanes, strict=True)
        return statistics.median(min(theirs) / ours for ours, *theirs in rounds)


def read_prompts(
    readers: dict[str, Reader], token_ids: Sequence[int], lengths: Sequence[int], rounds: int
) -> Iterator[Reading]:
    """Yield a reading for each length; every lane reads once before it is timed.

    Args:
        token_ids: at least as many as the longest length.
    """
    for length in lengths:
        prompt = list(token_ids[:length])
        seconds: dict[str, list[float]] = {lane: [] for lane in readers}
        for read in readers.values():
            read(prompt)
        for number in range(rounds):
            for lane in rotated(readers, number):
                seconds[lane].append(readers[lane](prompt))
        yield Reading(length, {lane: tuple(times) for lane, times in seconds.items()})


def timed(read: Callable[[torch.Tensor], torch.Tensor]) -> Reader:
    """Return a reader with the function from (tokens,) ids to the logits of the last one."""

    @torch.inference_mode()
    def reader(prompt: Sequence[int]) -> float:
        ids = torch.tensor(prompt)
        start = time.perf_counter()
        read(ids).argmax().item()
        return time.perf_counter() - start

    return reader


def long_text(tokenizer, count: int) -> list[int]:
    """Return `count` tokens of our long prompts, repeated if they are too short."""
    prompts = load_questions(assets_folder() / "prompts" / "long.jsonl")
    ids = tokenizer("\n".join(turn for prompt in prompts for turn in prompt.turns))["input_ids"]
    return (ids * -(-count // len(ids)))[:count]


def sentence_of(reading: Reading) -> str:
    """Return a reading as a line: tokens per second of each lane, and our share of the fastest other lane."""
    lanes = ", ".join(f"{lane} {reading.tokens_per_second(lane):,.0f}" for lane in reading.seconds)
    return f"{reading.num_tokens:,} tokens: {lanes} tokens/s; Jakiro has {100 * reading.share:.0f} % of the best."


def main(
    lengths: Annotated[str, option("Comma list of numbers of tokens.")] = "30,500,3800",
    rounds: Annotated[int, option("Readings of each prompt in each lane.")] = 5,
    out: Out = None,
) -> None:
    """Read prompts of several lengths in every lane, alternately."""
    chosen = comma_list("--lengths", lengths, int)
    model, tokenizer, sha256 = weights.load_target(None, "cpu", torch.float32)
    target = TargetModel(model, tokenizer, EMBEDDED_TARGET, sha256)
    stock = weights.load_target(None, "cpu", torch.float32)[0]
    # Both read into a new cache, as at the start of every answer
    readers = {
        OURS: timed(lambda ids: target.prefill(ids, target.new_cache(len(ids)))[1]),
        STOCK: timed(lambda ids: stock(input_ids=ids[None], use_cache=True, logits_to_keep=1).logits),
    }
    if is_installed():
        readers[LLAMA_CPP] = LlamaCppRunner(LLAMA_CPP, EMBEDDED_TARGET, torch.get_num_threads()).read
    readings = []
    for reading in read_prompts(readers, long_text(tokenizer, max(chosen)), chosen, rounds):
        readings.append(reading)
        typer.echo(sentence_of(reading))
    if out is not None:
        about = {"target": target.name, "device": "cpu", "dtype": "float32", "compiled": target.compiled}
        head = {"environment": environment(about), "rounds": rounds}
        write_atomically(out, raw.lines(head, "readings", [asdict(reading) for reading in readings]))


if __name__ == "__main__":
    run(main)
