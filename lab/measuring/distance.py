"""Distance of a GGUF target's implementations from float32: `python -m lab.measuring.distance`.

The reference is transformers in float32 with the values that the file's blocks represent. Every lane reads the same
texts, teacher-forced, and returns its distribution after each token: our compiled code on the file's own bits, the
values rounded to bfloat16, and llama.cpp if llama-cpp-python is installed.
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
    """Yield `count` pieces of `length` tokens of prompts in the chat template, alternately from the files."""
    streams = []
    for file in files or [None]:
        prompts = [question.turns[0] for question in load_questions(file)]
        ids = [
            token_id for text in prompts for token_id in encode_messages(tokenizer, [{"role": "user", "content": text}])
        ]
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
    parser.add_argument("--target", help="a GGUF file or a known name; default: the default target")
    parser.add_argument("--prompts", type=Path, nargs="*", default=[], help="Spec-Bench files; default: our prompts")
    parser.add_argument("--length", type=int, default=128, help="tokens per text")
    parser.add_argument("--texts", type=int, default=80)
    parser.add_argument("--out", type=Path, help="write the numbers to this JSON file")
    options = parser.parse_args()
    pair = resolve(options.target, NO_HEAD)
    path = weights.gguf_path(pair)
    if path is None:
        parser.error(f"{pair.target_name} is not a GGUF file")
    tokenizer = weights.load_tokenizer(options.target)
    reference = stock_model(read_gguf_model(path), torch.float32)
    lanes = lanes_of(path, weights.load_config(options.target), tokenizer, options.length)
    distances = {name: Distance() for name in lanes}
    for ids in texts(tokenizer, options.prompts, options.length, options.texts):
        exact = torch.log_softmax(reference(input_ids=ids[None]).logits[0].double(), -1)
        for name, lane in lanes.items():
            distances[name].add(exact, lane(ids))
    numbers = {name: distance.means() for name, distance in distances.items()}
    print(json.dumps(numbers, indent=1))  # noqa: T201 - the result of the command
    if options.out is not None:
        about = {"target": pair.target_name, "device": "cpu", "dtype": "float32"}
        result = {"environment": environment(about), "length": options.length, "distance": numbers}
        write_atomically(options.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
