"""Measurements of one device: `python -m tests.gpu.work environment|ceilings|identity|costs|race|suite`.

With `--shape` the pair has random weights of a known target's shape, made on the device, so no file is read. Hardly any
token of a random head is accepted: milliseconds per step are valid, tokens per step are not. A command exits with 1 if
texts differ that must be equal, or if CUDA rejected a capture.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import AutoModelForCausalLM, LlamaConfig

from jakiro.backends.cuda_graphs.buffers import MOST_NODES
from jakiro.cli import plan
from jakiro.config import NUMERICS, SamplingParams, TreeConfig
from jakiro.drafters.registry import DEFAULT, PLAIN, WITH_COPIES
from jakiro.generator import JakiroGenerator
from jakiro.heads.jakiro import JAKIRO
from jakiro.heads.jakiro.network import JakiroHead
from jakiro.loading import loader, placement
from jakiro.loading.registry import Pair
from jakiro.loading.shapes import SHAPES as TARGET_SHAPES
from jakiro.loading.shapes import Shape
from jakiro.trace import Trace
from jakiro.training.start import head_config
from tests.support import byte_tokenizer

SHAPES = {**TARGET_SHAPES, "tiny": Shape(64, 128, 2, 4, 2, 16, 300)}
SAMPLINGS = (SamplingParams(), SamplingParams(1.0), SamplingParams(0.7, top_p=0.9, top_k=50))
DRAFTING = (DEFAULT.name, WITH_COPIES.name)
# With an automatic tree, a random head would soon not be used any more
TREE = TreeConfig(nodes=MOST_NODES)
PROMPTS = ("Why is the sky blue?", "Count to twenty: one two three four five six", "Write a haiku about rain.")
PARTS = ("draft", "verify", "other")
KERNELS_SHOWN = 12
FILE_SECONDS = 100


def say(text: str) -> None:
    print(text, flush=True)  # noqa: T201


def random_generator(name: str, options: loader.LoadOptions) -> JakiroGenerator:
    """Return a generator with random weights of a known target's shape."""
    shape, (device, dtype) = SHAPES[name], loader.device_and_dtype(options)
    config = LlamaConfig(
        vocab_size=shape.vocabulary, hidden_size=shape.hidden, intermediate_size=shape.inner,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim, max_position_embeddings=4096, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    with device:
        model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
        head = JakiroHead(head_config(JAKIRO, config)).eval().requires_grad_(False)
    pair = Pair(f"random weights, {name}", "", "random", None)
    models = loader.LoadedModels(pair, model, byte_tokenizer(), None, head.to(dtype=dtype), options)
    return JakiroGenerator.from_parts(loader.start_pair(models))


def load_generator(arguments: argparse.Namespace, numerics: str | None = None) -> JakiroGenerator:
    """Return the generator of `--shape`, or of the pair named by `--target` and `--head`."""
    numerics = numerics or arguments.numerics
    options = loader.LoadOptions(
        arguments.target, arguments.head, arguments.device, None, numerics, "full", side_by_side=2
    )
    return JakiroGenerator.load(options) if arguments.shape is None else random_generator(arguments.shape, options)


def answer(generator: JakiroGenerator, prompt: str, sampling: SamplingParams, method: str) -> Trace:
    """Return the trace of an answer that drafts the largest tree in every step."""
    return generator.run(prompt, sampling, method, TREE)


def check_captures(generator: JakiroGenerator) -> bool:
    """Print captures and used memory; return whether CUDA accepted every capture."""
    status = generator.status
    graphs = status["graphs"] or {"failure": None, "captured": 0, "graph_bytes": 0, "capture_seconds": 0.0}
    most = status["most_gpu_memory"]
    say(
        f"{graphs['captured']} graphs with {placement.gigabytes(graphs['graph_bytes'])}; buffers and captures took "
        f"{graphs['capture_seconds']:.1f} s; peak memory {placement.gigabytes(most) if most else 'unknown'}"
    )
    for notice in status["notices"]:
        say(f"notice: {notice}")
    if graphs["failure"]:
        say(f"CAPTURE FAILED: {graphs['failure']}")
    return graphs["failure"] is None


def environment(arguments: argparse.Namespace) -> bool:
    """Print versions, cards and free memory."""
    say(f"Python {sys.version.split()[0]}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        say(
            f"GPU {index}: {card.name}, {card.major}.{card.minor}, {card.multi_processor_count} multiprocessors, "
            f"{placement.gigabytes(free)} of {placement.gigabytes(total)} free"
        )
    return True


def median_ms(work: Callable[[], object], repeats: int = 20) -> float:
    """Return the median duration of a call, by CUDA events on a GPU and by the clock elsewhere."""
    durations = []
    for _ in range(3 + repeats):
        if torch.cuda.is_available():
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            durations.append(start.elapsed_time(end))
        else:
            begin = time.perf_counter()
            work()
            durations.append(1000 * (time.perf_counter() - begin))
    return statistics.median(durations[3:])


def ceilings(arguments: argparse.Namespace) -> bool:
    """Print the speed of copies, products and kernel starts: the constants of `jakiro/cli/plan.py`."""
    device = torch.device(arguments.device)
    on_gpu = device.type == "cuda"
    source = torch.empty((4 << 30) if on_gpu else (16 << 20), dtype=torch.uint8, device=device).random_()
    target = torch.empty_like(source)
    ms = median_ms(lambda: target.copy_(source))
    say(f"copy of {len(source) >> 20} MiB: {2 * len(source) / ms / 1e6:.0f} GB/s read and written")
    for size, dtype in ((8192, torch.bfloat16), (4096, torch.float64)) if on_gpu else ((256, torch.float32),):
        left, right = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
        ms = median_ms(lambda: left @ right)  # noqa: B023
        say(f"product of two {size} × {size} matrices in {dtype}: {2 * size**3 / ms / 1e9:.1f} TFLOP/s")
    matrices = [torch.randn(11008, 4096, dtype=torch.bfloat16, device=device) for _ in range(24 if on_gpu else 1)]
    for rows in (1, 64):
        hidden = torch.randn(rows, 4096, dtype=torch.bfloat16, device=device)
        ms = median_ms(lambda: [torch.nn.functional.linear(hidden, matrix) for matrix in matrices], 20 if on_gpu else 1)  # noqa: B023
        say(f"{rows} rows × 11008 × 4096: {len(matrices) * matrices[0].nbytes / ms / 1e6:.0f} GB/s of weights")
    if on_gpu:
        value, graph, kernels = torch.zeros(64, device=device), torch.cuda.CUDAGraph(), 1000
        with torch.cuda.graph(graph):
            for _ in range(kernels):
                value.add_(1)
        say(f"small kernels of a replayed graph: {1000 * median_ms(graph.replay) / kernels:.2f} µs each")
    return True


def identity(arguments: argparse.Namespace) -> bool:
    """Compare drafted texts with plain decoding; print the place of each difference."""
    generator = load_generator(arguments, "exact")
    required, compared, different, seed = generator.target.bit_identical, 0, 0, 0
    say(f"plain and drafted passes have the same bits: {required}")
    while compared < arguments.tokens:
        for sampling in SAMPLINGS:
            sampling = replace(sampling, seed=seed, max_new_tokens=256)
            prompt = f"{PROMPTS[seed % len(PROMPTS)]} {seed}"
            plain = answer(generator, prompt, sampling, PLAIN.name).token_ids
            for method in DRAFTING:
                drafted = answer(generator, prompt, sampling, method).token_ids
                compared += len(plain)
                if drafted != plain:
                    pairs = enumerate(zip(plain, drafted, strict=False))
                    place = next((index for index, (left, right) in pairs if left != right), len(drafted))
                    say(f"DIFFERENT at token {place} of {len(plain)}: {prompt!r}, {sampling}, {method}")
                    different += 1
        seed += 1
    say(f"{compared:,} tokens compared, {different} texts different")
    return check_captures(generator) and not (required and different)


def costs(arguments: argparse.Namespace) -> bool:
    """Print milliseconds of plain and drafted steps, their kernels, and the estimate of `doctor --plan`."""
    generator = load_generator(arguments)
    say(f"{generator.device_name}, {generator.target.name}, numerics {generator.target.numerics}")
    accepted = check_captures(generator)
    for sampling in SAMPLINGS[:2]:
        for method in (PLAIN.name, *DRAFTING):
            sampling = replace(sampling, max_new_tokens=arguments.new_tokens)
            answer(generator, PROMPTS[0], sampling, method)
            steps = [step for prompt in PROMPTS for step in answer(generator, prompt, sampling, method).steps]
            milliseconds = sorted(step.total_ms for step in steps)
            medians = {part: statistics.median(getattr(step, f"{part}_ms") for step in steps) for part in PARTS}
            tenth = len(milliseconds) // 10
            say(
                f"{method} at {sampling.temperature:g}: {statistics.median(milliseconds):.2f} ms a step "
                f"[{milliseconds[tenth]:.2f}, {milliseconds[-1 - tenth]:.2f}], "
                f"{sum(len(step.committed_ids) for step in steps) / len(steps):.2f} tokens a step; "
                + ", ".join(f"{part} {ms:.2f}" for part, ms in medians.items())
            )
    for line in (*estimate(generator), *kernels(generator)):
        say(line)
    return check_captures(generator) and accepted


def estimate(generator: JakiroGenerator) -> Iterator[str]:
    """Yield the estimate of `doctor --plan` for this card, if it is a known one."""
    name, shape = generator.device_name.lower(), Shape.of(generator.target.config)
    for key, card in plan.CARDS.items():
        if key in name:
            estimated = plan.estimate(shape, replace(card, fast_float64=generator.target.numerics == "exact"))
            parts = ", ".join(f"{part} {ms:.1f}" for part, ms in estimated.parts.items())
            yield (
                f"estimate for {card.name}: {placement.gigabytes(estimated.needed[16])}; plain "
                f"{estimated.plain_ms:.1f} ms, drafted {estimated.drafted_ms:.1f} ms: {parts}"
            )


def kernels(generator: JakiroGenerator) -> Iterator[str]:
    """Yield the time of the longest kernels, per step of a plain and of a drafted answer."""
    if generator.target.device.type != "cuda":
        return
    for method in (PLAIN.name, DEFAULT.name):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
            steps = len(answer(generator, PROMPTS[1], SamplingParams(max_new_tokens=16), method).steps)
        events = [event for event in profiled.key_averages() if event.self_device_time_total > 0]
        busy = sum(event.self_device_time_total for event in events) / 1000 / steps
        count = sum(event.count for event in events) / steps
        yield f"{method}: device busy {busy:.2f} ms and {count:.0f} kernels a step, prompt included"
        for event in sorted(events, key=lambda event: -event.self_device_time_total)[:KERNELS_SHOWN]:
            ms = event.self_device_time_total / 1000 / steps
            yield f"  {ms:7.3f} ms {event.count / steps:7.1f} × {event.key[:100]}"


def race(arguments: argparse.Namespace) -> bool:
    """Run typical actions on the page: a race, other numerics, a long prompt, a stopped answer, and a race again."""
    generator = load_generator(arguments)
    other_numerics = generator.with_numerics(next(name for name in NUMERICS if name != generator.target.numerics))
    sampling = SamplingParams(1.0, seed=3, max_new_tokens=arguments.new_tokens)
    succeeded = True
    for name, runner, prompt, most_steps in (
        ("a race", generator, PROMPTS[0], None),
        (f"numerics {other_numerics.target.numerics}", other_numerics, PROMPTS[0], None),
        ("a long prompt", generator, "word " * arguments.long_prompt, None),
        ("a stopped race", generator, PROMPTS[0], 3),
        ("a race again", generator, PROMPTS[0], None),
    ):
        running = runner.race(prompt, sampling)
        for number, _ in enumerate(running, 1):
            if number == most_steps:
                break
        running.close()
        texts = [tuple(trace.token_ids) for trace in running.traces.values()]
        same = len(set(texts)) == 1
        say(f"{name}: {[len(text) for text in texts]} tokens" + ("" if most_steps else f", the same text: {same}"))
        if most_steps is None and runner.target.bit_identical:
            succeeded &= same
    return succeeded & check_captures(generator) & check_captures(other_numerics)


def suite(arguments: argparse.Namespace) -> bool:
    """Run test files, each in a process of its own: an illegal access in one leaves the others unaffected."""
    paths = [Path(name) for name in arguments.files]
    files = [file for path in paths for file in ([path] if path.is_file() else sorted(path.glob("test_*.py")))]

    def run(file: Path) -> bool:
        command = (sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not rare", file)
        variables = {"JAKIRO_TEST_DEVICE": arguments.device, "OMP_NUM_THREADS": "1"}
        try:
            run = subprocess.run(
                command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=FILE_SECONDS
            )
        except subprocess.TimeoutExpired:
            say(f"TOO LONG {file}")
            return False
        # 5: all tests of the file are deselected
        passed = run.returncode in (0, 5)
        say(f"{'passed' if passed else 'FAILED'} {file}: {run.stdout.strip().splitlines()[-1:]}")
        if not passed:
            say(run.stdout[-3000:])
        return passed

    with ThreadPoolExecutor(min(10, os.cpu_count() or 1)) as pool:
        return all(list(pool.map(run, files)))


COMMANDS: dict[str, Callable[[argparse.Namespace], bool]] = {
    command.__name__: command for command in (environment, ceilings, identity, costs, race, suite)
}


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure one device.")
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("files", nargs="*", help="test files or folders of `suite`")
    parser.add_argument("--shape", choices=SHAPES, help="shape of a pair with random weights")
    parser.add_argument("--target", help="target to load instead; the default pair if neither is named")
    parser.add_argument("--head", help="draft head to load with it")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--numerics", choices=NUMERICS)
    parser.add_argument("--tokens", type=int, default=20_000, help="tokens to compare")
    parser.add_argument("--new-tokens", type=int, default=64, help="length of answers")
    parser.add_argument("--long-prompt", type=int, default=300, help="words of a long prompt")
    arguments = parser.parse_intermixed_args()
    return int(not COMMANDS[arguments.command](arguments))


if __name__ == "__main__":
    sys.exit(main())
