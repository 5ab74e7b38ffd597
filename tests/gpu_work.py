"""What `make bench-gpu` lets a GPU do: `python -m tests.gpu_work environment|identity|bench|page`.

With `--offline` the pair is random weights of a known target's true shape, made on the device: no network, no files. A
random head guesses nothing right, but such texts soon repeat themselves, so that copied guesses are accepted. Each
command ends with 1 where texts differ that were promised to be the same, or where CUDA refused a capture.
"""

import argparse
import statistics
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from app.asking import Asking
from app.devices.local import LocalDevice
from jakiro.backends.cuda_graphs.slot import MOST_NODES
from jakiro.cli import plan
from jakiro.config import AUTOMATIC_TREE, NUMERICS, SamplingParams, TreeConfig
from jakiro.drafters.registry import DEFAULT, PLAIN, WITH_COPIES
from jakiro.generator import JakiroGenerator
from jakiro.heads.jakiro import JAKIRO
from jakiro.heads.jakiro.network import JakiroHead
from jakiro.loading import loader, placement
from jakiro.loading.registry import Pair
from jakiro.loading.shapes import SHAPES, Shape
from jakiro.trace import Trace
from jakiro.training.start import head_config
from tests.support import byte_tokenizer

SHAPES_HERE = {**SHAPES, "tiny": Shape(64, 128, 2, 4, 2, 16, 300)}
SAMPLINGS = (SamplingParams(), SamplingParams(1.0), SamplingParams(0.7, top_p=0.9, top_k=50))
DRAFTING = (DEFAULT.name, WITH_COPIES.name)
# A random head guesses nothing right, and automatic trees would soon draft no more
TREE = TreeConfig(nodes=MOST_NODES)
PROMPTS = ("Why is the sky blue?", "Count to twenty: one two three four five six", "Write a haiku about rain.")


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def random_generator(name: str, options: loader.LoadOptions) -> JakiroGenerator:
    """A pair of a known target's shape with random weights, started as one that was read."""
    shape, (device, dtype) = SHAPES_HERE[name], loader.device_and_dtype(options)
    config = LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.inner,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, max_position_embeddings=4096, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
        head = JakiroHead(head_config(JAKIRO, config)).eval().requires_grad_(False)
    named = Pair(f"random weights, {name}", "", "random", None)
    read = loader.LoadedModels(named, model, byte_tokenizer(), None, head.to(dtype=dtype), options)
    return JakiroGenerator.from_parts(loader.start_pair(read))


def loaded(arguments: argparse.Namespace, numerics: str | None = None) -> JakiroGenerator:
    options = loader.LoadOptions(None, None, arguments.device, None, numerics, "full", side_by_side=2)
    if arguments.offline:
        return random_generator(arguments.shape, options)
    return JakiroGenerator.load(replace(options, target=arguments.target))


def answered(generator: JakiroGenerator, prompt: str, sampling: SamplingParams, method: str) -> Trace:
    """An answer whose every step drafts the largest tree."""
    stream = generator.stream(prompt, sampling, method, TREE)
    for _ in stream:
        pass
    return stream.trace


def captured(generator: JakiroGenerator) -> bool:
    """Whether nothing was refused; says what was captured, and what memory that took beside the estimate."""
    status = generator.status
    graphs = status["graphs"] or {"failure": None, "captured": 0, "graph_bytes": 0, "capture_seconds": 0.0}
    most = status["most_gpu_memory"]
    say(
        f"{graphs['captured']} graphs with {placement.gigabytes(graphs['graph_bytes'])}, slots and captures took "
        f"{graphs['capture_seconds']:.1f} s; most memory at once {placement.gigabytes(most) if most else 'unknown'}"
    )
    for notice in status["notices"]:
        say(f"notice: {notice}")
    if graphs["failure"]:
        say(f"REFUSED: {graphs['failure']}")
    return graphs["failure"] is None


def planned_for(generator: JakiroGenerator) -> None:
    """Says what `doctor --plan` estimates for the card, where it knows it."""
    name, shape = generator.device_name.lower(), Shape.of(generator.target.config)
    for key, card in plan.CARDS.items():
        if key in name:
            found = plan.estimate(shape, card)
            say(
                f"doctor --plan estimates for {card.name}: {placement.gigabytes(found.needed[16])}; plain "
                f"{found.plain_ms:.1f} ms, drafted {found.drafted_ms:.1f} ms: "
                + ", ".join(f"{part} {ms:.1f}" for part, ms in found.parts.items())
            )


def environment(arguments: argparse.Namespace) -> bool:
    """What is here."""
    say(f"Python {sys.version.split()[0]}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    for index in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        say(
            f"GPU {index}: {about.name}, {about.major}.{about.minor}, {about.multi_processor_count} multiprocessors, "
            f"{placement.gigabytes(free)} of {placement.gigabytes(total)} free"
        )
    return True


