"""Initial weights of what parallel levels add to a head: mask tokens, further layers, MLPs.

A head's first layer starts as any head's does (`start.py`); all of this starts as the best that follows from it without
gradients: masks as mean rows, further layers adding nothing, MLPs as least squares to the features of their levels.
"""

import torch
from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.training.features import FeatureCache
from jakiro.training.optimizer import whitening_matrix
from jakiro.training.start import adopt_stream, fit, randomise, ridge, sample_rows, start_weights, whiten_readers

NOISE = 0.1


@torch.no_grad()
def start_parallel(
    head: DraftHead, source: DraftHead | None, cache: FeatureCache, seed: int, start: str, first: int = 0
) -> None:
    """Initialises a bound head of parallel levels in place.

    Args:
        source: a head of layers whose input projection, attention and norm its first layer takes over; None for none.
        start: how the first layer starts without a source, see `start_weights`.
        first: sequences before this one are held out and not read.
    """
    if head.config.num_layers:
        if source is None:
            start_weights(head, cache, seed, start, first)
        else:
            adopt_stream(head, source, cache, seed, first)
    torch.manual_seed(seed)
    _STARTS[head.config.network](head, cache, first)


def _start_masks(head: DraftHead, cache: FeatureCache, first: int, num_sequences: int = 110) -> None:
    """Every mask begins as the mean token and the mean feature, with a little noise that tells them apart."""
    inputs, _, _ = sample_rows(head, cache, first, num_sequences)
    for parameter, rows in zip((head.mask_embeddings, head.mask_features), inputs.chunk(2, dim=-1), strict=True):
        parameter.copy_(rows.mean(0) + NOISE * rows.std(0) * torch.randn_like(parameter))


def _start_stages(head: DraftHead, cache: FeatureCache, first: int, num_sequences: int = 60) -> None:
    """Layers after the first one add nothing; MLPs correct their second row by what their random readers allow."""
    features = sample_rows(head, cache, first, num_sequences)[1]
    for layer in list(head.layers)[1:]:
        randomise(layer)
        layer.self_attn.o_proj.weight.zero_()
        whiten_readers(layer.mlp_moe.experts, layer.post_attention_layernorm(features))
        for expert in layer.mlp_moe.experts:
            list(expert.children())[-1].weight.zero_()
    randomise(head.mlps)
    parts = [_pairs(head, cache, index) for index in range(first, min(first + num_sequences, len(cache)))]
    rows = torch.cat([rows for rows, _ in parts])
    white = whitening_matrix(rows)
    for number, mlp in enumerate(head.mlps):
        mlp.read.weight.copy_(mlp.read.weight @ white)
        wanted = torch.cat([features[number] for _, features in parts])
        mlp.write.weight.copy_(ridge(mlp.inner(rows), wanted - rows[:, head.config.hidden_size :]).T)


def _pairs(head: DraftHead, cache: FeatureCache, index: int) -> tuple[Tensor, list[Tensor]]:
    """What the MLPs read along a text, with the target's features in place of the head's own, and what they predict."""
    batch = cache.batch([index]).to(head.output_weight.device)
    features, count = batch.features[0], head.config.num_parallel
    read = head.fc(torch.cat([head.embed(batch.ids[0, 1:]), features[:-1]], dim=-1))
    rows = torch.cat([read[:-1], read[1:]], dim=-1)
    # Row j holds the tokens at j + 1 and j + 2, from which the first MLP predicts the feature at j + 2
    length = max(len(rows) - count + 1, 0)
    return rows[:length], [features[number + 2 :][:length] for number in range(count)]


def _start_mlps(head: DraftHead, cache: FeatureCache, first: int, num_sequences: int = 110) -> None:
    """Residual blocks begin at zero, as in the paper; last matrices map a feature to the one of their level."""
    count = head.config.num_parallel
    texts = [cache.batch([index]) for index in range(first, min(first + num_sequences, len(cache)))]
    texts = [batch.to(head.output_weight.device).features[0] for batch in texts]
    texts = [features for features in texts if len(features) > count]
    rows = torch.cat([features[:-count] for features in texts])
    for number, mlp in enumerate(head.mlps, start=1):
        mlp.block.linear.weight.zero_()
        mlp.block.linear.bias.zero_()
        wanted = torch.cat([features[number : len(features) - count + number] for features in texts])
        fit(mlp.write, rows, wanted)


_STARTS = {"masks": _start_masks, "staged": _start_stages, "mlps": _start_mlps}
