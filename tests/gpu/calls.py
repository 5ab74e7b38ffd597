"""The items of each call, in order of importance."""

import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.gpu.items import Item

CUDA_TESTS = "tests/backends/test_cuda.py"
# Tests with exact results on a GPU, run in one process per file
SUITE = (
    "tests/models", "tests/heads", "tests/decode", "tests/drafters", "tests/core", "tests/backends/test_buffers.py",
    "tests/training/test_trainer.py", "tests/test_generator.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sizes:
    """Amount of work of each item; the fields of `TINY` suit a rehearsal on a CPU.

    Attributes:
        large, small: shapes of pairs with random weights, see `work.SHAPES`.
        tiny_tokens, small_tokens, pair_tokens: tokens compared between plain and drafted texts.
        prompts, new_tokens: of each benchmark.
        suite: test files or folders.
        rows, steps: of the corpus and of training.
        time_factor: multiplies the time limits of all items.
    """

    large: str = "vicuna-7b-v1.3"
    small: str = "smollm2-135m-instruct"
    tiny_tokens: int = 3000
    small_tokens: int = 20_000
    pair_tokens: int = 8000
    prompts: int = 24
    new_tokens: int = 64
    suite: tuple[str, ...] = SUITE
    rows: int = 20_000
    training: tuple[str, ...] = ("--time-budget", "2.5", "--batch-tokens", "8192", "--precision", "bfloat16")
    time_factor: float = 1.0


TINY = Sizes(
    "tiny", "tiny", 200, 200, 200, 2, 8, ("tests/core/test_verify.py",), 6,
    ("--max-steps", "2", "--batch-tokens", "256", "--validation-rows", "1"), 10.0,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setup:
    """Device, folders and sizes of a call.

    Attributes:
        pair: options of the command line that choose target and head; empty for the default pair.
        results: folder of logs and tables. scratch: folder of large files that are not brought back.
    """

    device: str
    results: Path
    scratch: Path
    sizes: Sizes = field(default_factory=Sizes)
    pair: tuple[str, ...] = ()
    python: str = sys.executable

    def item(self, name: str, question: str, seconds: float, *command: str) -> Item:
        return Item(name, question, command, seconds * self.sizes.time_factor)

    def work(self, command: str, *options: object) -> tuple[str, ...]:
        return (self.python, "-m", "tests.gpu.work", command, "--device", self.device, *map(str, options))

    def tests(self, *options: str) -> tuple[str, ...]:
        pytest = (self.python, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "-m", "not rare")
        return ("env", f"JAKIRO_TEST_DEVICE={self.device}", *pytest, *options)

    def jakiro(self, command: str, *options: object) -> tuple[str, ...]:
        return (self.python, "-m", "jakiro", command, *map(str, options), "--device", self.device)

    def bench(self, name: str, *options: str) -> tuple[str, ...]:
        sizes = ("--nodes", "auto", "--limit", self.sizes.prompts, "--max-new-tokens", self.sizes.new_tokens)
        return self.jakiro("bench", *self.pair, *sizes, *options, "--out", self.results / name)


def first_call(setup: Setup) -> list[Item]:
    """Return the items that need no files: correctness of captured passes, and the costs of a 7B pair."""
    sizes, item = setup.sizes, setup.item
    large = ("--shape", sizes.large, "--numerics")
    return [
        item("environment", "Which card, torch and packages?", 30, *setup.work("environment")),
        item(
            "one-read", "Does a step wait for the device once?", 60,
            *setup.tests(CUDA_TESTS, "-k", "waits_for or planted"),
        ),
        item(
            "identity-tiny", "Does CUDA accept every capture, and do drafted texts equal plain decoding?", 60,
            *setup.work("identity", "--shape", "tiny", "--tokens", sizes.tiny_tokens),
        ),
        item("7b-exact", "How long are steps of a 7B pair, exact?", 75, *setup.work("costs", *large, "exact")),
        item("7b-fast", "The same, fast.", 75, *setup.work("costs", *large, "fast")),
        item("cuda-tests", "Do the tests for a GPU pass?", 90, *setup.tests(CUDA_TESTS, "--maxfail", "12")),
        item("ceilings", "How fast are copies, products and kernels?", 30, *setup.work("ceilings")),
        item(
            "race", "Do a race, other numerics, a long prompt and a stopped answer work?", 60,
            *setup.work("race", "--shape", sizes.small),
        ),
        item(
            "identity", "The same texts at the default pair's shape?", 120,
            *setup.work("identity", "--shape", sizes.small, "--tokens", sizes.small_tokens),
        ),
    ]  # fmt: skip


def second_call(setup: Setup) -> list[Item]:
    """Return the items of the default pair, followed by the exact tests."""
    sizes, item = setup.sizes, setup.item
    prompt = ("--prompt", "Why is the sky blue?", "--max-new-tokens", sizes.new_tokens)
    methods = ("--methods", "autoregressive,jakiro,jakiro+prompt_lookup,hf-generate")
    return [
        item("answer", "Does the pair load and answer?", 60, *setup.jakiro("generate", *setup.pair, *prompt)),
        item("bench", "Speed compared with plain decoding and transformers.", 110, *setup.bench("bench", *methods)),
        item(
            "identity-pair", "Do drafted texts equal plain decoding?", 60,
            *setup.work("identity", *setup.pair, "--tokens", sizes.pair_tokens),
        ),
        item(
            "bench-fast", "The same speeds with fast numerics.", 60,
            *setup.bench("bench-fast", "--numerics", "fast", "--methods", "autoregressive,jakiro"),
        ),
        item("suite", "Do the exact tests pass, one process per file?", 150, *setup.work("suite", *sizes.suite)),
    ]  # fmt: skip


def third_call(setup: Setup) -> list[Item]:
    """Return the items of training: a corpus, a head that continues the default one, and its acceptance."""
    sizes, item = setup.sizes, setup.item
    corpus, head, work = (setup.scratch / name for name in ("corpus", "head", "work"))
    evaluated = ("--limit", sizes.prompts, "--max-new-tokens", sizes.new_tokens)
    target = setup.pair[:2]
    start = ("--init", "smollm2-135m-instruct-decoupled") if not target else ()
    return [
        item(
            "corpus", "How fast is text for training written?", 150,
            *setup.jakiro("corpus", corpus, *target, "--made", "--rows", sizes.rows, "--max-new-tokens", 96),
        ),
        item(
            "train", "How fast does a head learn, and does training resume?", 300,
            *setup.jakiro(
                "train", corpus, *target, *start, "--fusion", "decoupled", "--out", head, "--work", work,
                "--no-report", *sizes.training,
            ),
        ),
        item(
            "acceptance", "Tokens per step of the trained head.", 60,
            *setup.jakiro("evaluate", *target, "--head", head, *evaluated, "--out", setup.results / "acceptance.json"),
        ),
    ]  # fmt: skip


CALLS = {"first": first_call, "second": second_call, "third": third_call}
# Seconds of each call: none may depend on more than ten minutes, and the first two together on more than ten
SECONDS = {"first": 300.0, "second": 300.0, "third": 540.0}
