"""Features from several layers of the target: the last hidden state, and beside it those of chosen layers.

The last hidden state, after the final norm, comes first, because the output function reads it. The others follow in
ascending order: as they are for EAGLE-3's heads (arXiv 2503.01840, section 3); for ours each row is scaled to a root
mean square of one, since the residual stream grows with depth.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

_EPSILON = 1e-6


def scaled(hidden: Tensor) -> Tensor:
    """Rows with a root mean square of one."""
    return functional.rms_norm(hidden, hidden.shape[-1:], eps=_EPSILON)


def with_scaled_layers(features: Tensor, hidden_size: int) -> Tensor:
    """Features whose rows of further layers are scaled; the last hidden state stays as it is."""
    last, *deeper = features.split(hidden_size, dim=-1)
    return torch.cat([last, *map(scaled, deeper)], dim=-1) if deeper else features


def features_of(base: nn.Module, feature_layers: Sequence[int], raw: bool = False, **inputs) -> Tensor:
    """One pass of a stock decoder.

    Args:
        base: without its output function.
        feature_layers: layers whose output is wanted, the first layer being 1.
        raw: these as they are; else scaled.

    Returns:
        (batch, rows, (1 + feature_layers) · hidden).
    """
    output = base(**inputs, output_hidden_states=bool(feature_layers))
    last = output.last_hidden_state
    deeper = [output.hidden_states[layer].to(last.device) for layer in feature_layers]
    if not deeper:
        return last
    features = torch.cat([last, *deeper], dim=-1)
    return features if raw else with_scaled_layers(features, last.shape[-1])


def check_feature_layers(feature_layers: Sequence[int], num_layers: int) -> None:
    """Raises ValueError for layers that a target does not have below its last."""
    for layer in feature_layers:
        if not 1 <= layer < num_layers:
            raise ValueError(
                f"Features of layer {layer} were asked for, the target has {num_layers} layers and the last one's are "
                f"always read; name layers from 1 to {num_layers - 1}."
            )
