"""Programs that compute beside a benchmark, so that figures count on shared machines too."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def busy_neighbours(count: int) -> Iterator[None]:
    """Runs so many processes that do nothing but compute, one core's worth each, until the block ends."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
