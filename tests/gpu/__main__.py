"""Run the items of one call, or of all calls: `python -m tests.gpu first|second|third|all`; see README.md here."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.gpu import carried
from tests.gpu.calls import CALLS, SECONDS, TINY, Setup, Sizes
from tests.gpu.items import DONE, run_items


def main() -> int:
    parser = argparse.ArgumentParser(description="Test and measure a GPU, one item after another.")
    parser.add_argument("call", choices=(*CALLS, "all"), help="all: first and second, without a limit in total")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu"), help="folder for results")
    scratch = Path(tempfile.gettempdir(), "jakiro_gpu")
    parser.add_argument("--scratch", type=Path, default=scratch, help="folder for models and heads")
    parser.add_argument("--seconds", type=float, help="limit of the whole call")
    parser.add_argument("--tiny", action="store_true", help="rehearse with tiny sizes")
    arguments = parser.parse_args()
    if arguments.device == "cuda" and not _has_gpu():
        print("torch finds no CUDA device; to rehearse on a CPU add --device cpu --tiny.")  # noqa: T201
        return 1
    start = time.perf_counter()
    environment = carried.unpack(Path.cwd(), arguments.scratch)
    os.environ.update(environment)
    pair: tuple[str, ...] = ()
    if arguments.tiny:
        folder = arguments.scratch / "pair"
        code = "import sys, pathlib, tests.support as s; s.save_pair(pathlib.Path(sys.argv[1]))"
        subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
        pair = ("--target", str(folder / "target"), "--head", str(folder / "head"))
    calls = ("first", "second") if arguments.call == "all" else (arguments.call,)
    unlimited = arguments.call == "all" or arguments.tiny
    seconds = arguments.seconds or (float("inf") if unlimited else SECONDS[arguments.call])
    seconds -= time.perf_counter() - start
    results = arguments.out / arguments.call
    setup = Setup(arguments.device, results, arguments.scratch, TINY if arguments.tiny else Sizes(), pair)
    items = [item for call in calls for item in CALLS[call](setup)]
    succeeded = True
    for result in run_items(items, results, seconds, archive=arguments.out / f"{arguments.call}.tgz"):
        print(f"## {result.name}: {result.state}, {result.seconds:.0f} s\n{result.last_lines}", flush=True)  # noqa: T201
        succeeded &= result.state == DONE
    return int(not succeeded)


def _has_gpu() -> bool:
    """Return whether torch finds a GPU; tested in a subprocess, so that this process allocates no memory there."""
    return subprocess.run([sys.executable, "-c", "import torch; exit(not torch.cuda.is_available())"]).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
