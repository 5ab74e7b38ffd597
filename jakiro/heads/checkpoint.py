"""Draft heads on disk: config.json and safetensors in float16 or 8 bits; errors name every mismatch.

Tensors have the names of the official checkpoints; the target's embedding and output rows are never stored.
`published.py` reads checkpoints of other projects; `misfits` checks from the configs whether a head fits a target.
"""

import hashlib
import json
import pickle
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from jakiro.config import require
from jakiro.heads.base import DraftHead
from jakiro.heads.config import KIND, WEIGHTS_NAMES, DraftConfig
from jakiro.heads.kind import Kinds
from jakiro.heads.kinds import KINDS, config_from, make_head
from jakiro.heads.published import from_published
from jakiro.heads.rounded import restored, rounded_to_int8
from jakiro.heads.shards import INDEX_ENDING, shards_of
from jakiro.models.features import check_feature_layers
from jakiro.system import atomic_file, file_sha256, is_out_of_memory, reason_of, write_atomically

WEIGHTS_NAME = WEIGHTS_NAMES[0]
CONFIG_NAME = "config.json"


def save_head(head: DraftHead, folder: Path, bits: int = 16) -> None:
    """Write config.json and weights atomically; the index map is int32.

    Args:
        bits: 16, or 8 for large matrices, see `rounded.py`.
    """
    tensors = {name: tensor.cpu() for name, tensor in head.state_dict().items()}
    rounded = rounded_to_int8(tensors) if bits == 8 else {}
    for name, tensor in tensors.items():
        tensors[name] = tensor.to(torch.int32 if name == "draft_token_ids" else torch.float16).contiguous()
    tensors |= {name: tensor for name, tensor in rounded.items() if tensor.dtype == torch.int8 or name not in tensors}
    with atomic_file(folder / WEIGHTS_NAME) as unfinished:
        write_tensors(tensors, unfinished)
    write_config(head.config, folder)


def write_config(config: DraftConfig, folder: Path) -> None:
    """Write config.json atomically."""
    write_atomically(folder / CONFIG_NAME, json.dumps(config.to_dict(), indent=2) + "\n")


