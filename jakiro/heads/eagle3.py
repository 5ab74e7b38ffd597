"""The EAGLE-3 head: layers that read three hidden states of the target, and score a vocabulary of their own.

A row pairs the embedding of token t + 1 with the target's states at t, which `fc` maps to the head's width, or with the
head's own last state where it continues its draft. The first layer attends over [e; h]; its residual is h. EAGLE-3,
arXiv 2503.01840, section 3; the norms that speculators' format adds are flags of `Eagle3Config`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jakiro.config import is_count, require
from jakiro.heads.base import DraftHead, packing_for, precision_on
from jakiro.heads.config import DraftConfig
from jakiro.heads.layers import Angles, HeadAttention, HeadOutput, SwiGLUExpert, pack_linears, row_output
from jakiro.kernels.cache import PassCache
from jakiro.kernels.linear import packed_linear, packing_works
from jakiro.kernels.rotary import signed


@dataclass(frozen=True, slots=True)
class Eagle3Config(DraftConfig):
    """An EAGLE-3 head's config.

    Attributes:
        feature_layers: layers of the target whose output it reads; empty for 2, L // 2 and L − 3 of L layers.
        target_hidden_size: width of each of these states; hidden_size is the head's own.
        own_embedding: it has embedding rows of its own; else it shares the target's.
        qk_norm: queries and keys are normalised per head, as in Qwen3's layers.
        norm_before_residual: the first layer's residual is h after its norm.
        norm_before_fc: one norm over all states before `fc`. fc_norm: one for each of them.
        norm_output: the state that is fed back is the one after the last norm (EAGLE-3.1).
    """

    network: str = "states"
    num_experts: int = 1
    target_hidden_size: int | None = None
    num_states: int = 3
    own_embedding: bool = False
    qk_norm: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False

    def __post_init__(self) -> None:
        DraftConfig.__post_init__(self)
        if self.target_hidden_size is None:
            object.__setattr__(self, "target_hidden_size", self.hidden_size)
        require(
            is_count(self.target_hidden_size, 1) and is_count(self.num_states, 1),
            "Draft head config: target_hidden_size and num_states must be positive whole numbers.",
        )
        require(
            not (self.norm_before_fc and self.fc_norm),
            "Draft head config: norm_before_fc and fc_norm exclude each other; use the config of these weights.",
        )
        require(
            self.own_embedding or self.target_hidden_size == self.hidden_size,
            f"Draft head config: hidden_size {self.hidden_size} differs from the target's {self.target_hidden_size}, "
            "so the head needs embedding rows of its own, and there are none.",
        )

    @property
    def feature_size(self) -> int:
        return (1 + self.num_states) * self.target_hidden_size

    def layers_of(self, num_layers: int) -> tuple[int, ...]:
        return self.feature_layers or tuple(sorted({2, num_layers // 2, num_layers - 3}))


class Eagle3Layer(nn.Module):
    """A decoder layer; the first one attends over [e; h]."""

    def __init__(self, config: Eagle3Config, index: int) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = nn.RMSNorm(size, eps=eps)
        self.hidden_norm = None if index else nn.RMSNorm(size, eps=eps)
        self.self_attn = HeadAttention(config, index, size if index else 2 * size, eps if config.qk_norm else None)
        self.post_attention_layernorm = nn.RMSNorm(size, eps=eps)
        self.mlp = SwiGLUExpert(size, config.expert_intermediate_size)

    def forward(
        self, embeddings: Tensor, hidden: Tensor, angles: Angles, mask: Tensor | None, cache: PassCache | None
    ) -> Tensor:
        """(batch, rows, hidden) states to the layer's; embeddings of the same shape are read by the first layer."""
        if self.hidden_norm is None:
            read = self.input_layernorm(hidden)
        else:
            normed = self.hidden_norm(hidden)
            read = torch.cat([self.input_layernorm(embeddings), normed], dim=-1)
            hidden = normed if self.norm_before_residual else hidden
        hidden = hidden + self.self_attn(read, angles, mask, cache)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3Head(DraftHead):
    """Drafts with its own output rows over a draft vocabulary."""

    root_rows = 1

    def __init__(self, config: Eagle3Config) -> None:
        from jakiro.heads.rotary import rotary_embedding

        super().__init__(config)
        size, states = config.hidden_size, config.num_states * config.target_hidden_size
        eps = config.rms_norm_eps
        self.embed_tokens = nn.Embedding(config.vocab_size, size) if config.own_embedding else None
        self.input_norm = nn.RMSNorm(states, eps=eps) if config.norm_before_fc else None
        self.fc_norm = None
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(
                nn.RMSNorm(config.target_hidden_size, eps=eps) for _ in range(config.num_states)
            )
        self.fc = nn.Linear(states, size, bias=False)
        self.layers = nn.ModuleList(Eagle3Layer(config, index) for index in range(config.num_layers))
        self.norm = nn.RMSNorm(size, eps=eps)
        self.lm_head = nn.Linear(size, config.draft_vocab_size or config.vocab_size, bias=False)
        self.rotary = rotary_embedding(config)

    def bind(self, embedding: Tensor, output_weight: Tensor) -> "Eagle3Head":
        """Shares the target's embedding rows, unless the head has its own.

        Raises:
            ValueError: the target's vocabulary or width is not the one the head was made for.
        """
        expected = (self.config.vocab_size, self.config.target_hidden_size)
        if tuple(embedding.shape) != expected:
            raise ValueError(
                f"draft head was made for embedding rows of shape {expected}, the target has {tuple(embedding.shape)}; "
                "choose a head trained for this target"
            )
        own = self.embed_tokens
        self.embedding = embedding if own is None else own.weight.detach()
        self.output_weight = self.lm_head.weight.detach()
        return self

    def logits(self, features: Tensor) -> Tensor:
        """(…, hidden) states as they are fed back → (…, draft vocabulary)."""
        return self.lm_head(features if self.config.norm_output else self.norm(features))

    def pack(self, precision: str = "int8") -> "Eagle3Head":
        weight = self.fc.weight
        if weight.device.type == "cuda":
            self.fuse()
        if not packing_works(weight.device, weight.dtype):
            return self
        self.precision = precision_on(weight.device, precision)
        pack_linears(self.layers, packing_for(self.precision))
        # Never rounded: the target's states are of very different sizes
        self.fc = packed_linear(weight, None)
        self.lm_head = packing_for(self.precision)(self.output_weight, None)
        return self

    def fuse(self) -> None:
        """Fuses matrices that read the same rows, as on a GPU."""
        for layer in self.layers:
            layer.self_attn.fuse()

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        cache: PassCache | None = None,
    ) -> HeadOutput:
        """One pass over rows, with the arguments of `LayerHead.forward`.

        Args:
            features: (batch, rows, feature_size) of the target, or (batch, rows, hidden) of the head's own.
        """
        hidden = features if features.shape[-1] == self.config.hidden_size else self.fused(features)
        cos, sin = self.rotary(hidden, positions)
        for layer in self.layers:
            hidden = layer(embeddings, hidden, (cos, signed(sin)), mask, cache)
        return row_output(self.norm(hidden) if self.config.norm_output else hidden)

    def fused(self, features: Tensor) -> Tensor:
        """The target's features, its last state first, which is not read, to (…, hidden)."""
        states = features[..., self.config.target_hidden_size :]
        if self.input_norm is not None:
            states = self.input_norm(states)
        if self.fc_norm is not None:
            parts = states.chunk(len(self.fc_norm), dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        return self.fc(states)
