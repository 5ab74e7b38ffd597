"""The machine, versions and settings of a measurement. Results without them cannot be compared."""

import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from jakiro.loading.registry import short_name
from jakiro.system import num_cores, package_versions, processor_name

# Keys of `JakiroGenerator.status`
_PAIR_FIELDS = (
    "target", "head", "device", "dtype", "numerics", "bit_identical", "weight_bits", "file_bits", "compiled",
    "draft_precision", "graphs",
)  # fmt: skip


def environment(status: dict) -> dict:
    """Return machine, versions and settings of a generator as plain data.

    Args:
        status: `JakiroGenerator.status`.
    """
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": processor_name(),
        "cores": num_cores(),
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "system": f"{platform.system()} {platform.release()}",
        **package_versions("torch", "transformers"),
        "commit": _git_commit(),
        **{name: status.get(name) for name in _PAIR_FIELDS},
        **{part: short_name(status.get(part)) for part in ("target", "head")},
    }


def weights_in_words(status: dict) -> str:
    """Return the formats of weights and computation in words, such as "weights in bfloat16"."""
    dtype, bits, in_file = (status.get(name) for name in ("dtype", "weight_bits", "file_bits"))
    if in_file is not None:
        return f"the file's own weights, {in_file:.1f} bits each, computed in {dtype}"
    if bits is None or str(bits) in dtype:
        return f"weights in {dtype}"
    return f"weights in {bits} bits, computed in {dtype}"


def _git_commit() -> str | None:
    """Return the checkout's commit, with a plus if tracked files were changed; None outside a checkout."""
    # Without the names of tags
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    try:
        folder = Path(__file__).resolve().parent
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
