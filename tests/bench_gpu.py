"""Everything that is to be known about a GPU, one command after another: `make bench-gpu`.

Those come first that find most. A command that fails or takes longer than its limit does not hold up the next one. What
succeeded is not repeated, so an interrupted run goes on where it stopped. The end is one page, `summary.md`, beside the
commands' own output. With `--offline` nothing is fetched or read: pairs are random weights of true shapes, each command
ends within 9 minutes and all within 20.
"""

import argparse
import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path("runs/gpu")
LIMIT_SECONDS = 600
# Offline, for one command and for all of them
OFFLINE_SECONDS, OFFLINE_IN_ALL = 540, 1200
LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class Step:
    """One command; `says` is what its result means."""

    name: str
    says: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended: "done", "failed", "took too long" or "no time left"; `last` are the last lines it wrote."""

    name: str
    how: str
    seconds: float
    last: str


def steps(offline: bool = False, python: str = sys.executable) -> list[Step]:
    """The commands, those first that find most."""
    work, jakiro = (python, "-m", "tests.gpu_work"), (python, "-m", "jakiro")
    large = ("--offline", "--shape", "vicuna-7b-v1.3") if offline else ("--target", "vicuna-7b-v1.3")
    small = ("--offline",) if offline else ()
    here = ("env", "JAKIRO_TEST_DEVICE=cuda")

    def tests(name: str, says: str, *arguments: str, before: tuple[str, ...] = ()) -> Step:
        return Step(name, says, (*here, *before, python, "-m", "pytest", "-q", "-m", "not rare", *arguments))

    on_gpu = "tests/backends/test_cuda.py"
    found = [
        Step("environment", "Which card, torch and memory.", (*work, "environment")),
        tests("one-read", "A step waits for the device once, captured and not.", on_gpu, "-k", "waits_for or planted"),
    ]
    found += [
        Step("7b-exact", "The costs of a 7B pair, exact.", (*work, "bench", *large, "--numerics", "exact")),
        Step("7b-fast", "The same, fast.", (*work, "bench", *large, "--numerics", "fast")),
        Step("identity", "Drafted text is plain decoding's, over 20,000 tokens.", (*work, "identity", *small)),
        Step("page", "A race, the other numerics, a long prompt, Stop.", (*work, "page", *large)),
    ]
    if shutil.which("nsys"):
        nsys = ("nsys", "profile", "--cuda-graph-trace=node", "--force-overwrite=true", "-o", str(FOLDER / "profile"))
        found.append(Step("profile", "Where a step's time goes, for Nsight Systems.", (*nsys, *work, "bench", *small)))
    for folder in ("graphs", "target", "heads", "engine", "methods"):
        found.append(tests(f"tests-{folder}", f"The suite's {folder} on the GPU.", f"tests/{folder}"))
    if shutil.which("compute-sanitizer"):
        sanitizer = ("compute-sanitizer", "--error-exitcode", "1")
        says = "A slot that is dropped beside an answer leaves the answer's memory alone."
        found.append(tests("dropped-slot", says, on_gpu, "-k", "dropped", before=sanitizer))
    if offline:
        return [*found, tests("training", "Training with checkpoints and resume.", "tests/training/test_trainer.py")]
    corpus, state = str(FOLDER / "corpus"), ("--out", str(FOLDER / "head"), "--work", str(FOLDER / "work"))
    train = (*jakiro, "train", corpus, *state, "--device", "cuda", "--checkpoint-minutes", "0.1", "--max-steps")
    bench = (*jakiro, "bench", "--device", "cuda", "--limit", "40", "--nodes", "auto,24", "--methods")
    measured = ("autoregressive,autoregressive-fast,jakiro,hf-generate", "--out", str(FOLDER / "bench"))
    return [
        *found,
        Step("bench", "The default pair beside transformers' own decoding.", (*bench, *measured)),
        Step("corpus", "Text to train on.", (*jakiro, "corpus", corpus, "--rows", "64", "--device", "cuda")),
        Step("train", "30 steps of training with checkpoints.", (*train, "30")),
        Step("resume", "30 more, from the last checkpoint.", (*train, "60")),
    ]


def run(step: Step, folder: Path, limit: float) -> Result:
    """Runs one command; all it writes goes to a file of its own."""
    start, log = time.perf_counter(), folder / f"{step.name}.log"
    with log.open("w", encoding="utf-8") as file:
        try:
            status = subprocess.run(step.command, stdout=file, stderr=subprocess.STDOUT, timeout=limit).returncode
            how = "done" if status == 0 else "failed"
        except subprocess.TimeoutExpired:
            how = "took too long"
        except OSError as error:
            file.write(str(error))
            how = "failed"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return Result(step.name, how, round(time.perf_counter() - start, 1), "\n".join(lines[-LAST_LINES:]))


def run_all(
    wanted: Sequence[Step], folder: Path, limit: float = LIMIT_SECONDS, in_all: float = math.inf
) -> list[Result]:
    """Runs what is not done yet, writes the page after each command, and returns all results.

    Args:
        limit, in_all: seconds that one command, and all of them, may take.
    """
    until = time.perf_counter() + in_all
    folder.mkdir(parents=True, exist_ok=True)
    kept, results = folder / "results.json", []
    before = {each["name"]: Result(**each) for each in json.loads(kept.read_text())} if kept.is_file() else {}
    for number, step in enumerate(wanted, 1):
        known = before.get(step.name)
        print(f"{number} of {len(wanted)}: {step.name}", flush=True)  # noqa: T201
        left = until - time.perf_counter()
        if known is not None and known.how == "done":
            results.append(known)
        else:
            results.append(
                run(step, folder, min(limit, left)) if left > 0 else Result(step.name, "no time left", 0, "")
            )
        later = [each for name, each in before.items() if name not in {result.name for result in results}]
        kept.write_text(json.dumps([asdict(each) for each in (*results, *later)], indent=1), encoding="utf-8")
        (folder / "summary.md").write_text(page(wanted, results), encoding="utf-8")
    return results


def page(wanted: Sequence[Step], results: Sequence[Result]) -> str:
    """The summary in Markdown."""
    by_name = {result.name: result for result in results}
    lines = ["# What this GPU does", "", "| Command | Result | Seconds | What it says |", "| --- | --- | --- | --- |"]
    for step in wanted:
        result = by_name.get(step.name)
        how, seconds = (result.how, f"{result.seconds:.0f}") if result else ("not run yet", "")
        lines.append(f"| {step.name} | {how} | {seconds} | {step.says} |")
    for result in results:
        lines += ["", f"## {result.name}: {result.how}", "", "```", result.last, "```"]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Measures a GPU, one command after another.")
    parser.add_argument("--offline", action="store_true", help="no network, no files: random weights of true shapes")
    parser.add_argument("--limit", type=float, help="seconds that one command may take")
    arguments = parser.parse_args()
    import torch

    if not torch.cuda.is_available():
        print(  # noqa: T201
            f"There is no GPU here: torch {torch.__version__} finds no CUDA device, so nothing was run and nothing is "
            "known about one. What can be rehearsed without: pytest -k 'device_tag or poison or out_of_memory'."
        )
        return 1
    offline = arguments.offline
    limit = arguments.limit or (OFFLINE_SECONDS if offline else LIMIT_SECONDS)
    results = run_all(steps(offline), FOLDER, limit, OFFLINE_IN_ALL if offline else math.inf)
    print((FOLDER / "summary.md").read_text(encoding="utf-8"))  # noqa: T201
    return int(any(result.how != "done" for result in results))


if __name__ == "__main__":
    sys.exit(main())
