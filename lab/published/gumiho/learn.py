"""Training of a Gumiho head: its layers run twice along a text, then its MLPs on the next inputs of the layers."""

from collections.abc import Iterator

import torch
from torch import Tensor

from jakiro.heads import layer_learning
from jakiro.heads.kind import Texts
from jakiro.heads.layer_learning import layer_whitening, whiten_readers
from jakiro.heads.learning import UnrolledRows, later, randomise, ridge, sample_rows, unrolled_mask, whitening_matrix
from lab.published.gumiho.network import GumihoHead

# Texts for the start of the MLPs; fewer than for layers, because their rows are twice as wide
MLP_TEXTS = 60


def levels(head: GumihoHead, ids: Tensor, features: Tensor) -> Iterator[Tensor]:
    """Yield the features of each level; the layers' second pass reads their own features. See `HeadKind.levels`."""
    embeddings = head.embed(ids[:, 1:])
    length = embeddings.shape[1]
    positions = torch.arange(length, device=ids.device)[None]
    rows = UnrolledRows()
    first = head(embeddings, features, positions, None, rows).features
    yield first
    shifted = torch.cat([features[:, :1].to(first.dtype), first[:, :-1]], dim=1)
    second = head(embeddings, shifted, positions, unrolled_mask(length, 2, ids.device), rows).features
    yield second
    read = [head.fc(torch.cat([embeddings[:, 1:], output[:, :-1]], dim=-1)) for output in (first, second)]
    # Row s of the second pass is at position s + 1; the first level's token is one position before the second's
    outputs = head.further(later(read[0], 1), read[1], head.config.num_mlps)
    for number, output in enumerate(outputs):
        yield later(torch.cat([output[:, :1], output], dim=1), number)


@torch.no_grad()
def start(head: GumihoHead, texts: Texts, seed: int) -> None:
    """Initialise the first layer like that of any head, then the rest with `start_further`."""
    layer_learning.start(head, texts, seed)
    start_further(head, texts, seed)


@torch.no_grad()
def start_further(head: GumihoHead, texts: Texts, seed: int) -> None:
    """Initialise later layers so that they add nothing, and MLPs by least squares on top of random readers."""
    torch.manual_seed(seed)
    texts = texts[:MLP_TEXTS]
    features = sample_rows(head, texts)[1]
    for layer in list(head.layers)[1:]:
        randomise(layer)
        layer.self_attn.o_proj.weight.zero_()
        whiten_readers(layer.mlp_moe.experts, layer.post_attention_layernorm(features))
        for expert in layer.mlp_moe.experts:
            list(expert.children())[-1].weight.zero_()
    randomise(head.mlps)
    pairs, targets = zip(*(_pairs(head, *text) for text in texts), strict=True)
    rows = torch.cat(pairs)
    white = whitening_matrix(rows)
    for number, mlp in enumerate(head.mlps):
        mlp.read.weight.copy_(mlp.read.weight @ white)
        features = torch.cat([target[number] for target in targets])
        mlp.write.weight.copy_(ridge(mlp.inner(rows), features - rows[:, head.config.hidden_size :]).T)


def _pairs(head: GumihoHead, ids: Tensor, features: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Return inputs and targets of the MLPs along a text, with the target's features instead of the head's own."""
    count = head.config.num_mlps
    read = head.fc(torch.cat([head.embed(ids[1:]), features[:-1]], dim=-1))
    rows = torch.cat([read[:-1], read[1:]], dim=-1)
    # Row j contains the tokens at j + 1 and j + 2; from them the first MLP predicts the feature at j + 2
    length = max(len(rows) - count + 1, 0)
    return rows[:length], [features[number + 2 :][:length] for number in range(count)]


def whitening(head: GumihoHead, texts: Texts) -> dict[str, Tensor]:
    """Return the whitening matrices; see `HeadKind.whitening`."""
    rows = sample_rows(head, texts)
    pairs = whitening_matrix(torch.cat(rows[1:], dim=-1))
    return layer_whitening(head, rows) | {f"mlps.{number}.read.weight": pairs for number in range(len(head.mlps))}
