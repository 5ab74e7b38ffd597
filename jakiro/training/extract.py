"""Extraction of the target's features of a corpus."""

import logging
from collections.abc import Sequence
from pathlib import Path

import torch

from jakiro.loading.loader import gpu_computes_bfloat16
from jakiro.models.features import features_of
from jakiro.ops.linear import packs_bfloat16
from jakiro.training.corpus import Row
from jakiro.training.features import FeatureSource, write_features

log = logging.getLogger("jakiro")


def target_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype in which the target computes features: on a GPU that of its answers, to save memory.

    The target's distribution over the tokens is float32 on every device.
    """
    return torch.bfloat16 if device.type == "cuda" and gpu_computes_bfloat16(device) else torch.float32


def extract(
    model,
    rows: Sequence[Row],
    folder: Path,
    feature_layers: Sequence[int],
    target: str,
    precision: str = "float32",
    part: tuple[int, int] = (0, 1),
) -> None:
    """Write the features of a corpus into a folder, or continue an interrupted call.

    Args:
        model: the target.
        rows: texts of the corpus.
        folder: see `write_features`.
        feature_layers: layers with hidden states after the last one.
        target: hash of the weights, or the target's name.
        precision: "bfloat16" uses bfloat16 on a CPU that computes it in hardware. For the default target the features
            then differ by 0.7 % of their size, less than the noise that training adds to them.
        part: see `write_features`.
    """
    sequences = [(row.ids, row.l0) for row in rows]
    source = FeatureSource(model.config.get_text_config().hidden_size, tuple(feature_layers), target)
    total = sum(len(ids) for ids, _ in sequences)
    size = total * source.row_bytes / 1e9
    log.info("Features of %d sequences, %d tokens, %.1f GB in %s.", len(sequences), total, size, folder)
    is_half = precision == "bfloat16" and packs_bfloat16(model.device, torch.bfloat16)

    @torch.inference_mode()
    def run(ids: torch.Tensor) -> torch.Tensor:
        with torch.autocast(model.device.type, torch.bfloat16, enabled=is_half):
            return features_of(model.get_decoder(), feature_layers, input_ids=ids.to(model.device), use_cache=False)

    places = [row.place for row in rows]
    for num_done in write_features(folder, sequences, source, run, places=places, part=part):
        log.info("Features of %d of %d sequences.", num_done, len(sequences))
