"""What EAGLE-3's and DFlash's heads share: `fc` over several states of the target, and rows that may be their own."""

from collections.abc import Iterable

from torch import Tensor, nn

from jakiro.heads.base import DraftHead, packing_for, precision_on
from jakiro.heads.layer_config import DecoderConfig
from jakiro.heads.layers import RMSNorm, pack_linears
from jakiro.kernels.linear import packed_linear, packing_works


class StatesHead(DraftHead):
    """Layers over `num_states` hidden states of the target, which `fc` maps to the head's width.

    Args:
        config: which also says `own_embedding`, `own_output` and `num_states`.
        layers: each with a `HeadAttention` as `self_attn`.
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
        """Shares the target's embedding and output rows, unless the head has its own.

        Raises:
            ValueError: the target's vocabulary or width is not the one the head was made for.
        """
        super().bind(embedding, output_weight)
        if self.embed_tokens is not None:
            self.embedding = self.embed_tokens.weight.detach()
        if self.lm_head is not None:
            self.output_weight = self.lm_head.weight.detach()
        return self

    def logits(self, features: Tensor) -> Tensor:
        """(…, hidden) as `norm` gives them → (…, draft vocabulary)."""
        return super().logits(features) if self.lm_head is None else self.lm_head(features)

    def pack(self, precision: str = "int8") -> "StatesHead":
        weight = self.fc.weight
        if weight.device.type == "cuda":
            self.fuse()
        if not packing_works(weight.device, weight.dtype):
            return self
        self.precision = precision_on(weight.device, precision)
        pack_linears(self.layers, packing_for(self.precision))
        # Never rounded: the target's states are of very different sizes
        self.fc = packed_linear(weight, None)
        output = packing_for(self.precision)(self.output_weight, None)
        if self.lm_head is None:
            self._output_layer = output
        else:
            self.lm_head = output
        return self

    def fuse(self) -> None:
        """Fuses matrices that read the same rows, as on a GPU."""
        for layer in self.layers:
            layer.self_attn.fuse()
