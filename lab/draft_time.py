"""What a draft takes on a CPU by levels, beside reading its weights once a level: `python -m lab.draft_time`.

The methods take turns along one greedy answer, each draft after a plain pass, as in decoding. The floor is the bytes of
the head's layer and output rows at the speed at which a plain pass reads the target's. The rest is Python and torch.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from math import prod

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from jakiro import JakiroGenerator
from jakiro.backends.native.library import library
from jakiro.backends.native.linear import NativeLinear
from jakiro.backends.torch_backend import TorchSession
from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.base import Committed, Context, Drafter, DraftRequest
from jakiro.heads.layer_head import LayerHead
from jakiro.models.target import TargetModel
from jakiro.prompts import load_questions
from jakiro.system import assets_folder
from jakiro.text import encode_messages

METHODS = ("jakiro", "eagle2")
LEVELS = range(1, 6)
# Beside the root, for each level: as trees of answers on a CPU are
NODES_A_LEVEL, WIDTH = 3, 8
# Places in the answer at which is drafted, tokens that the step before committed, and tokens of the answer
PLACES, COMMITTED, ANSWER_TOKENS = 12, 2, 96


class Clock:
    """Counts the milliseconds that a function takes."""

    def __init__(self) -> None:
        self.milliseconds = 0.0

    def timed(self, function: Callable) -> Callable:
        def call(*arguments):
            start = time.perf_counter()
            result = function(*arguments)
            self.milliseconds += 1000 * (time.perf_counter() - start)
            return result

        return call

    def read(self) -> float:
        """Since it was last read."""
        milliseconds, self.milliseconds = self.milliseconds, 0.0
        return milliseconds


class Drafts:
    """A method's sessions at several places of an answer.

    Args:
        ids: of prompt and answer. first: the first place.
    """

    def __init__(self, runner: TorchSession, drafter: Drafter, ids: list[int], features: torch.Tensor, first: int):
        self.places = []
        apart = (len(ids) - COMMITTED - first) // PLACES
        for end in range(first, first + PLACES * apart, apart):
            prompt = Context(ids[:end], torch.tensor(ids[:end]), features[: end - 1])
            session = drafter.start(prompt, runner.sampling, runner.draft_noise)
            session.propose(DraftRequest(TreeConfig(depth=1, nodes=4)))
            further = ids[end : end + COMMITTED]
            committed = Committed(further, torch.tensor(further), features[end - 1 : end - 1 + COMMITTED])
            self.places.append((session, committed, end))

    def draft(self, place: int, levels: int) -> None:
        session, committed, end = self.places[place]
        session.observe(committed)
        tree = TreeConfig(width=WIDTH, depth=levels, nodes=1 + NODES_A_LEVEL * levels)
        session.propose(DraftRequest(tree))
        session.rewind(end)


def packed_bytes(modules: Iterable[nn.Module]) -> int:
    """Of those that are packed matrices."""
    return sum(each.packed.nbytes for each in modules if isinstance(each, NativeLinear))


def target_bytes(target: TargetModel) -> int:
    """What a plain pass reads."""
    parts = (getattr(layer, each.name) for layer in target.fused.layers for each in fields(layer))
    return packed_bytes(parts) + prod(target.output_weight.shape) * target.weight_itemsize


def draft_bytes(head: LayerHead) -> int:
    """What a level of a draft reads."""
    return packed_bytes((*head.kernel.modules(), head.output_layer))


@torch.inference_mode()
def drafted(
    generator: JakiroGenerator, temperature: float, rounds: int
) -> Iterator[tuple[str, int, float, float, float]]:
    """Method, levels and medians: milliseconds of a draft, of compiled code in it, and of the plain pass before."""
    question = load_questions(assets_folder() / "prompts" / "own.jsonl")[0].turns[0]
    sampling = SamplingParams(temperature=temperature, max_new_tokens=ANSWER_TOKENS)
    prompt = encode_messages(generator.tokenizer, question)
    ids = [*prompt, *generator.run(question, SamplingParams(max_new_tokens=ANSWER_TOKENS), "autoregressive").token_ids]
    plain = generator.drafter(generator.known_methods["autoregressive"])
    runner = TorchSession(generator.target, plain, sampling, len(ids) + WIDTH)
    features, _ = runner.prefill(torch.tensor(ids))
    runner.begin(torch.tensor(ids[-1:]))
    drafters = {method: generator.drafter(generator.known_methods[method]) for method in METHODS}
    drafts = {method: Drafts(runner, each, ids, features, len(prompt) + 4) for method, each in drafters.items()}
    clock = Clock()
    library().jakiro_grow = clock.timed(library().jakiro_grow)
    times: dict[tuple[str, int], list[tuple[float, float, float]]] = {}
    for number in range(rounds * PLACES):
        for levels in LEVELS:
            for method in METHODS:
                start = time.perf_counter()
                runner.score(runner.root_tree())
                between = time.perf_counter()
                clock.read()
                drafts[method].draft(number % PLACES, levels)
                plain, whole = 1000 * (between - start), 1000 * (time.perf_counter() - between)
                times.setdefault((method, levels), []).append((whole, clock.read(), plain))
    for (method, levels), found in sorted(times.items(), key=lambda each: METHODS.index(each[0][0])):
        yield method, levels, *map(statistics.median, zip(*found, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description="Time drafts by levels.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--temperature", type=float, default=0.0)
    chosen = parser.parse_args()
    generator = JakiroGenerator.from_pretrained(device="cpu")
    target = generator.target
    table = Table("method", "levels", "ms", "compiled", "rest", "floor")
    for method, levels, whole, within, plain in drafted(generator, chosen.temperature, chosen.rounds):
        head = generator.drafter(generator.known_methods[method]).head
        floor = levels * draft_bytes(head) * plain / target_bytes(target)
        table.add_row(method, str(levels), *(f"{each:.2f}" for each in (whole, within, whole - within, floor)))
    Console().print(table)


if __name__ == "__main__":
    main()
