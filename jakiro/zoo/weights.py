"""A target's config, tokenizer and weights by its name, fetched where they are missing, and the hash of the weights.

Importing this module loads nothing: torch and transformers are imported by the functions that need them.
"""

import hashlib
import json
from pathlib import Path

from jakiro.system import cache_folder, write_atomically
from jakiro.zoo.embedded import embedded_target
from jakiro.zoo.hub import why_not_fetched
from jakiro.zoo.progress import counted
from jakiro.zoo.table import ENTRIES, NO_HEAD, Pair, resolve


def load_config(name: str | None = None):
    """The transformers config of a target, without its weights.

    Raises:
        ValueError: unknown name, or it can't be fetched.
    """
    from transformers import AutoConfig

    pair = resolve(name, NO_HEAD)
    return _fetched(pair, lambda: AutoConfig.from_pretrained(_prepared(pair)))


def load_tokenizer(name: str | None = None):
    """The tokenizer of a target.

    Raises:
        ValueError: unknown name, or it can't be fetched.
    """
    from transformers import AutoTokenizer

    pair = resolve(name, NO_HEAD)
    return _fetched(pair, lambda: AutoTokenizer.from_pretrained(_prepared(pair)))


def load_target(name: str | None = None, device="cpu", dtype="bfloat16", **options):
    """A target ready for inference.

    Args:
        name: as in `resolve`.
        device, dtype: torch's, or their names.
        options: for transformers' `from_pretrained`; with a `device_map` the model stays where that puts it.

    Returns:
        (model, tokenizer, sha256 of the weights or None where they are no safetensors files).

    Raises:
        ValueError: unknown name, or it can't be fetched.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    pair = resolve(name, NO_HEAD)
    source = _prepared(pair)
    disable_progress_bar()
    with counted():
        model = _fetched(pair, lambda: AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options))
    model = (model if "device_map" in options else model.to(device)).eval().requires_grad_(False)
    return model, load_tokenizer(name), weights_sha256(_local_folder(source))


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
        return kept.read_text()
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


def _fetched(pair: Pair, load):
    try:
        return load()
    except (OSError, ValueError) as error:
        raise ValueError(why_not_fetched("target model", pair.target_path_or_hub_id, error)) from error


def _local_folder(source: str) -> Path:
    """Where the files of a loaded target lie."""
    from transformers.utils import cached_file

    return Path(source) if Path(source).is_dir() else Path(cached_file(source, "config.json")).parent


def _prepared(pair: Pair) -> str:
    """What transformers can load: for the embedded default its folder, made on first use."""
    entry = ENTRIES.get(pair.target_name)
    return str(embedded_target()) if entry is not None and entry.source is None else pair.target_path_or_hub_id
