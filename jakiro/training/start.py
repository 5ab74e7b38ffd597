"""Before training: the draft vocabulary, a head's config for its target, and weights of a head to go on from."""

from dataclasses import fields as fields_of

import numpy as np
import torch
from torch import Tensor

from jakiro.heads.base import DraftHead
from jakiro.heads.config import DraftConfig, rope_of
from jakiro.heads.kind import HeadKind
from jakiro.models.families import num_kv_heads, output_function


def frequent_token_ids(ids: np.ndarray, vocab_size: int, count: int) -> Tensor:
    """The `count` most frequent ids of a corpus (the lower id first where counts tie), in ascending order."""
    counts = np.bincount(ids, minlength=vocab_size)
    return torch.from_numpy(np.sort(np.argsort(-counts, kind="stable")[:count]).astype(np.int64))


def continue_weights(head: DraftHead, source: DraftHead) -> None:
    """Copies the weights of a trained head into one of the same shape; the draft vocabularies may differ.

    Raises:
        ValueError: a weight has another shape, or only one of the two heads has it.
    """
    ours, theirs = dict(head.named_parameters()), dict(source.named_parameters())
    for name in sorted(ours.keys() | theirs.keys()):
        shapes = [tuple(side[name].shape) if name in side else "none" for side in (theirs, ours)]
        if shapes[0] != shapes[1]:
            raise ValueError(
                f"The head to start from has {name} of shape {shapes[0]}, the options ask for {shapes[1]}; give the "
                "same method, fusion and expert width, and a head made for this target."
            )
    with torch.no_grad():
        for name, parameter in ours.items():
            parameter.copy_(theirs[name])


def head_config(
    kind: HeadKind, target_config, expert_width: int | None = None, draft_vocab: int | None = None, **fields
) -> DraftConfig:
    """The config of a head for a transformers target.

    Args:
        expert_width: of kinds whose layers have one; None is the target's hidden size.
        fields: go in as they are.
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
    known = {each.name for each in fields_of(kind.config)}
    return kind.config(**{name: value for name, value in sizes.items() if name in known} | fields)


def check_output_function(model) -> None:
    """Training computes the target's distribution as softmax(W h).

    Raises:
        ValueError: this target's logits are also scaled, capped or shifted.
    """
    layer = model.get_output_embeddings()
    if getattr(layer, "bias", None) is not None or output_function(model, layer.weight) is not layer:
        raise ValueError(
            f"{model.config.get_text_config().model_type} scales, caps or shifts its logits, which training does not "
            "support; choose a target whose output function is one matrix."
        )
