"""What this machine's processor is called, and how much of it this process may use. No torch."""

import os
import platform
from pathlib import Path


def processor_name() -> str:
    """The processor's model where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def num_cores() -> int | None:
    """Cores that this process may run on, which in a container can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