def identity(arguments: argparse.Namespace) -> bool:
    """Whether drafted texts are plain decoding's, over so many tokens; says where the first one parts."""
    generator = loaded(arguments, "exact")
    promised, compared, parted, seed = generator.target.bit_identical, 0, 0, 0
    say(f"bits are plain decoding's: {promised}")
    while compared < arguments.tokens:
        for sampling in SAMPLINGS:
            sampling = replace(sampling, seed=seed, max_new_tokens=256)
            prompt = f"{PROMPTS[seed % len(PROMPTS)]} {seed}"
            plain = generator.run(prompt, sampling, "autoregressive").token_ids
            for method in DRAFTING:
                drafted = answered(generator, prompt, sampling, method).token_ids
                compared += len(plain)
                if drafted != plain:
                    pairs = zip(plain, drafted, strict=False)
                    place = next((at for at, (one, other) in enumerate(pairs) if one != other), len(drafted))
                    say(f"PARTED at token {place} of {len(plain)}: {prompt!r}, {sampling}, {method}")
                    parted += 1
        seed += 1
    say(f"{compared:,} tokens compared, {parted} texts parted")
    return captured(generator) and not (promised and parted)


def bench(arguments: argparse.Namespace) -> bool:
    """Says what plain and drafted steps take, in one numerics."""
    generator = loaded(arguments, arguments.numerics)
    say(f"{generator.device_name}, {generator.target.name}, numerics {generator.target.numerics}")
    for sampling in SAMPLINGS[:2]:
        for method in (PLAIN.name, *DRAFTING):
            asked = replace(sampling, max_new_tokens=128)
            answered(generator, PROMPTS[0], asked, method)
            traces = [answered(generator, prompt, asked, method) for prompt in PROMPTS]
            steps = [step for trace in traces for step in trace.steps]
            tokens, ms = sum(len(step.committed_ids) for step in steps), sum(step.total_ms for step in steps)
            parts = [statistics.median(getattr(each, f"{part}_ms") for each in steps) for part in _PARTS]
            say(
                f"{method} at {sampling.temperature:g}: {1000 * tokens / ms:.1f} tokens/s, "
                f"{tokens / len(steps):.2f} tokens a step; median ms of "
                + ", ".join(f"{part} {value:.2f}" for part, value in zip(_PARTS, parts, strict=True))
            )
    planned_for(generator)
    return captured(generator)


_PARTS = ("draft", "verify", "other")


def page(arguments: argparse.Namespace) -> bool:
    """What visitors do: a race, the other numerics, a long prompt, Stop, and a race again."""
    device = LocalDevice(lambda: loaded(arguments))
    device.load(lambda *_: None)
    asking = Asking(
        ({"role": "user", "content": PROMPTS[0]},), SamplingParams(1.0, seed=3, max_new_tokens=64), AUTOMATIC_TREE,
        ("autoregressive", "jakiro"),
    )  # fmt: skip
    other = next(each for each in NUMERICS if each != device.status["numerics"])
    long = ({"role": "user", "content": "word " * arguments.long_prompt},)
    halt = threading.Event()
    for named, asked, stopped in (
        ("a race", asking, None),
        (f"{other} numerics", replace(asking, numerics=other), None),
        ("a long prompt", replace(asking, messages=long), None),
        ("Stop", asking, halt),
        ("a race again", asking, None),
    ):
        texts: dict[str, list[int]] = {}
        for kind, method, payload in device.answer(asked, stopped or threading.Event()):
            if kind == "step":
                texts.setdefault(method, []).extend(payload.committed_ids)
                if stopped is not None:
                    stopped.set()
        same = len({tuple(each) for each in texts.values()}) == 1
        say(f"{named}: {[len(each) for each in texts.values()]} tokens{'' if stopped else f', the same: {same}'}")
    generator = device.generator
    refused = [each for each in (generator, generator.with_numerics(other)) if not captured(each)]
    return not refused


COMMANDS: dict[str, Callable[[argparse.Namespace], bool]] = {
    each.__name__: each for each in (environment, identity, bench, page)
}


def main() -> int:
    parser = argparse.ArgumentParser(description="What make bench-gpu lets a GPU do.")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--offline", action="store_true", help="random weights instead of a pair that is read")
    parser.add_argument("--shape", default="smollm2-135m-instruct", choices=SHAPES_HERE, help="of random weights")
    parser.add_argument("--target", help="of a pair that is read")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--numerics", choices=NUMERICS)
    parser.add_argument("--tokens", type=int, default=20_000, help="to compare")
    parser.add_argument("--long-prompt", type=int, default=600, help="words: five tokens each where a token is a byte")
    arguments = parser.parse_args()
    return int(not COMMANDS[arguments.command](arguments))


if __name__ == "__main__":
    sys.exit(main())
