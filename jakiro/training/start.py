"""Preparation of a training: draft vocabulary, config of the head, and weights of a head to start from."""

from dataclasses import fields as fields_of

import numpy as np
import torch
from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig, rope_of
from jakiro.heads.kind import HeadKind
from jakiro.models.families import num_kv_heads, output_function


def frequent_token_ids(ids: np.ndarray, vocab_size: int, count: int) -> Tensor:
    """Return the `count` most frequent ids of a corpus in ascending order; ties go to the lower id."""
    counts = np.bincount(ids, minlength=vocab_size)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:count]).astype(np.int64))


def continue_weights(head: DraftHead, source: DraftHead) -> None:
    """Copy the weights of a trained head into one of the same shape; the draft vocabularies may differ.

    Raises:
        ValueError: a weight has another shape, or exists in one of the two heads only.
    """
    ours, theirs = dict(head.named_parameters()), dict(source.named_parameters())
    for name in sorted(ours.keys() | theirs.keys()):
        shapes = [tuple(side[name].shape) if name in side else "none" for side in (theirs, ours)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"The head to start from has {name} of shape {shapes[0]}, the options require {shapes[1]}; use the "
                "same method, fusion and expert width, and a head for this target."
            )
    with torch.no_grad():
        for name, parameter in ours.items():
            parameter.copy_(theirs[name])


def head_config(
    kind: HeadKind, target_config, expert_width: int | None = None, draft_vocab: int | None = None, **fields
) -> DraftConfig:
    """Return the config of a head for a transformers target.

    Args:
        kind: of the head.
        target_config: of the target.
        expert_width: for kinds with this field; None is the target's hidden size.
        draft_vocab: number of draft tokens; None is the whole vocabulary.
        fields: other fields of the config.
    """
    text = target_config.get_text_config()
    sizes = {
        "hidden_size": text.hidden_size,
        "num_attention_heads": text.num_attention_heads,
        "num_key_value_heads": num_kv_heads(text),
        "head_dim": getattr(text, "head_dim", None),
        "vocab_size": text.vocab_size,
        "expert_intermediate_size": expert_width or text.hidden_size,
        "draft_vocab_size": draft_vocab if draft_vocab and draft_vocab < text.vocab_size else None,
        "rms_norm_eps": getattr(text, "rms_norm_eps", 1e-6),
        "rope_parameters": rope_of({"rope_parameters": getattr(text, "rope_parameters", None)}),
        "max_position_embeddings": text.max_position_embeddings,
    }
    names = {field.name for field in fields_of(kind.config)}
    return kind.config(**{name: value for name, value in sizes.items() if name in names} | fields)


def check_output_function(model) -> None:
    """Check that the target's distribution is softmax(W h), as training computes it.

    Raises:
        ValueError: this target's logits are also scaled, capped or shifted.
    """
    layer = model.get_output_embeddings()
    if getattr(layer, "bias", None) is not None or output_function(model, layer.weight) is not layer:
        raise ValueError(
            f"{model.config.get_text_config().model_type} scales, caps or shifts its logits, which training does not "
            "support; choose a target with one matrix as output function."
        )
