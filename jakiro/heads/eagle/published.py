"""Published EAGLE-1 and EAGLE-2 heads: one dense layer, which is a layer of one expert here; and such files of ours."""

import torch
from torch import Tensor

from jakiro.config import require
from jakiro.heads.base import DraftHead
from jakiro.heads.eagle.config import EagleConfig
from jakiro.heads.official import layer_fields, layer_tensors

_EXPERT = "layers.0.mlp_moe.experts.0."


def recognise(values: dict, tensors: dict[str, Tensor]) -> bool:
    """Whether there is a dense layer, and no MLP beside it, as Gumiho's heads have."""
    starts = {name.split(".")[0] for name in tensors}
    return any(name.startswith("layers.0.mlp.") for name in tensors) and "mlp" not in starts


def convert(values: dict, tensors: dict[str, Tensor]) -> tuple[EagleConfig, dict[str, Tensor]]:
    """See `HeadKind.convert`."""
    config = EagleConfig(**layer_fields(values, tensors))
    return config, layer_tensors(config, tensors)


def export(head: DraftHead) -> tuple[dict, dict[str, Tensor]]:
    """See `HeadKind.export`.

    Raises:
        ValueError: it scores a part of the vocabulary.
    """
    config = head.config
    require(
        config.draft_vocab_size is None,
        f"This head scores {config.draft_vocab_size} of the target's {config.vocab_size:,} tokens, EAGLE's format "
        "scores all of them; train a head without a reduced vocabulary, or export it with --format hub.",
    )
    tensors = {
        "layers.0.mlp." + name.removeprefix(_EXPERT) if name.startswith(_EXPERT) else name: tensor
        for name, tensor in head.state_dict().items()
        if name != "layers.0.mlp_moe.gate.weight"
    }
    return config_json(config), {name: tensor.to(torch.float16).contiguous() for name, tensor in tensors.items()}


def config_json(config: EagleConfig) -> dict:
    """The config.json that EAGLE publishes beside a head: a one-layer Llama's, plus `bias`."""
    rope = {name: value for name, value in config.rope_parameters.items() if name != "rope_theta"}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.expert_intermediate_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "num_hidden_layers": 1,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_parameters.get("rope_theta", 10000.0),
        "rope_scaling": None if rope.get("rope_type", "default") == "default" else rope,
        "bias": config.fc_bias,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
    }
