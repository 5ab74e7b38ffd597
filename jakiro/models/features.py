"""Features from several layers of the target: the last hidden state, and beside it those of chosen layers.

The last hidden state, after the final norm, comes first, because the output function reads it. The others follow as
they are, in ascending order, for EAGLE-3's heads (arXiv 2503.01840, section 3).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def features_of(base: nn.Module, feature_layers: Sequence[int], **inputs) -> Tensor:
    """One pass of a stock decoder.

    Args:
        base: without its output function.
        feature_layers: layers whose output is wanted, the first layer being 1.

    Returns:
        (batch, rows, (1 + feature_layers) · hidden).
    """
    output = base(**inputs, output_hidden_states=bool(feature_layers))
    last = output.last_hidden_state
    deeper = [output.hidden_states[layer].to(last.device) for layer in feature_layers]
    return torch.cat([last, *deeper], dim=-1) if deeper else last


def check_feature_layers(feature_layers: Sequence[int], num_layers: int) -> None:
    """Raises ValueError for layers that a target does not have below its last."""
    for layer in feature_layers:
        if not 1 <= layer < num_layers:
            raise ValueError(
                f"Features of layer {layer} were asked for, the target has {num_layers} layers and the last one's are "
                f"always read; name layers from 1 to {num_layers - 1}."
            )
