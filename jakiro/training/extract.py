"""The target's features of a corpus."""

import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from jakiro.loading.loader import gpu_computes_bfloat16
from jakiro.models.features import features_of
from jakiro.ops.linear import packs_bfloat16
from jakiro.training.corpus import Row
from jakiro.training.features import write_features

log = logging.getLogger("jakiro")


def target_dtype(device: torch.device) -> torch.dtype:
    """What the target computes features in: on a GPU what it will answer in, which takes half the memory and less time.

    Its distribution over the tokens is float32 everywhere.
    """
    return torch.bfloat16 if device.type == "cuda" and gpu_computes_bfloat16(device) else torch.float32


def extract(
    model, rows: Sequence[Row], folder: Path, feature_layers: Sequence[int], target: str, precision: str = "float32"
) -> None:
    """Fills a cache with features; continues where it stopped. `target` is the hash of its weights, or its name.

    With precision "bfloat16" a CPU that multiplies it in hardware does so: for the default target the features then
    differ by 0.7 % of their size, less than the noise that training adds to them.
    """
    sequences = [(row.ids, row.l0) for row in rows]
    total = sum(len(ids) for ids, _ in sequences)
    hidden_size = model.config.get_text_config().hidden_size
    size = total * (1 + len(feature_layers)) * hidden_size * 2 / 1e9
    log.info("Features of %d sequences, %d tokens, %.1f GB in %s.", len(sequences), total, size, folder)

    is_half = precision == "bfloat16" and packs_bfloat16(model.device, torch.bfloat16)

    @torch.inference_mode()
    def run(ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=is_half):
            return features_of(model.get_decoder(), feature_layers, input_ids=ids.to(model.device), use_cache=False)

    about = {"places": [row.place for row in rows], "target": target}
    for done in write_features(folder, sequences, hidden_size, run, feature_layers, **about):
        log.info("Features of %d of %d sequences.", done, len(sequences))
