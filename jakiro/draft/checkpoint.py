"""Draft heads on disk: config.json, float16 safetensors, and a loader that names what does not fit.

Tensor names are those of the official checkpoints; the target's embedding and output rows are never stored.
"""

import hashlib
import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from jakiro.config import DraftConfig
from jakiro.draft.jakiro import JakiroHead

WEIGHTS_NAME = "head.safetensors"
CONFIG_NAME = "config.json"


def save_head(head: JakiroHead, folder: Path) -> None:
    """Writes config.json and float16 weights; a reduced vocabulary's index map is stored as int32."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: (tensor.to(torch.int32) if name == "draft_token_ids" else tensor.to(torch.float16)).contiguous().cpu()
        for name, tensor in head.state_dict().items()
    }
    save_file(tensors, folder / WEIGHTS_NAME)
    (folder / CONFIG_NAME).write_text(json.dumps(head.config.to_dict(), indent=2) + "\n")


def load_head(folder: str | Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> JakiroHead:
    """Reads a head that `save_head` wrote.

    Raises:
        FileNotFoundError: no such folder, or a file is missing in it.
        ValueError: the config or the weights are broken, or a tensor is missing, unexpected or of another shape.
    """
    folder = Path(folder)
    config_path, weights_path = folder / CONFIG_NAME, folder / WEIGHTS_NAME
    for path in (config_path, weights_path):
        if not path.is_file():
            raise FileNotFoundError(f"No draft head in {folder}: {path.name} is missing; expected a folder with both.")
    try:
        values = json.loads(config_path.read_text())
    except ValueError as error:
        raise ValueError(f"The draft head's {CONFIG_NAME} is not JSON: {error}.") from error
    head = JakiroHead(DraftConfig.from_dict(values))
    try:
        tensors = load_file(weights_path)
    except SafetensorError as error:
        raise ValueError(f"The draft head's {WEIGHTS_NAME} is broken: {error}; download or train it again.") from error
    fill_head(head, tensors)
    return head.to(device=device, dtype=dtype).eval().requires_grad_(False)


def fill_head(head: JakiroHead, tensors: dict[str, torch.Tensor]) -> None:
    """Copies tensors into a head.

    Raises:
        ValueError: a tensor is missing, unexpected, of another shape, or holds values that are not finite.
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
                f"The draft head's tensor {name} has shape {tuple(tensor.shape)}, its config means "
                f"{tuple(expected[name].shape)}; use the config that belongs to these weights."
            )
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise ValueError(f"The draft head's tensor {name} holds values that are not finite; train it again.")
    head.load_state_dict({name: tensor.to(expected[name].dtype) for name, tensor in tensors.items()})


def file_sha256(path: str | Path) -> str:
    """SHA-256 of a file, as hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
