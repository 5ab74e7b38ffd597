"""Faults that the tests must notice: `python -m tests.mutants [--only NAME]`, or `make mutants`.

Each fault of `tests/faults.py` and `tests/gpu_faults.py` is made in a copy of the tree; at least one of the tests it
names must fail there. A fault whose place is not found exactly once fails too, so that the lists stay true while the
code moves.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.faults import FAULTS, ROOT, Fault
from tests.gpu_faults import GPU_FAULTS

# pytest's exit status where all tests passed, and where tests ran and some failed
PASSED, FAILED = 0, 1


def notice(fault: Fault, copy: Path) -> str | None:
    """Makes the fault in a copy of the tree, runs its tests and mends it; returns what is wrong, None where noticed."""
    if fault.places != 1:
        return f"its place in {fault.file} is found {fault.places} times"
    file = copy / fault.file
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole.replace(fault.right, fault.wrong), encoding="utf-8")
    status, output = run(fault.tests, copy)
    file.write_text(whole, encoding="utf-8")
    # A process that a signal ended has noticed too: nobody takes that for green
    if status < 0 or (status == FAILED and " failed" in output.splitlines()[-1]):
        return None
    return "all tests pass" if status == PASSED else f"its tests did not run:\n{output}"


def run(tests: Iterable[str], folder: Path) -> tuple[int, str]:
    """pytest's exit status and what it wrote; what is rare has no say, so that `make test` notices each fault."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not rare", "-p", "no:cacheprovider", *tests]
    result = subprocess.run(pytest, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return result.returncode, result.stdout


def copy_to(folder: Path) -> None:
    """Copies the checkout as it is now, without what git ignores."""
    for name in tracked_files():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)


def tracked_files() -> Iterator[Path]:
    """Paths of the checkout's files, new ones included that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    return (Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file())


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks that the tests notice known faults.")
    parser.add_argument("--only", metavar="NAME", help="faults whose name contains this")
    wanted = parser.parse_args().only or ""
    chosen = [fault for fault in (*FAULTS, *GPU_FAULTS) if wanted in fault.name]
    if not chosen:
        parser.error(f"no fault's name contains {wanted!r}")
    missed = 0
    with tempfile.TemporaryDirectory(prefix="jakiro-mutants-") as folder:
        copy = Path(folder)
        copy_to(copy)
        status, output = run(sorted({test for fault in chosen for test in fault.tests}), copy)
        if status != PASSED:
            print(f"Without any fault the tests must pass:\n{output}")  # noqa: T201
            return 1
        for fault in chosen:
            start = time.perf_counter()
            wrong = notice(fault, copy)
            missed += wrong is not None
            seconds = time.perf_counter() - start
            print(f"{'MISSED ' if wrong else 'noticed'} {fault.name} ({seconds:.0f} s)", flush=True)  # noqa: T201
            if wrong:
                print(f"  {wrong}", flush=True)  # noqa: T201
    print(f"{len(chosen) - missed} of {len(chosen)} faults noticed")  # noqa: T201
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
