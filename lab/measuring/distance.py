"""Distance of a GGUF target's implementations from float32: `python -m lab.measuring.distance`.

The reference is transformers in float32 with the values that the file's blocks represent. Every lane reads the same
texts, teacher-forced, and returns its distribution after each token: our compiled code on the file's own bits, the
values rounded to bfloat16, and llama.cpp if llama-cpp-python is installed.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import Tensor

from jakiro.cli.options import Target, option
from jakiro.loading import weights
from jakiro.loading.gguf_model import read_gguf_model, stock_model
from jakiro.loading.registry import NO_HEAD, resolve
from jakiro.models.stored import StoredModel
from jakiro.models.target import TargetModel
from jakiro.prompts import load_questions
from jakiro.text import encode_messages
from lab.commands import Out, run
from lab.measuring.lanes import write_numbers
from lab.peers.llama import is_installed

# (tokens,) ids → (tokens, vocabulary) logits
Lane = Callable[[Tensor], Tensor]


@dataclass(slots=True)
class Distance:
    """Sum of KL(reference ‖ lane) in nats, and the number of equal most likely tokens."""

    tokens: int = 0
    kl: float = 0.0
    same: int = 0

    def add(self, reference: Tensor, logits: Tensor) -> None:
        """Add (tokens, vocabulary) float64 log probabilities of the reference and the logits of a lane."""
        log_probs = torch.log_softmax(logits.double(), -1)
        self.kl += float((reference.exp() * (reference - log_probs)).sum())
        self.same += int((reference.argmax(-1) == log_probs.argmax(-1)).sum())
        self.tokens += len(reference)

    def means(self) -> dict:
        return {"tokens": self.tokens, "kl": self.kl / self.tokens, "same": self.same / self.tokens}


def texts(tokenizer, files: list[Path], length: int, count: int) -> Iterator[Tensor]:
    """Return `count` pieces of `length` tokens of prompts in the chat template, alternately from the files."""
    streams = []
    for file in files or [None]:
        messages = ([{"role": "user", "content": question.turns[0]}] for question in load_questions(file))
        ids = list(chain.from_iterable(encode_messages(tokenizer, message) for message in messages))
        streams.append(torch.tensor(ids[: len(ids) // length * length]).view(-1, length))
    pieces = (piece for group in zip_longest(*streams) for piece in group if piece is not None)
    return islice(pieces, count)


def lanes_of(path: Path, config, tokenizer, length: int) -> dict[str, Lane]:
    read = read_gguf_model(path)
    target = TargetModel(StoredModel(config, read.weights), tokenizer)
    rounded = stock_model(read, torch.bfloat16).float()

    def own_bits(ids: Tensor) -> Tensor:
        return target.logits(target.prefill(ids, target.new_cache(length))[0])

    lanes = {"own bits": own_bits, "bfloat16 rounding": lambda ids: rounded(input_ids=ids[None]).logits[0]}
    if is_installed():
        from llama_cpp import Llama

        model = Llama(str(path), n_ctx=length, logits_all=True, verbose=False)

        def llama(ids: Tensor) -> Tensor:
            model.reset()
            model.eval(ids.tolist())
            return torch.from_numpy(model.scores[: len(ids)])

        lanes["llama.cpp"] = llama
    return lanes


@torch.inference_mode()
def main(
    target: Target = None,
    prompts: Annotated[list[Path] | None, option("A Spec-Bench file; may be repeated. Default: our prompts.")] = None,
    length: Annotated[int, option("Tokens of a text.")] = 128,
    num_texts: Annotated[int, option("Number of texts.", "--texts")] = 80,
    out: Out = None,
) -> None:
    """Measure the distance of a GGUF target's implementations from float32."""
    pair = resolve(target, NO_HEAD)
    path = weights.gguf_path(pair)
    if path is None:
        raise ValueError(f"{pair.target_name} is not a GGUF file; choose another target.")
    tokenizer = weights.load_tokenizer(target)
    reference = stock_model(read_gguf_model(path), torch.float32)
    lanes = lanes_of(path, weights.load_config(target), tokenizer, length)
    distances = {name: Distance() for name in lanes}
    for ids in texts(tokenizer, prompts or [], length, num_texts):
        exact = torch.log_softmax(reference(input_ids=ids[None]).logits[0].double(), -1)
        for name, lane in lanes.items():
            distances[name].add(exact, lane(ids))
    numbers = {name: distance.means() for name, distance in distances.items()}
    typer.echo(json.dumps(numbers, indent=1))
    about = {"target": pair.target_name, "device": "cpu", "dtype": "float32"}
    write_numbers(out, about, length=length, distance=numbers)


if __name__ == "__main__":
    run(main)
