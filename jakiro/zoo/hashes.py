"""The hash of a folder's weights, computed once and kept in the user's cache."""

import hashlib
import json
import logging
import re
from pathlib import Path

from jakiro.system import cache_folder, write_atomically

log = logging.getLogger("jakiro")


def weights_sha256(folder: Path) -> str | None:
    """Hash of the safetensors weights in a folder: names, types, shapes and bytes, in order of the names.

    It doesn't depend on how the tensors are spread over files, and is kept in the user's cache until the files change.
    None where the folder has no safetensors files.
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        return None
    stamp = [[str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns] for path in files]
    kept = cache_folder() / "hashes" / hashlib.sha256(json.dumps(stamp).encode()).hexdigest()
    if kept.is_file():
        digest = kept.read_text(encoding="utf-8", errors="replace")
        if re.fullmatch("[0-9a-f]{64}", digest):
            return digest
        log.warning("The hash of weights in %s is damaged or half written; it is computed anew.", kept)
    digest = _hash_tensors(files)
    write_atomically(kept, digest)
    return digest


def _hash_tensors(files: list[Path]) -> str:
    tensors = {}
    for path in files:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        tensors.update({name: (path, 8 + length, entry) for name, entry in header.items()})
    digest = hashlib.sha256()
    for name in sorted(tensors):
        path, start, entry = tensors[name]
        first, last = entry["data_offsets"]
        digest.update(f"{name} {entry['dtype']} {entry['shape']}\n".encode())
        with path.open("rb") as file:
            file.seek(start + first)
            for position in range(first, last, 1 << 24):
                digest.update(file.read(min(1 << 24, last - position)))
    return digest.hexdigest()