def write_tensors(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Call safetensors' `save_file` and make the file readable for all users: a server often runs as another user.

    Raises:
        OSError: the file cannot be written; replaces an error class of safetensors.
    """
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        raise OSError(f"No tensors could be written to {path.parent} ({error}); is the disk full?") from error
    path.chmod(0o644)


def load_head(
    folder: str | Path,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    kinds: Kinds = KINDS,
) -> DraftHead:
    """Load a head in the format of this package, or a published head of a supported kind.

    Args:
        kinds: Known kinds, see `Methods.kinds`.

    Raises:
        FileNotFoundError: the folder or one of its files does not exist.
        ValueError: the config or the weights are corrupted, of an unknown kind or with unsupported features, or a
            tensor is missing, unexpected or of another shape.
    """
    folder = Path(folder)
    values, path = _read_config(folder), weights_file(folder)
    try:
        # The config of a published head does not determine its kind, so its tensors are read first
        config = config_from(values, kinds) if _is_own(values) else None
        tensors = restored(_read_tensors(path))
        if config is None:
            config, tensors = from_published(values, tensors, kinds)
        head = make_head(config, kinds)
    except KeyError as error:
        # transformers looks up the kind and the numbers of a rotary embedding when it builds it
        raise ValueError(
            f"The draft head's RoPE settings have a missing or unknown entry {error}; "
            f"correct them in its {CONFIG_NAME}."
        ) from error
    except Exception as error:
        if isinstance(error, ValueError) or is_out_of_memory(error):
            raise
        raise ValueError(
            f"The draft head's {CONFIG_NAME} does not describe a valid head ({reason_of(error)}); correct it."
        ) from error
    fill_head(head, tensors)
    return head.to(device=device, dtype=dtype).eval().requires_grad_(False)


def weights_file(folder: str | Path) -> Path:
    """Return the weights file of a head folder, or the index of its shards.

    Raises:
        FileNotFoundError: the folder has neither.
    """
    folder = Path(folder)
    for name in WEIGHTS_NAMES:
        if (folder / name).is_file():
            return folder / name
    raise FileNotFoundError(
        f"No draft head in {folder}: {WEIGHTS_NAME} is missing, and so are {', '.join(WEIGHTS_NAMES[1:])}; "
        f"expected a folder with weights and {CONFIG_NAME}."
    )


def misfits(head: DraftConfig, target_config) -> list[str]:
    """Return the reasons why a head does not fit a target: one sentence with both values for each difference.

    Args:
        target_config: transformers config of the target.
    """
    target_config = target_config.get_text_config()
    num_layers = target_config.num_hidden_layers
    reasons = head.misfits(target_config)
    try:
        check_feature_layers(head.layers_of(num_layers), num_layers)
    except ValueError as error:
        reasons.append(str(error))
    return reasons


def _is_own(values: dict) -> bool:
    """Return whether a config.json has the format of this package, which names the kind.

    Raises:
        ValueError: it was written by an earlier version, which did not name the kind.
    """
    require(
        KIND in values or "expert_intermediate_size" not in values,
        f"The draft head's {CONFIG_NAME} was written by Jakiro 0.9 or before and has no {KIND}; train it again.",
    )
    return KIND in values


def _read_config(folder: Path) -> dict:
    path = folder / CONFIG_NAME
    if not path.is_file():
        raise FileNotFoundError(f"No draft head in {folder}: {CONFIG_NAME} is missing; expected a folder with both.")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"The draft head's {CONFIG_NAME} is not JSON: {error}.") from error
    require(isinstance(values, dict), f"Draft head config must be a JSON object, not {type(values).__name__}.")
    return values


def _read_tensors(path: Path) -> dict[str, torch.Tensor]:
    if path.name.endswith(INDEX_ENDING):
        return {name: tensor for shard in shards_of(path) for name, tensor in _read_tensors(shard).items()}
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if is_out_of_memory(error):
            raise
        # torch's own message recommends an unsafe load
        unsafe = isinstance(error, pickle.UnpicklingError)
        reason = "it holds more than tensors, or is cut off" if unsafe else reason_of(error)
        raise ValueError(f"The draft head's {path.name} is broken: {reason}; download or train it again.") from error
    if not isinstance(tensors, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in tensors.values()):
        raise ValueError(
            f"The draft head's {path.name} is not a dictionary of tensors by name; use the published weights."
        )
    return tensors


def fill_head(head: DraftHead, tensors: dict[str, torch.Tensor]) -> None:
    """Copy tensors into a head.

    Raises:
        ValueError: a tensor is missing, unexpected, of another shape, or contains values that are not finite, or the
            index map of a reduced vocabulary is invalid.
    """
    expected = head.state_dict()
    missing, unexpected = sorted(set(expected) - set(tensors)), sorted(set(tensors) - set(expected))
    if missing or unexpected:
        raise ValueError(
            f"The draft head's weights do not fit its config: missing {missing or 'none'}, "
            f"unexpected {unexpected or 'none'}; use the config that belongs to these weights."
        )
    for name, tensor in tensors.items():
        if tensor.shape != expected[name].shape:
            raise ValueError(
                f"The draft head's tensor {name} has shape {tuple(tensor.shape)}, its config implies "
                f"{tuple(expected[name].shape)}; use the config that belongs to these weights."
            )
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(f"The draft head's tensor {name} holds values that are not finite; train it again.")
    _check_draft_token_ids(tensors.get("draft_token_ids"), head.config.vocab_size)
    head.load_state_dict({name: tensor.to(expected[name].dtype) for name, tensor in tensors.items()})


def _check_draft_token_ids(draft_token_ids: torch.Tensor | None, vocab_size: int) -> None:
    if draft_token_ids is None:
        return
    ids = draft_token_ids.long()
    if ids.min() < 0 or ids.max() >= vocab_size:
        raise ValueError(
            f"The draft head's draft_token_ids run from {int(ids.min())} to {int(ids.max())}, its vocabulary from 0 to "
            f"{vocab_size - 1}; use the config that belongs to these weights."
        )
    if (ids.diff() <= 0).any():
        raise ValueError(
            "The draft head's draft_token_ids are not in ascending order without repeats; sort them, or train it again."
        )


def head_sha256(folder: str | Path) -> str:
    """Return the hash of a head's weights as hex: of their file, or of the shards' hashes in the order of their names.

    Raises:
        FileNotFoundError: the folder has no weights.
        ValueError: a shard is missing.
    """
    path = weights_file(folder)
    if not path.name.endswith(INDEX_ENDING):
        return file_sha256(path)
    return hashlib.sha256("".join(map(file_sha256, shards_of(path))).encode()).hexdigest()
