"""The rotary embedding of heads: that of transformers, so that every form of a target is supported.

Imported when a head is created, because transformers takes seconds to import.
"""

from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from jakiro.heads.layer_config import DecoderConfig


class HeadRotary(LlamaRotaryEmbedding):
    """Rotary embedding with float32 frequencies in any head: rounded ones give wrong angles at high positions."""

    def _apply(self, fn, recurse: bool = True) -> "HeadRotary":
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), recurse)


def rotary_embedding(config: DecoderConfig) -> HeadRotary:
    """Return the rotary embedding with the target's parameters."""
    return HeadRotary(
        LlamaConfig(
            hidden_size=config.hidden_size,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            rope_parameters=dict(config.rope_parameters),
            max_position_embeddings=config.max_position_embeddings,
        )
    )
