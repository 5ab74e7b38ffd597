"""How far a GGUF target's engines are from float32: `python -m lab.measuring.distance`.

The reference is transformers in float32 with the numbers that the file's blocks stand for. Every lane reads the same
texts, teacher-forced, and gives its distribution after each token: the file's own bits as we compute with them, the
numbers rounded to bfloat16, and llama.cpp where llama-cpp-python is installed.
"""

import argparse
import importlib.util
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from jakiro.bench.environment import environment
from jakiro.loading import weights
from jakiro.loading.gguf_model import read_gguf_model, stock_model
from jakiro.loading.registry import NO_HEAD, resolve
from jakiro.models.stored import StoredModel
from jakiro.models.target import TargetModel
from jakiro.prompts import load_questions
from jakiro.system import write_atomically
from jakiro.text import encode_messages

# (tokens,) ids → (tokens, vocabulary) logits
Lane = Callable[[Tensor], Tensor]


@dataclass(slots=True)
class Distance:
    """Of one lane: the sum of KL(reference ‖ lane) in nats, and how often the likeliest token is the same."""

    tokens: int = 0
    kl: float = 0.0
    same: int = 0

    def add(self, reference: Tensor, logits: Tensor) -> None:
        """(tokens, vocabulary) log-probabilities in float64, and a lane's logits."""
        found = torch.log_softmax(logits.double(), -1)
        self.kl += float((reference.exp() * (reference - found)).sum())
        self.same += int((reference.argmax(-1) == found.argmax(-1)).sum())
        self.tokens += len(reference)

    def means(self) -> dict:
        return {"tokens": self.tokens, "kl": self.kl / self.tokens, "same": self.same / self.tokens}


def texts(tokenizer, files: list[Path], length: int, count: int) -> Iterator[Tensor]:
    """So many pieces of prompts in the chat template, of so many tokens each, taken from the files in turn."""
    streams = []
    for file in files or [None]:
        asked = [question.turns[0] for question in load_questions(file)]
        ids = [each for text in asked for each in encode_messages(tokenizer, [{"role": "user", "content": text}])]
        streams.append(iter(torch.tensor(ids[: len(ids) // length * length]).view(-1, length)))
    pieces = (next(streams[number % len(streams)], None) for number in range(len(streams) * count))
    for _, piece in zip(range(count), (piece for piece in pieces if piece is not None), strict=False):
        yield piece


def lanes_of(path: Path, config, tokenizer, length: int) -> dict[str, Lane]:
    read = read_gguf_model(path)
    target = TargetModel(StoredModel(config, read.weights), tokenizer)
    rounded = stock_model(read, torch.bfloat16).float()

    def own_bits(ids: Tensor) -> Tensor:
        return target.logits(target.prefill(ids, target.new_cache(length))[0])

    lanes = {"own bits": own_bits, "bfloat16 rounding": lambda ids: rounded(input_ids=ids[None]).logits[0]}
    if importlib.util.find_spec("llama_cpp") is not None:
        from llama_cpp import Llama

        model = Llama(str(path), n_ctx=length, logits_all=True, verbose=False)

        def llama(ids: Tensor) -> Tensor:
            model.reset()
            model.eval(ids.tolist())
            return torch.from_numpy(model.scores[: len(ids)])

        lanes["llama.cpp"] = llama
    return lanes


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", help="a GGUF file, or a known name; the default one if not given")
    parser.add_argument("--prompts", type=Path, nargs="*", default=[], help="files in Spec-Bench form; our own if none")
    parser.add_argument("--length", type=int, default=128, help="tokens of a text")
    parser.add_argument("--texts", type=int, default=80)
    parser.add_argument("--out", type=Path, help="keep the numbers in this file, as JSON")
    given = parser.parse_args()
    pair = resolve(given.target, NO_HEAD)
    path = weights.gguf_path(pair)
    if path is None:
        parser.error(f"{pair.target_name} is no GGUF file")
    tokenizer = weights.load_tokenizer(given.target)
    reference = stock_model(read_gguf_model(path), torch.float32)
    lanes = lanes_of(path, weights.load_config(given.target), tokenizer, given.length)
    found = {name: Distance() for name in lanes}
    for ids in texts(tokenizer, given.prompts, given.length, given.texts):
        exact = torch.log_softmax(reference(input_ids=ids[None]).logits[0].double(), -1)
        for name, lane in lanes.items():
            found[name].add(exact, lane(ids))
    numbers = {name: distance.means() for name, distance in found.items()}
    print(json.dumps(numbers, indent=1))  # noqa: T201 - the command's result
    if given.out is not None:
        about = {"target": pair.target_name, "device": "cpu", "dtype": "float32"}
        kept = {"environment": environment(about), "length": given.length, "distance": numbers}
        write_atomically(given.out, json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
