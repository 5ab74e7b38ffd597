"""Everything that is to be known about a GPU, one command after another: `make bench-gpu`.

A command that fails or takes longer than its limit does not hold up the next one. What succeeded is not repeated, so an
interrupted run goes on where it stopped. The end is one page, `summary.md`, beside the commands' own output.
"""

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

FOLDER = Path("runs/gpu")
LIMIT_SECONDS = 600
LAST_LINES = 12


@dataclass(frozen=True, slots=True)
class Step:
    """One command; `says` is what its result means."""

    name: str
    says: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended: "done", "failed" or "took too long"; `last` are the last lines it wrote."""

    name: str
    how: str
    seconds: float
    last: str


def steps(python: str = sys.executable) -> list[Step]:
    """The commands, most important first."""
    jakiro = (python, "-m", "jakiro")
    bench = (*jakiro, "bench", "--device", "cuda", "--limit", "40", "--max-new-tokens", "128", "--methods")
    plain, both = "autoregressive,autoregressive-fast", "autoregressive,jakiro"
    tests = (python, "-m", "pytest", "-q", "tests/graphs", "tests/target", "tests/engine", "tests/heads")
    scaled = (python, "-m", "lab.scaling")
    on_gpu = ("--device", "cuda", "--limit", "40", "--methods")
    compared = ("--target-tokens", "100000", "--state", str(FOLDER / "identical.jsonl"))
    train = ("--device", "cuda", "--max-steps", "30", "--checkpoint-minutes", "0.1")

    def measured(name: str, says: str, methods: str, *more: str) -> Step:
        return Step(name, says, (*bench, methods, *more, "--out", str(FOLDER / name)))

    def with_costs_of(scale: str, name: str, says: str, methods: str, *more: str) -> Step:
        return Step(name, says, (*scaled, scale, *on_gpu, methods, *more, "--out", str(FOLDER / name)))

    found = [
        Step("tests", "Lanes, graphs, target and head on the GPU.", ("env", "JAKIRO_TEST_DEVICE=cuda", *tests)),
        Step(
            "identical",
            "Drafted text is plain decoding's, over 100,000 tokens.",
            (*jakiro, "bench", "--device", "cuda", "--check-identical", *compared),
        ),
        with_costs_of("7b", "7b-exact", "The costs of a 7B pair, exact.", f"{plain},jakiro"),
        with_costs_of("7b", "7b-fast", "The same, fast.", both, "--numerics", "fast"),
        with_costs_of("7b-random", "7b-true", "Passes of a 7B pair's true shape.", both, "--nodes", "24"),
        measured("exact", "The default pair, exact.", f"{plain},jakiro,hf-generate", "--nodes", "auto,24"),
        measured("fast", "The same, fast.", both, "--nodes", "auto,24", "--numerics", "fast"),
        measured("no-graphs", "The same without graphs.", f"{plain},jakiro", "--nodes", "auto", "--no-graphs"),
    ]
    if shutil.which("nsys"):
        profile = (
            "nsys",
            "profile",
            "--cuda-graph-trace=node",
            "--force-overwrite=true",
            "-o",
            str(FOLDER / "profile"),
        )
        asked = ("generate", "--device", "cuda", "--prompt", "Why is the sky blue?", "--max-new-tokens", "64")
        found.append(Step("profile", "Where a step's time goes, for Nsight Systems.", (*profile, *jakiro, *asked)))
    corpus = str(FOLDER / "corpus")
    return [
        *found,
        Step("corpus", "Text to train on.", (*jakiro, "corpus", corpus, "--rows", "64", "--device", "cuda")),
        Step(
            "train",
            "30 steps of training with checkpoints.",
            (*jakiro, "train", corpus, "--out", str(FOLDER / "head"), "--work", str(FOLDER / "work"), *train),
        ),
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


def run_all(wanted: Sequence[Step], folder: Path, limit: float = LIMIT_SECONDS) -> list[Result]:
    """Runs what is not done yet, writes the page after each command, and returns all results."""
    folder.mkdir(parents=True, exist_ok=True)
    kept, results = folder / "results.json", []
    before = {each["name"]: Result(**each) for each in json.loads(kept.read_text())} if kept.is_file() else {}
    for number, step in enumerate(wanted, 1):
        known = before.get(step.name)
        print(f"{number} of {len(wanted)}: {step.name}", flush=True)  # noqa: T201
        results.append(known if known is not None and known.how == "done" else run(step, folder, limit))
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
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="seconds that one command may take")
    results = run_all(steps(), FOLDER, parser.parse_args().limit)
    print((FOLDER / "summary.md").read_text(encoding="utf-8"))  # noqa: T201
    return int(any(result.how != "done" for result in results))


if __name__ == "__main__":
    sys.exit(main())
