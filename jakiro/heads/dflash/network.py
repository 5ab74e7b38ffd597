"""The DFlash head: root and mask tokens attend to states of the target and to each other, one pass for a block.

`fc` and `hidden_norm` map the states of each committed token to a context row. Every layer computes keys and values of
the context rows and of the block's rows with the same matrices, and queries of the block's rows only. Only context rows
stay in the cache. The target's output rows score the result of `norm`. DFlash, arXiv 2602.06036, section 4.
"""

import torch
from torch import Tensor, nn

from jakiro.heads.dflash.config import DFlashConfig
from jakiro.heads.layers import Angles, HeadAttention, HeadOutput, RMSNorm, SwiGLUExpert, row_output
from jakiro.heads.states_head import StatesHead
from jakiro.ops.cache import PassCache
from jakiro.ops.rotary import apply_rotary, changes_with_length, signed


class BlockAttention(HeadAttention):
    """Attention of a block; `fuse` keeps the three matrices, because context rows use two of them."""

    def fuse(self) -> None:
        self.grouped = self.num_heads > self.num_kv_heads

    def write(self, context: Tensor, angles: Angles, cache: PassCache) -> None:
        """Add the keys and values of context rows, (batch, positions, hidden), to the cache."""
        keys, values = (part(context).unflatten(-1, (-1, self.head_dim)) for part in (self.k_proj, self.v_proj))
        cos, signed_sin = (part[..., None, :] for part in angles)
        keys = apply_rotary(self.k_norm(keys), cos, signed_sin)
        cache.update(keys.transpose(1, 2), values.transpose(1, 2), self.index)


class BlockLayer(nn.Module):
    """A decoder layer over a block."""

    def __init__(self, config: DFlashConfig, index: int) -> None:
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = RMSNorm(size, eps=eps)
        self.self_attn = BlockAttention(config, index, norm_eps=eps)
        self.post_attention_layernorm = RMSNorm(size, eps=eps)
        self.mlp = SwiGLUExpert(size, config.expert_intermediate_size)

    def forward(self, hidden: Tensor, angles: Angles, mask: Tensor, cache: PassCache) -> Tensor:
        """Return (batch, tokens, hidden) outputs of inputs of the same shape."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), angles, mask, cache)
        return hidden + self.mlp(self.post_attention_layernorm(hidden))


class DFlashHead(StatesHead):
    """A head that drafts one block per pass."""

    def __init__(self, config: DFlashConfig) -> None:
        super().__init__(config, (BlockLayer(config, index) for index in range(config.num_layers)))
        self.hidden_norm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.drafted_rows = config.block_size
        self.capturable = not changes_with_length(self.rotary)

    @property
    def levels(self) -> int:
        return self.config.num_levels

    def extend(self, token_ids: Tensor, features: Tensor, cache: PassCache) -> HeadOutput:
        """Add the features of committed tokens, (tokens, feature_size), as context; the tokens are not used."""
        places = torch.arange(features.shape[0], device=features.device)
        return row_output(self.write(features[None], places + cache.length, cache))

    def write(self, features: Tensor, positions: Tensor, cache: PassCache) -> Tensor:
        """Add features, (batch, positions, feature_size), to the cache as context, (batch, positions, hidden)."""
        size = self.config.hidden_size
        states = features[..., size:]
        if self.config.reads_last:
            states = torch.cat([states, features[..., :size]], dim=-1)
        context = self.hidden_norm(self.fc(states))
        angles = self._angles(context, positions)
        for layer in self.layers:
            layer.self_attn.write(context, angles, cache)
        return context

    def block(self, root_token: Tensor, cache: PassCache) -> HeadOutput:
        """Run the pass of a block: (1,) int64, the token after the cached ones → (1, levels, hidden) features."""
        size = self.config.block_size
        token_ids = torch.cat([root_token, root_token.new_full((size - 1,), self.config.mask_token_id)])
        positions = torch.arange(size, device=root_token.device) + cache.length
        visible = cache.visible(torch.ones((size, size), dtype=torch.bool, device=root_token.device))
        columns = cache.column_positions(positions)
        hidden = self.run(self.embed(token_ids)[None], positions, columns, positions[:1], visible, cache)
        return row_output(hidden[:, size - self.levels :])

    def run(
        self, hidden: Tensor, positions: Tensor, columns: Tensor, roots: Tensor, visible: Tensor, cache: PassCache
    ) -> Tensor:
        """Run a pass over blocks.

        Args:
            hidden: (batch, tokens, hidden) embeddings.
            positions: (tokens,) int64.
            columns: (columns,) int64, positions of the columns to attend to.
            roots: (tokens or 1,) int64, position of each token's root.
            visible: (tokens, columns) bool, True for context and for columns of the same block.

        Returns:
            (batch, tokens, hidden), the predicted feature of the target for each token.
        """
        angles, masks = self._angles(hidden, positions), {}
        for number, layer in enumerate(self.layers):
            form = number in self.config.causal_layers, number in self.config.sliding_layers
            if form not in masks:
                masks[form] = self._mask(*form, positions[:, None], columns, roots[:, None], visible)[None, None]
            hidden = layer(hidden, angles, masks[form], cache)
        return self.norm(hidden)

    def _mask(
        self, causal: bool, sliding: bool, positions: Tensor, columns: Tensor, roots: Tensor, visible: Tensor
    ) -> Tensor:
        window = self.config.sliding_window
        if causal:
            visible = visible & (columns <= positions)
        if not sliding or window is None:
            return visible
        if self.config.window_from_root:
            return visible & (columns >= roots - window)
        return visible & ((positions - columns).abs() < window)

    def _angles(self, hidden: Tensor, positions: Tensor) -> Angles:
        cos, sin = self.rotary(hidden, positions[None])
        return cos, signed(sin)
