"""What all draft heads share: a config, a draft vocabulary, and the target's embedding and output matrices.

A head is a network that proposes features of the target; its distribution is the target's output function over them.
"""

import torch
from torch import Tensor, nn

from jakiro.heads.config import DraftConfig
from jakiro.heads.layers import HeadOutput, row_output
from jakiro.models.target import TargetModel
from jakiro.ops.cache import RowCache
from jakiro.ops.linear import Packing, RowTable, linear_kernels, looked_up, pack_linears, packed_linear, packing_works

PRECISIONS = ("int8", "full")


def known_precision(name: str) -> str:
    """The name of a draft precision, as `DraftHead.pack` takes it.

    Raises:
        ValueError: there is none of this name.
    """
    if name not in PRECISIONS:
        raise ValueError(f"Draft precision must be one of {', '.join(PRECISIONS)}; got {name!r}.")
    return name


class DraftHead(nn.Module):
    """A network bound to its target's embedding and output function.

    `bind` must be called before `embed` and `logits`: the target's tensors are shared and never saved with the head.

    Attributes:
        precision: of the matrices it drafts with, one of `PRECISIONS`.
        capturable: whether its passes run over any `PassCache`, as captured ones do.
        packable: whether there are packed forms of its layers.
        skipped_tokens: at a text's beginning, those without a place in its cache; where a token is paired with the
            target's feature one position before it, the first one has none.
        root_rows: positions at the end of what `extend` returns from which a tree begins.
        drafted_rows: positions that drafting writes into the cache at least, however small the tree.
        num_experts: Number of experts of its layer.
        mixes_experts: Whether each expert has a distribution of its own, mixed with the router's weights.
        has_contrastive_branch: Whether a pass also predicts the feature one position further.
    """

    skipped_tokens = 1
    root_rows = 1
    drafted_rows = 0
    capturable = packable = True
    num_experts = 1
    mixes_experts = has_contrastive_branch = False

    @property
    def levels(self) -> int | None:
        """What it predicts along a text in one pass: levels of its deepest tree; None where it goes on with its own
        features.
        """
        return None

    def __init__(self, config: DraftConfig) -> None:
        super().__init__()
        self.config = config
        vocabulary = torch.arange(config.draft_vocab_size or config.vocab_size)
        self.register_buffer("draft_token_ids", vocabulary, persistent=config.draft_vocab_size is not None)
        self.embedding: Tensor | None = None
        self.output_weight: Tensor | None = None
        self.output_layer: nn.Module | None = None
        self.precision = "full"

    def bind(self, embedding: Tensor | RowTable, output_weight: Tensor | RowTable) -> "DraftHead":
        """Shares the target's raw embedding and output matrix, both (vocab_size, hidden_size), see `looked_up`.

        Raises:
            ValueError: the target's sizes are not those the head was made for.
        """
        expected = (self.config.vocab_size, self.config.target_hidden_size)
        for name, weight in (("embedding", embedding), ("output", output_weight)):
            if tuple(weight.shape) != expected:
                raise ValueError(
                    f"The draft head was made for {name} rows of shape {expected}, the target has "
                    f"{tuple(weight.shape)}; choose a head trained for this target."
                )
        parameter = next(self.parameters())
        self.embedding = embedding.detach() if isinstance(embedding, Tensor) else embedding
        if self.config.draft_vocab_size is not None or not isinstance(output_weight, Tensor):
            output_weight = looked_up(output_weight, self.draft_token_ids.to(output_weight.device))
        self.output_weight = output_weight.detach().to(device=parameter.device, dtype=parameter.dtype)
        self.mean_output_row = self.output_weight.float().mean(0).to(parameter.dtype)
        return self

    def attach(self, target: TargetModel) -> None:
        """Takes what it runs of the target itself; most heads run nothing of it.

        Raises:
            ValueError: this target cannot run in parts.
        """

    def embed(self, token_ids: Tensor) -> Tensor:
        return looked_up(self.embedding, token_ids.to(self.embedding.device)).to(
            device=self.output_weight.device, dtype=self.output_weight.dtype
        )

    def logits(self, features: Tensor) -> Tensor:
        """(…, hidden) → (…, draft vocabulary)."""
        if self.output_layer is not None:
            return self.output_layer(features)
        return torch.nn.functional.linear(features, self.output_weight)

    def pack(self, precision: str = "int8") -> "DraftHead":
        """Prepares a bound head for drafting, after which there is no training: on a CPU matrices are packed, as far as
        this machine can, on a GPU those with the same input are fused.

        Args:
            precision: "int8" rounds the large matrices to 8 bits; "full" keeps their numbers.
        """
        device = self.output_weight.device
        if device.type == "cuda":
            self.fuse()
        if packing_works(device, self.output_weight.dtype) and self.packable:
            # int8 where compiled code multiplies such matrices
            int8_linear = linear_kernels().int8_linear
            self.precision = "int8" if precision == "int8" and int8_linear is not None else "full"
            packing = packed_linear if self.precision == "full" else int8_linear
            self.pack_matrices(packing)
            self.output_layer = packing(self.output_weight, None)
        return self

    def pack_matrices(self, packing: Packing) -> None:
        """Packs all matrices but the output matrix."""
        pack_linears(self, packing)

    def fuse(self) -> None:
        """Fuses matrices with the same input, as on a GPU."""

    def extend(self, token_ids: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """Extends the cache by committed tokens, (n,) int64; features are the target's, one position before each."""
        return self._extend(self.embed(token_ids), features, cache)

    def _extend(self, embeddings: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """One causal pass over tokens that follow the cached ones: (tokens, hidden) and (tokens, feature_size)."""
        places = torch.arange(embeddings.shape[0], device=embeddings.device)
        # Compared, because `tril` would wake all threads on a CPU
        mask = None if cache.is_empty else cache.visible(places <= places[:, None])[None, None]
        return self(embeddings[None], features[None], (places + cache.length)[None], mask, cache)

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers, key/value heads and head_dim of what a cache keeps."""
        return self.config.num_layers, self.config.num_key_value_heads, self.config.head_dim

    def new_cache(self, capacity: int) -> RowCache:
        """An empty cache for one sequence."""
        layers, kv_heads, head_dim = self.cache_shape
        return RowCache(layers, capacity, rows=self.output_weight.new_zeros((layers, 2, kv_heads, capacity, head_dim)))


class CountedRows:
    """In place of a cache where nothing is kept of a text but its length."""

    capacity = float("inf")

    def __init__(self) -> None:
        self.length = 0

    def keep(self, length: int) -> None:
        self.length = length


class FeatureHead(DraftHead):
    """A head that predicts all levels from the target's last feature alone.

    Its `forward` takes the target's features, (…, hidden), to (levels, …, hidden) of what each level predicts.
    """

    @property
    def root_rows(self) -> int:
        return self.levels

    def new_cache(self, capacity: int) -> CountedRows:
        return CountedRows()

    def extend(self, token_ids: Tensor, features: Tensor, cache: CountedRows) -> HeadOutput:
        """Takes committed tokens; predicts all levels' features from the last one's, in the place of tokens."""
        cache.length += token_ids.shape[0]
        return row_output(self(features[-1:])[:, 0][None])
