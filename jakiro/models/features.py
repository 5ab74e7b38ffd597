"""Features from several layers of the target: the last hidden state, followed by hidden states of chosen layers.

The last hidden state, after the final norm, comes first because the output function reads it. The other states follow
unnormalised in ascending order, as EAGLE-3's heads read them (arXiv 2503.01840, section 3).
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


def features_of(base: nn.Module, feature_layers: Sequence[int], **inputs) -> Tensor:
    """Run one pass of a stock decoder and return its features.

    Args:
        base: Decoder without its output function.
        feature_layers: Numbers of the layers to include; the first layer is 1.
        inputs: Arguments of the decoder.

    Returns:
        (batch, rows, (1 + feature_layers) · hidden).
    """
    output = base(**inputs, output_hidden_states=bool(feature_layers))
    last = output.last_hidden_state
    deeper = [output.hidden_states[layer].to(last.device) for layer in feature_layers]
    return torch.cat([last, *deeper], dim=-1) if deeper else last


def check_feature_layers(feature_layers: Sequence[int], num_layers: int) -> None:
    """Check that a target has these layers below its last layer.

    Raises:
        ValueError: A layer is outside 1 to num_layers - 1.
    """
    for layer in feature_layers:
        if not 1 <= layer < num_layers:
            raise ValueError(
                f"Feature layer must be between 1 and {num_layers - 1}; got {layer}. The target has {num_layers} "
                "layers and the features always include the last one."
            )
