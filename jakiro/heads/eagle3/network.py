"""The EAGLE-3 head: layers that read three hidden states of the target and score their own draft vocabulary.

A row combines the embedding of token t + 1 with the target's states at t, mapped to the head's width by `fc`, or with
the head's own last state while it drafts. The first layer attends over [e; h]; its residual is h. EAGLE-3, arXiv
2503.01840, section 3. The norms of speculators' format are fields of `Eagle3Config`.
"""

import torch
from torch import Tensor, nn

from jakiro.heads.eagle3.config import Eagle3Config
from jakiro.heads.layers import Angles, HeadAttention, HeadOutput, RMSNorm, SwiGLUExpert, row_output
from jakiro.heads.states_head import StatesHead
from jakiro.ops.cache import PassCache
from jakiro.ops.rotary import signed


class Eagle3Layer(nn.Module):
    """A decoder layer; the first one attends over [e; h].

    Args:
        config: Sizes and norms.
        index: Number of the layer, from 0.
    """

    def __init__(self, config: Eagle3Config, index: int) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.norm_before_residual = config.norm_before_residual
        self.input_layernorm = RMSNorm(size, eps=eps)
        self.hidden_norm = None if index else RMSNorm(size, eps=eps)
        self.self_attn = HeadAttention(config, index, size if index else 2 * size, eps if config.qk_norm else None)
        self.post_attention_layernorm = RMSNorm(size, eps=eps)
        self.mlp = SwiGLUExpert(size, config.expert_intermediate_size)

    def forward(
        self, embeddings: Tensor, hidden: Tensor, angles: Angles, mask: Tensor | None, cache: PassCache | None
    ) -> Tensor:
        """Return the (batch, rows, hidden) states after the layer; only the first layer reads the embeddings."""
        if self.hidden_norm is None:
            read = self.input_layernorm(hidden)
        else:
            normed = self.hidden_norm(hidden)
            read = torch.cat([self.input_layernorm(embeddings), normed], dim=-1)
            hidden = normed if self.norm_before_residual else hidden
        hidden = hidden + self.self_attn(read, angles, mask, cache)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class Eagle3Head(StatesHead):
    """A head with its own output rows over a draft vocabulary."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__(config, (Eagle3Layer(config, index) for index in range(config.num_layers)))
        states, eps = config.num_states * config.target_hidden_size, config.rms_norm_eps
        self.input_norm = RMSNorm(states, eps=eps) if config.norm_before_fc else None
        self.fc_norm = None
        if config.fc_norm:
            self.fc_norm = nn.ModuleList(RMSNorm(config.target_hidden_size, eps=eps) for _ in range(config.num_states))

    def logits(self, features: Tensor) -> Tensor:
        """Return the (…, draft vocabulary) logits of (…, hidden) states as the head feeds them back."""
        return super().logits(features if self.config.norm_output else self.norm(features))

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        cache: PassCache | None = None,
    ) -> HeadOutput:
        """Run one pass over tokens; arguments as in `LayerHead.forward`.

        Args:
            features: (batch, rows, hidden), the head's own states, or the target's as `map_features` returns them.
        """
        hidden = features
        cos, sin = self.rotary(hidden, positions)
        for layer in self.layers:
            hidden = layer(embeddings, hidden, (cos, signed(sin)), mask, cache)
        return row_output(self.norm(hidden) if self.config.norm_output else hidden)

    def extend(self, token_ids: Tensor, features: Tensor, cache: PassCache) -> HeadOutput:
        """Extend the cache by committed tokens and the target's features, which `fc` maps to the head's width."""
        return super().extend(token_ids, self.map_features(features), cache)

    def map_features(self, features: Tensor) -> Tensor:
        """Map the target's features to the head's width.

        Args:
            features: (…, feature_size); the last hidden state, which comes first, is not read.

        Returns:
            (…, hidden).
        """
        states = features[..., self.config.target_hidden_size :]
        if self.input_norm is not None:
            states = self.input_norm(states)
        if self.fc_norm is not None:
            parts = states.chunk(len(self.fc_norm), dim=-1)
            states = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        return self.fc(states)
