"""One base head and a small mask per domain instead of a whole fine-tuned head per domain.

    python -m lab.training.masks merge BASE MASKS --domain maths=HEAD_A --domain tasks=HEAD_B
    python -m lab.training.masks head BASE MASKS maths OUT

Elect, mask and rescale as in EMR-Merging, arXiv 2405.17461; `train --init` fine-tunes the heads.
"""

import json
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import typer
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from jakiro.cli.options import argument, option
from jakiro.config import require
from jakiro.heads.checkpoint import load_head, save_head, weights_file, write_tensors
from jakiro.heads.layer_head import LayerHead
from jakiro.loading import registry
from jakiro.system import atomic_file, errors_as_one_sentence, file_sha256, write_atomically

TENSORS_NAME, INDEX_NAME = "masks.safetensors", "masks.json"
UNIFIED = "unified/"
app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)


@dataclass(frozen=True, slots=True)
class DomainMasks:
    """Data that turn the base head into the head of a domain: base + scale · mask · unified.

    Attributes:
        unified: float16 deltas by weight name, shared by all domains. Heads are stored in float16, and the difference
            of two such weights is a float16 number if one is at most twice the other.
        masks: bool tensors by domain and weight name, shaped like the deltas.
        scales: λ by domain.
        calibrations: calibration of each domain's fine-tuned head.
    """

    unified: dict[str, Tensor]
    masks: dict[str, dict[str, Tensor]]
    scales: dict[str, float]
    calibrations: dict[str, dict]


def elect(base: LayerHead, heads: dict[str, LayerHead]) -> DomainMasks:
    """Merge heads by domain that were fine-tuned from one base.

    With t_k the deltas of domain k: unified has the sign of Σ_k t_k and the largest magnitude among the deltas with
    that sign; a mask is True where t_k and unified have the same sign; λ_k = Σ|t_k| ÷ Σ|mask_k · unified| over all
    weights, and 1 if the mask is empty. Masks and λ are computed from the rounded deltas, so that a copy on disk gives
    equal heads.

    Raises:
        ValueError: there are no heads, or one has another config or draft vocabulary than the base.
    """
    unified, masks = {}, {domain: {} for domain in heads}
    total, masked = dict.fromkeys(heads, 0.0), dict.fromkeys(heads, 0.0)
    for name, deltas in _deltas(base, heads).items():
        sign = deltas.sum(0).sign()
        unified[name] = (sign * torch.where(deltas.sign() == sign, deltas.abs(), 0).amax(0)).half()
        for domain, delta in zip(heads, deltas, strict=True):
            mask = masks[domain][name] = delta * unified[name] > 0
            total[domain] += float(delta.double().abs().sum())
            masked[domain] += float(unified[name][mask].double().abs().sum())
    scales = {domain: total[domain] / masked[domain] if masked[domain] else 1.0 for domain in heads}
    return DomainMasks(unified, masks, scales, {domain: head.config.calibration for domain, head in heads.items()})


def masked_head(base: LayerHead, masks: DomainMasks, domain: str) -> LayerHead:
    """Return a domain's head in float32, not bound to a target.

    Args:
        base: the head of which the masks were made.

    Raises:
        ValueError: the domain is unknown, or the base has other shapes.
    """
    require(domain in masks.scales, f"Unknown domain {domain!r}; choose one of {', '.join(masks.scales)}.")
    scale, mask, start = masks.scales[domain], masks.masks[domain], base.state_dict()
    others = [name for name, delta in masks.unified.items() if name not in start or start[name].shape != delta.shape]
    require(not others, f"{', '.join(others)}: the masks are for other shapes; use the base head of these masks.")
    deltas = {name: scale * torch.where(mask[name], delta.float(), 0) for name, delta in masks.unified.items()}
    head = type(base)(replace(base.config, calibration=masks.calibrations[domain]))
    head.load_state_dict(start | {name: start[name] + delta for name, delta in deltas.items()})
    return head.eval().requires_grad_(False)


def _deltas(base: LayerHead, heads: dict[str, LayerHead]) -> dict[str, Tensor]:
    """Return (domains, …) float32 by the name of a trained weight, domains in the order of the heads."""
    require(len(heads) > 0, "There are no heads to merge; give at least one domain.")
    for domain, head in heads.items():
        for name in (field.name for field in fields(base.config)):
            ours, theirs = getattr(base.config, name), getattr(head.config, name)
            if ours != theirs and name not in ("calibration", "target_name"):
                raise ValueError(
                    f"{name} is {theirs} in the head of {domain} and {ours} in the base; merge heads that were trained "
                    "from this base with --init."
                )
        require(
            torch.equal(base.draft_token_ids, head.draft_token_ids),
            f"The draft vocabulary of the head of {domain} is not that of the base; "
            "train it from this base with --init and without --draft-vocab.",
        )
    start, ends = base.state_dict(), [head.state_dict() for head in heads.values()]
    trained = [name for name, _ in base.named_parameters()]
    return {name: torch.stack([end[name].float() - start[name].float() for end in ends]) for name in trained}


