"""SHA-256 checksums of model weights, cached until the size or the modification time of a file changes.

A start therefore reads no file twice. It does not notice content that changed under the same size and time;
`is_corrupted` computes the checksum again to find that.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from jakiro.loading.files import open_safetensors
from jakiro.loading.gguf_file import parts_of
from jakiro.system import cache_folder, write_atomically

log = logging.getLogger("jakiro")
# Enough for small weights; a 7B target's 13 GB take many seconds
PATIENCE_SECONDS = 1.0


def weights_sha256(path: Path) -> str | None:
    """Return the checksum of a folder's safetensors weights or of a GGUF file; None if there are none.

    Raises:
        ValueError: a file is truncated or no safetensors file.
    """
    stamp = _stamp(path)
    if not stamp:
        return None
    record_path = _record_path(path)
    record = _read_record(record_path)
    if record is not None and record["files"] == stamp:
        return record["sha256"]
    digest = hash_weights(path)
    # Without a writable cache, every start computes the checksum
    with suppress(OSError):
        write_atomically(record_path, json.dumps({"folder": str(path.resolve()), "files": stamp, "sha256": digest}))
    return digest


def weights_sha256_in_background(path: Path) -> Callable[[], str | None]:
    """Compute `weights_sha256` in a thread and wait `PATIENCE_SECONDS` for it.

    Returns:
        A function that returns the checksum, or None as long as it is unknown.
    """
    results: list[str | None] = []

    def work() -> None:
        try:
            results.append(weights_sha256(path))
        except (OSError, ValueError) as error:
            log.warning("The weights in %s could not be hashed: %s", path, error)

    thread = threading.Thread(target=work, name="hash-weights", daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return lambda: results[0] if results else None


def is_corrupted(path: Path) -> bool:
    """Return whether weights differ from their cached checksum although their sizes and times are unchanged.

    The cached checksum is then removed, so that the next start computes it.
    """
    record_path = _record_path(path)
    record = _read_record(record_path)
    if record is None or record["files"] != _stamp(path):
        return False
    try:
        corrupted = hash_weights(path) != record["sha256"]
    except ValueError:
        corrupted = True
    if corrupted:
        with suppress(OSError):
            record_path.unlink()
    return corrupted


def hashed_folders() -> Iterator[Path]:
    """Yield the existing folders and files that have a cached checksum."""
    for record_path in sorted((cache_folder() / "hashes").glob("*.json")):
        record = _read_record(record_path)
        if record is not None and Path(record["folder"]).exists():
            yield Path(record["folder"])


def hash_weights(path: Path) -> str:
    """Compute the checksum of weights.

    For safetensors, it covers names, types, shapes and bytes in the order of the names, so it does not depend on the
    split into files. For a GGUF file it is the SHA-256 of its bytes.

    Raises:
        ValueError: a file is truncated or no safetensors file.
    """
    import torch

    digest = hashlib.sha256()
    if path.is_file():
        for part in parts_of(path):
            with part.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
        return digest.hexdigest()
    files = [open_safetensors(part, "pt") for part in sorted(path.glob("*.safetensors"))]
    file_of = {name: file for file in files for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    for name, file in sorted(file_of.items(), key=lambda item: item[0]):
        tensor = file.get_slice(name)
        digest.update(f"{name} {tensor.get_dtype()} {tensor.get_shape()}\n".encode())
        digest.update(file.get_tensor(name).flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _stamp(path: Path) -> list[list]:
    """Return real path, size and modification time of each file of the weights."""
    files = parts_of(path) if path.is_file() else sorted(path.glob("*.safetensors"))
    return [[str(file.resolve()), file.stat().st_size, file.stat().st_mtime_ns] for file in files]


def _record_path(path: Path) -> Path:
    return cache_folder() / "hashes" / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]}.json"


def _read_record(record_path: Path) -> dict | None:
    try:
        record = json.loads(record_path.read_text(encoding="utf-8"))
        if all(isinstance(record[name], kind) for name, kind in (("folder", str), ("files", list), ("sha256", str))):
            return record
    except OSError:
        return None
    except (ValueError, KeyError, TypeError):
        pass
    log.warning("The stored hash in %s is damaged or incomplete; hashing the weights again.", record_path)
    return None
