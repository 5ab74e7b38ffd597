"""Base class of EAGLE-3 and DFlash heads: `fc` over states of the target, optional embedding and output rows."""

from collections.abc import Iterable

from torch import Tensor, nn

from jakiro.heads.base import DraftHead
from jakiro.heads.layer_config import DecoderConfig
from jakiro.heads.layers import RMSNorm
from jakiro.ops.linear import Packing, pack_linears, packed_linear


class StatesHead(DraftHead):
    """Layers over `num_states` hidden states of the target, which `fc` maps to the head's width.

    Args:
        config: A config that also has `own_embedding`, `own_output` and `num_states`.
        layers: Layers with a `HeadAttention` as `self_attn`.
    """

    def __init__(self, config: DecoderConfig, layers: Iterable[nn.Module]) -> None:
        from jakiro.heads.rotary import rotary_embedding

        super().__init__(config)
        size = config.hidden_size
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if config.own_embedding else None
        self.fc = nn.Linear(config.num_states * config.target_hidden_size, size, bias=False)
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(size, eps=config.rms_norm_eps)
        self.lm_head = None
        if config.own_output:
            self.lm_head = nn.Linear(size, config.draft_vocab_size or config.vocab_size, bias=False)
        self.rotary = rotary_embedding(config)

    def bind(self, embedding: Tensor, output_weight: Tensor) -> "StatesHead":
        """Share the target's embedding and output matrix, unless the head has its own.

        Raises:
            ValueError: the head was made for a target with another vocabulary or width.
        """
        super().bind(embedding, output_weight)
        if self.embed_tokens is not None:
            self.embedding = self.embed_tokens.weight.detach()
        if self.lm_head is not None:
            self.output_weight = self.lm_head.weight.detach()
        return self

    def pack_matrices(self, packing: Packing) -> None:
        pack_linears(self.layers, packing)
        # Never rounded: the target's states are of very different sizes
        self.fc = packed_linear(self.fc.weight, None)

    def fuse(self) -> None:
        for layer in self.layers:
            layer.self_attn.fuse()
