"""The Jakiro head: one decoder layer whose mixture of experts predicts the target's next features.

From [E[x_{t+1}]; h_t] to the feature at t + 1, and with summed fusion, from the same pass, the contrastive feature one
position further. Verification and the growing of trees live elsewhere. Jakiro, arXiv 2502.06282, section 3.
"""

from functools import reduce

import torch
from torch import Tensor, nn

from jakiro.heads.compiled import NativeHeadLayer
from jakiro.heads.config import DraftConfig
from jakiro.heads.layers import Angles, HeadLayer, HeadOutput, rotary_embedding
from jakiro.kernels.linear import native_works, packed_linear, packing_works
from jakiro.kernels.quantized import QuantizedLinear, quantizing_works
from jakiro.kernels.rotary import AngleTable, changes_with_length, signed
from jakiro.target.cache import PassCache, RowCache

PRECISIONS = ("int8", "full")


def known_precision(name: str) -> str:
    """The name of a draft precision, as `JakiroHead.pack` takes it.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in PRECISIONS:
        raise ValueError(f"Draft precision must be one of {', '.join(PRECISIONS)}; you gave {name!r}.")
    return name


class JakiroHead(nn.Module):
    """A draft head bound to its target's embedding rows and output function.

    Args:
        config: sizes and fusion.

    `bind` must be called before `embed` and `logits`: the target's tensors are shared and never saved with the head.
    """

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        self.fc = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=config.fc_bias)
        if config.feature_layers:
            deeper = config.feature_size - config.hidden_size
            self.fc_layers = nn.Linear(deeper, config.hidden_size, bias=False)
        self.layers = nn.ModuleList([HeadLayer(config)])
        self.rotary = rotary_embedding(config)
        vocabulary = torch.arange(config.draft_vocab_size or config.vocab_size)
        self.register_buffer("draft_token_ids", vocabulary, persistent=config.draft_vocab_size is not None)
        self.embedding: Tensor | None = None
        self.output_weight: Tensor | None = None
        self._output_layer: nn.Module | None = None
        self._table: AngleTable | None = None
        self._native: NativeHeadLayer | None = None
        self.precision = "full"

    def bind(self, embedding: Tensor, output_weight: Tensor) -> "JakiroHead":
        """Shares the target's raw embedding rows and output rows, both (vocab_size, hidden_size).

        Raises:
            ValueError: the target's sizes are not those the head was made for.
        """
        expected = (self.config.vocab_size, self.config.hidden_size)
        for name, weight in (("embedding", embedding), ("output", output_weight)):
            if tuple(weight.shape) != expected:
                raise ValueError(
                    f"draft head was made for {name} rows of shape {expected}, the target has {tuple(weight.shape)}; "
                    "choose a head trained for this target"
                )
        parameter = self.fc.weight
        self.embedding = embedding.detach()
        output_weight = output_weight.detach().to(device=parameter.device, dtype=parameter.dtype)
        reduced = self.config.draft_vocab_size is not None
        self.output_weight = output_weight[self.draft_token_ids] if reduced else output_weight
        self.mean_output_row = self.output_weight.float().mean(0).to(parameter.dtype)
        return self

    def embed(self, token_ids: Tensor) -> Tensor:
        return torch.nn.functional.embedding(token_ids.to(self.embedding.device), self.embedding).to(
            device=self.output_weight.device, dtype=self.output_weight.dtype
        )

    def pack(self, precision: str = "int8") -> "JakiroHead":
        """Packs the matrices for drafting on a CPU, as far as this build of torch can; no training after it.

        Args:
            precision: "int8" rounds the large matrices to 8 bits; "full" keeps their numbers.
        """
        device, dtype = self.fc.weight.device, self.fc.weight.dtype
        if not packing_works(device, dtype) or changes_with_length(self.rotary):
            return self
        self.precision = "int8" if precision == "int8" and quantizing_works(device) else "full"
        rounded = QuantizedLinear if self.precision == "int8" else packed_linear
        layer, deeper = self.layers[0], self.fc_layers if self.config.feature_layers else None
        self._table = AngleTable(self.rotary)
        if native_works() and NativeHeadLayer.fits(layer):
            self._native = NativeHeadLayer(self.fc, deeper, layer, self._table, rounded=self.precision == "int8")
        layer.pack(rounded)
        # Never rounded: embeddings and features are of very different sizes
        self.fc = packed_linear(self.fc.weight, self.fc.bias)
        if deeper is not None:
            self.fc_layers = packed_linear(deeper.weight, None)
        self._output_layer = rounded(self.output_weight, None)
        return self

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers, key/value heads and head_dim of what a cache keeps."""
        return len(self.layers), self.config.num_key_value_heads, self.config.head_dim

    def new_cache(self, capacity: int) -> RowCache:
        """An empty cache for one sequence."""
        layers, kv_heads, head_dim = self.cache_shape
        return RowCache(layers, capacity, rows=self.output_weight.new_zeros((layers, 2, kv_heads, capacity, head_dim)))

    def read(self, token_ids: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """Reads committed tokens into the cache: (rows,) int64, and the target's features one position before each."""
        start, rows = cache.length, token_ids.shape[0]
        positions = torch.arange(start, start + rows, device=token_ids.device)
        # Compared, because `tril` would wake all threads on a CPU
        mask = cache.visible(positions <= positions[:, None])[None, None] if start > 0 else None
        return self(self.embed(token_ids)[None], features[None], positions[None], mask, cache)

    def logits(self, features: Tensor) -> Tensor:
        """(…, hidden) → (…, draft vocabulary)."""
        if self._output_layer is not None:
            return self._output_layer(features)
        return torch.nn.functional.linear(features, self.output_weight)

    def forward(
        self,
        embeddings: Tensor,
        features: Tensor,
        positions: Tensor,
        mask: Tensor | None = None,
        cache: PassCache | None = None,
    ) -> HeadOutput:
        """One pass over rows.

        Args:
            embeddings: (batch, rows, hidden), rows of the token one ahead of its feature.
            features: (batch, rows, hidden), the target's (or the head's own) feature at each position; rows of the
                target are (1 + feature_layers) · hidden wide where the config names layers.
            positions: (batch or 1, rows) int64, the rotary position of each row: that of its feature.
            mask: bool, broadcastable to (batch, heads, rows, keys); None means causal over the rows alone.
            cache: rows before these, extended in place.
        """
        if self._native is not None and self._native.takes(embeddings, cache):
            return self._native(embeddings, features, positions, mask, cache)
        last, deeper = features.tensor_split([self.config.hidden_size], dim=-1)
        hidden = self.stream(torch.cat([embeddings, last], dim=-1), deeper)
        angles = self.angles(hidden, positions, cache)
        residual, expert_outputs, router_logits = self.layers[0](hidden, angles, mask, cache)
        num_experts = self.config.num_experts
        weights = router_logits[..., :num_experts].softmax(-1)
        if self.config.fusion == "decoupled":
            return HeadOutput(residual + expert_outputs, None, residual, expert_outputs, weights, None)
        features = residual + _weighted(weights, expert_outputs)
        if not self.config.contrastive:
            return HeadOutput(features, None, residual, expert_outputs, weights, None)
        pair = router_logits[..., num_experts:]
        first_is_stronger = torch.where(pair[..., :1] >= pair[..., 1:], 1.0, -1.0).to(pair.dtype)
        sign = torch.cat([first_is_stronger, -first_is_stronger], dim=-1)
        contrastive_weights = pair.softmax(-1) * sign
        contrastive = residual + _weighted(contrastive_weights, expert_outputs)
        return HeadOutput(features, contrastive, residual, expert_outputs, weights, contrastive_weights)

    def angles(self, hidden: Tensor, positions: Tensor, cache: PassCache | None = None) -> Angles:
        """Of the rotary embedding, for rows that follow the cache's."""
        if self._table is None:
            cos, sin = self.rotary(hidden, positions)
            return cos, signed(sin)
        # No row stands after the cache's end; without a cache positions are read, which drafting never does
        last = int(positions.max()) if cache is None else cache.length + positions.shape[1]
        return self._table.at(positions, last)

    def stream(self, inputs: Tensor, deeper: Tensor) -> Tensor:
        """What the layer reads.

        Args:
            inputs: (…, 2 · hidden), embedding and last hidden state.
            deeper: (…, feature_layers · hidden), which adds to it; no columns for the head's own features.
        """
        hidden = self.fc(inputs)
        return hidden + self.fc_layers(deeper) if deeper.shape[-1] else hidden


def mixture(joint: Tensor) -> Tensor:
    """log Σ_e exp(joint[e]), the log of what experts give together: (experts, …) → (…).

    Over so short a first dimension `logsumexp` takes three times as long on a CPU.
    """
    return reduce(torch.logaddexp, joint)


def _weighted(weights: Tensor, expert_outputs: Tensor) -> Tensor:
    """Σ_e weights[…, e] · expert_outputs[e, …]."""
    return (weights.movedim(-1, 0).unsqueeze(-1) * expert_outputs).sum(0)