def save_masks(masks: DomainMasks, folder: Path, base_folder: Path) -> None:
    """Write deltas and masks, eight weights of a mask per byte, and the numbers as JSON.

    Raises:
        ValueError: the folder exists and is not empty.
    """
    _check_empty(folder)
    tensors = {UNIFIED + name: delta.contiguous() for name, delta in masks.unified.items()}
    for domain, mask in masks.masks.items():
        packed = {name: np.packbits(bits.numpy()) for name, bits in mask.items()}
        tensors |= {f"masks/{domain}/{name}": torch.from_numpy(bits) for name, bits in packed.items()}
    base_sha256 = file_sha256(weights_file(base_folder))
    index = {"base_sha256": base_sha256, "scales": masks.scales, "calibrations": masks.calibrations}
    with atomic_file(folder / TENSORS_NAME) as unfinished:
        write_tensors(tensors, unfinished)
    write_atomically(folder / INDEX_NAME, json.dumps(index, indent=2) + "\n")


def load_masks(folder: Path, base_folder: Path) -> DomainMasks:
    """Read a folder written by `save_masks`.

    Raises:
        ValueError: a file is missing or broken, or the masks were made with another base.
    """
    try:
        index = json.loads((folder / INDEX_NAME).read_text(encoding="utf-8"))
        base_sha256, scales, calibrations = (index[name] for name in ("base_sha256", "scales", "calibrations"))
        tensors = load_file(folder / TENSORS_NAME)
        unified = {key.removeprefix(UNIFIED): tensor for key, tensor in tensors.items() if key.startswith(UNIFIED)}
        masks = {
            domain: {name: _unpacked(tensors[f"masks/{domain}/{name}"], delta.shape) for name, delta in unified.items()}
            for domain in scales
        }
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error).rstrip(".")
        raise ValueError(f"The masks in {folder} cannot be read: {reason}; merge the heads again.") from error
    base_now = file_sha256(weights_file(base_folder))
    require(
        base_now == base_sha256,
        f"The masks in {folder} belong to the base {base_sha256[:12]}…, not to {base_now[:12]}…; "
        "use the base head of these masks, or merge again.",
    )
    return DomainMasks(unified, masks, scales, calibrations)


def _unpacked(packed: Tensor, shape: torch.Size) -> Tensor:
    expected = (shape.numel() + 7) // 8
    require(packed.numel() == expected, f"a mask has {packed.numel()} bytes instead of {expected}")
    return torch.from_numpy(np.unpackbits(packed.numpy(), count=shape.numel())).bool().view(shape)


def _check_empty(folder: Path) -> None:
    is_usable = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    require(is_usable, f"{folder} is not empty; use a new folder.")


@app.command()
def merge(
    base: Annotated[str, argument("The common base head: a known name, a folder, or a Hub id.")],
    out: Annotated[Path, argument("Folder for the masks; it does not exist yet.")],
    domain: Annotated[list[str], option("NAME=HEAD, once per domain; HEAD as for BASE.")],
) -> None:
    """Merge heads of several domains into shared deltas and a mask per domain; print their sizes and λ."""
    names = {}
    for text in domain:
        name, _, head = text.partition("=")
        is_new = name and head and name not in names
        require(is_new, f"--domain must be NAME=HEAD with a different NAME for each head; got {text!r}.")
        names[name] = head
    base_folder = registry.resolve(head=base).head_folder()
    heads = {name: load_head(registry.resolve(head=head).head_folder()) for name, head in names.items()}
    masks = elect(load_head(base_folder), heads)
    save_masks(masks, out, base_folder)
    count = sum(delta.numel() for delta in masks.unified.values())
    mask_bytes = sum((delta.numel() + 7) // 8 for delta in masks.unified.values())
    typer.echo(
        f"Deltas for all domains {2 * count:,} bytes, a mask {mask_bytes:,} bytes; "
        f"a whole head {weights_file(base_folder).stat().st_size:,} bytes."
    )
    for name, scale in masks.scales.items():
        num_kept = sum(int(mask.sum()) for mask in masks.masks[name].values())
        typer.echo(f"{name}: λ {scale:.4f}, {num_kept / count:.1%} of the deltas")


@app.command()
def head(
    base: Annotated[str, argument("The base head of the masks.")],
    masks: Annotated[Path, argument("Folder written by `merge`.")],
    domain: Annotated[str, argument("Name of a domain.")],
    out: Annotated[Path, argument("Folder for the head; it does not exist yet.")],
) -> None:
    """Write a domain's head as an ordinary folder for --head."""
    _check_empty(out)
    folder = registry.resolve(head=base).head_folder()
    save_head(masked_head(load_head(folder), load_masks(masks, folder), domain), out)


if __name__ == "__main__":
    with errors_as_one_sentence():
        app()
