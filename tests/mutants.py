"""Mutation tests with known faults: `python -m tests.mutants [--only NAME]`, or `make mutants`.

Each fault of `tests/faults.py` is planted in a separate process before tests are collected, and the test that it names
must fail. A place that no longer exists is an error, so that the list follows the code. `JAKIRO_FAULT` names the fault;
every Python process of such a run imports this file, which plants it.
"""

import argparse
import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.faults import FAULTS, ROOT, Fault

# Exit status of pytest if all tests pass, and if some fail
PASSED, FAILED = 0, 1
VARIABLE = "JAKIRO_FAULT"
SOURCES = ROOT / "jakiro" / "backends" / "native" / "csrc"


def find_place(fault: Fault) -> tuple[object, str, object]:
    """Return the object that holds a fault's place, the attribute's name and its value.

    Raises:
        ImportError, AttributeError: the place does not exist.
    """
    module, _, path = fault.place.partition(":")
    holder, (*outer, name) = importlib.import_module(module), path.split(".")
    for attribute in outer:
        holder = getattr(holder, attribute)
    return holder, name, vars(holder)[name] if name in vars(holder) else getattr(holder, name)


def body_of(fault: Fault) -> tuple[str, int, int]:
    """Return the text of a C file, and the start and end of the body of the fault's function.

    Raises:
        AttributeError: the function does not exist.
    """
    file, _, name = fault.place.partition(":")
    text = (SOURCES / file).read_text(encoding="utf-8")
    head = re.search(rf"^[a-z][^;{{}}()]*\b{name}\([^;{{}}]*\)\s*\{{", text, re.MULTILINE)
    if head is None:
        raise AttributeError(f"{file} has no function {name}")
    depth, end = 1, head.end()
    while depth:
        depth += {"{": 1, "}": -1}.get(text[end], 0)
        end += 1
    return text, head.end(), end - 1


def plant(fault: Fault) -> None:
    """Plant a fault in this process, in every module that has already imported the correct object."""
    if isinstance(fault.wrong, str):
        from jakiro.backends.native import building

        text, start, end = body_of(fault)
        copy = Path(tempfile.mkdtemp(prefix="jakiro-csrc-"))
        shutil.copytree(SOURCES, copy, dirs_exist_ok=True)
        (copy / fault.place.partition(":")[0]).write_text(f"{text[:start]} {fault.wrong} {text[end:]}", "utf-8")
        building._FOLDER = copy
        return
    holder, name, right = find_place(fault)
    wrong = fault.wrong(right)
    setattr(holder, name, wrong)
    if getattr(right, "__module__", None) == getattr(holder, "__name__", ""):
        for module in [module for key, module in sys.modules.items() if key.partition(".")[0] in ("jakiro", "app")]:
            for alias in [key for key, current in vars(module).items() if current is right]:
                setattr(module, alias, wrong)


if VARIABLE in os.environ:
    plant(next(fault for fault in FAULTS if fault.name == os.environ[VARIABLE]))


def run(tests: Iterable[str], fault: Fault | None) -> tuple[int, str]:
    """Return pytest's exit status and output. Rare tests are left out, because `make test` must detect each fault."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not rare", "-p", "no:cacheprovider", *tests]
    with tempfile.TemporaryDirectory(prefix="jakiro-mutants-") as folder:
        # Processes that tests start import the fault too
        (Path(folder) / "sitecustomize.py").write_text("import tests.mutants\n", encoding="utf-8")
        variables = {} if fault is None else {VARIABLE: fault.name, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        result = subprocess.run(
            pytest,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | variables,
        )
    return result.returncode, result.stdout


def check_fault(fault: Fault) -> str | None:
    """Return a description of the problem, or None if the test detects the fault."""
    status, output = run([fault.test], fault)
    # A process ended by a signal also counts as a failed test
    if status < 0 or (status == FAILED and " failed" in output.splitlines()[-1]):
        return None
    return "all tests pass" if status == PASSED else f"its tests did not run:\n{output}"


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks that the tests notice known faults.")
    parser.add_argument("--only", metavar="NAME", help="only faults with this text in their name")
    pattern = parser.parse_args().only or ""
    chosen = [fault for fault in FAULTS if pattern in fault.name]
    if not chosen:
        parser.error(f"no fault's name contains {pattern!r}")
    missed = 0
    status, output = run(sorted({fault.test for fault in chosen}), None)
    if status != PASSED:
        print(f"Without any fault the tests must pass:\n{output}")  # noqa: T201
        return 1
    for fault in chosen:
        start = time.perf_counter()
        problem = check_fault(fault)
        missed += problem is not None
        seconds = time.perf_counter() - start
        print(f"{'MISSED ' if problem else 'noticed'} {fault.name} ({seconds:.0f} s)", flush=True)  # noqa: T201
        if problem:
            print(f"  {problem}", flush=True)  # noqa: T201
    print(f"{len(chosen) - missed} of {len(chosen)} faults noticed")  # noqa: T201
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
