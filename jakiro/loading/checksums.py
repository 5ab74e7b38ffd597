"""The hash of a folder's weights: computed once, remembered in the user's cache until a file's size or time changes.

So a start reads no file twice, and contents that changed under the same size and time go unnoticed until somebody
looks: `damaged_since` computes the hash again.
"""

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from jakiro.loading.files import opened
from jakiro.loading.gguf_file import parts_of
from jakiro.system import cache_folder, write_atomically

log = logging.getLogger("jakiro")
# Small weights are hashed within it; a 7B target's 13 GB take many seconds
PATIENCE_SECONDS = 1.0


def weights_sha256(folder: Path) -> str | None:
    """The hash of a folder's safetensors weights or of a GGUF file, see `hash_weights`; None where there are none.

    Raises:
        ValueError: a file was cut, or is no safetensors file.
    """
    stamp = _stamp(folder)
    if not stamp:
        return None
    kept = _kept(folder)
    known = _read(kept)
    if known is not None and known["files"] == stamp:
        return known["sha256"]
    digest = hash_weights(folder)
    # A cache that takes nothing costs this time at every start, and no more
    with suppress(OSError):
        write_atomically(kept, json.dumps({"folder": str(folder.resolve()), "files": stamp, "sha256": digest}))
    return digest


def hashed_aside(folder: Path) -> Callable[[], str | None]:
    """`weights_sha256`, waited for a moment only: what it returns gives the hash, None as long as it isn't known."""
    found: list[str | None] = []

    def work() -> None:
        try:
            found.append(weights_sha256(folder))
        except (OSError, ValueError) as error:
            log.warning("The weights in %s could not be hashed: %s", folder, error)

    thread = threading.Thread(target=work, name="hash-weights", daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    return lambda: found[0] if found else None


def damaged_since(folder: Path) -> bool:
    """Whether weights are others than when they were hashed, though their sizes and times are the same.

    Then the hash is forgotten, so that the next start computes it.
    """
    kept = _kept(folder)
    known = _read(kept)
    if known is None or known["files"] != _stamp(folder):
        return False
    try:
        damaged = hash_weights(folder) != known["sha256"]
    except ValueError:
        damaged = True
    if damaged:
        with suppress(OSError):
            kept.unlink()
    return damaged


def hashed_folders() -> Iterator[Path]:
    """The folders whose hashes are remembered, as far as they are still there."""
    for kept in sorted((cache_folder() / "hashes").glob("*.json")):
        known = _read(kept)
        if known is not None and Path(known["folder"]).exists():
            yield Path(known["folder"])


def _stamp(folder: Path) -> list[list]:
    """Real path, size and time of each file."""
    files = parts_of(folder) if folder.is_file() else sorted(folder.glob("*.safetensors"))
    return [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]


def _kept(folder: Path) -> Path:
    """Where the hash of a folder is remembered."""
    return cache_folder() / "hashes" / f"{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:32]}.json"


def _read(kept: Path) -> dict | None:
    try:
        known = json.loads(kept.read_text(encoding="utf-8"))
        if all(isinstance(known[name], kind) for name, kind in (("folder", str), ("files", list), ("sha256", str))):
            return known
    except OSError:
        return None
    except (ValueError, KeyError, TypeError):
        pass
    log.warning("The stored hash in %s is damaged or incomplete; hashing the weights again.", kept)
    return None


def hash_weights(folder: Path) -> str:
    """Of names, types, shapes and bytes, in order of the names: it doesn't depend on how tensors are spread over files.
    Of a GGUF file it is the SHA-256 of its bytes.

    Raises:
        ValueError: a file was cut, or is no safetensors file.
    """
    import torch

    if folder.is_file():
        digest = hashlib.sha256()
        for part in parts_of(folder):
            with part.open("rb") as file:
                hashlib.file_digest(file, lambda: digest)
        return digest.hexdigest()
    files = [opened(path, "pt") for path in sorted(folder.glob("*.safetensors"))]
    holders = {name: file for file in files for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    digest = hashlib.sha256()
    for name, file in sorted(holders.items(), key=lambda item: item[0]):
        about = file.get_slice(name)
        digest.update(f"{name} {about.get_dtype()} {about.get_shape()}\n".encode())
        digest.update(file.get_tensor(name).flatten().view(torch.uint8).numpy())
    return digest.hexdigest()
