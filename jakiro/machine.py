"""What this machine's processor is called, and how much of it this process may use. No torch."""

import os
import platform
from pathlib import Path


def processor_name() -> str:
    """The processor's model where the system tells it, else its architecture."""
    return _told("model name") or platform.processor() or platform.machine()


def processor_features() -> str:
    """The instructions it knows, as the system names them; virtual machines hide the model. Empty where untold."""
    return _told("flags", "Features") or ""


def _told(*names: str) -> str | None:
    """What the system says about its first processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(names)), None)


def num_cores() -> int | None:
    """Cores that this process may run on, which in a container can be fewer than there are."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
