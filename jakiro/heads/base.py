"""Base classes of draft heads: a config, a draft vocabulary, and the target's embedding and output matrices.

A head is a network that predicts features of the target; its distribution is the target's output function of them.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from jakiro.heads.config import DraftConfig
from jakiro.heads.layers import HeadOutput, row_output
from jakiro.models.target import TargetModel
from jakiro.ops.cache import RowCache
from jakiro.ops.device import launches_dominate
from jakiro.ops.linear import Packing, RowTable, linear_kernels, looked_up, pack_linears, packed_linear, packing_works

PRECISIONS = ("int8", "full")


def known_precision(name: str) -> str:
    """Return a name that is a draft precision, see `DraftHead.pack`.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in PRECISIONS:
        raise ValueError(f"Draft precision must be one of {', '.join(PRECISIONS)}; got {name!r}.")
    return name


class ChosenCandidates(Protocol):
    """The root and the candidates that become nodes of a tree, see `jakiro.drafters.candidates.Candidates`.

    Attributes:
        token_ids: (nodes,) int64.
        proposers: (nodes,) int64; −1 for the root, `num_experts` for the contrastive branch.
        rows: (nodes,) int64, index of each node's output row over all passes.
    """

    token_ids: Tensor
    proposers: Tensor
    rows: Tensor


class DraftHead(nn.Module):
    """A network bound to its target's embedding and output function.

    `bind` must be called before `embed` and `logits`: the target's tensors are shared and never saved with the head.

    Attributes:
        precision: Precision of the packed matrices, one of `PRECISIONS`.
        capturable: Whether its passes run over any `PassCache`, as captured passes require.
        packable: Whether its layers have packed forms.
        skipped_tokens: Number of tokens at the beginning of a text without a row in the cache. It is 1 for a head that
            pairs each token with the target's feature one position before.
        root_rows: Number of last positions in the result of `extend` from which a tree starts.
        drafted_rows: Smallest number of cache positions that drafting writes, for a tree of any size.
        num_experts: Number of experts of its layer.
        mixes_experts: Whether each expert has a distribution of its own, mixed with the router's weights.
        has_contrastive_branch: Whether a pass also predicts the feature one position later.
        evidence_schema: Name and width of each matrix of `node_evidence`.
    """

    skipped_tokens = 1
    root_rows = 1
    drafted_rows = 0
    capturable = packable = True
    num_experts = 1
    mixes_experts = has_contrastive_branch = False
    evidence_schema: tuple[tuple[str, int], ...] = ()

    @property
    def levels(self) -> int | None:
        """Number of levels that one pass predicts; None for a head that continues from its own features."""
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
        """Share the target's embedding and output matrix; return the head.

        The output rows of the draft vocabulary are kept, in the head's dtype and on its device.

        Args:
            embedding: (vocab_size, target_hidden_size), a matrix or a table for `looked_up`.
            output_weight: The same shape.

        Raises:
            ValueError: the head was made for a target of another size.
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
        """Store the layers of the target that the head runs; most heads run none.

        Raises:
            ValueError: the layers of this target cannot run separately.
        """

    def embed(self, token_ids: Tensor) -> Tensor:
        return looked_up(self.embedding, token_ids.to(self.embedding.device)).to(
            device=self.output_weight.device, dtype=self.output_weight.dtype
        )

    def logits(self, features: Tensor) -> Tensor:
        """Return the (…, draft vocabulary) logits of (…, hidden) features."""
        if self.output_layer is not None:
            return self.output_layer(features)
        return torch.nn.functional.linear(features, self.output_weight)

    def node_evidence(
        self, outputs: Sequence[HeadOutput], chosen: ChosenCandidates
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return additional numbers of a tree's nodes, by default none.

        Args:
            outputs: Outputs of all passes, the root's row first.
            chosen: The nodes of the tree.

        Returns:
            Matrices by the names of `evidence_schema`, (nodes, width) float32, and (nodes,) int64 proposers.
        """
        return {}, chosen.proposers

    def map_features(self, features: Tensor) -> Tensor:
        """Map the target's features, (…, feature_size), to the inputs of `forward`; by default they are equal."""
        return features

    def pack(self, precision: str = "int8") -> "DraftHead":
        """Prepare a bound head for drafting; afterwards it cannot be trained.

        On a CPU matrices are packed if this machine supports it. On a GPU matrices with the same input are fused.

        Args:
            precision: "int8" rounds the large matrices to 8 bits; "full" keeps their numbers.
        """
        device = self.output_weight.device
        if launches_dominate(device):
            self.fuse()
        if packing_works(device, self.output_weight.dtype) and self.packable:
            # Only compiled code multiplies int8 matrices
            int8_linear = linear_kernels().int8_linear
            self.precision = "int8" if precision == "int8" and int8_linear is not None else "full"
            packing = packed_linear if self.precision == "full" else int8_linear
            self.pack_matrices(packing)
            self.output_layer = packing(self.output_weight, None)
        return self

    def pack_matrices(self, packing: Packing) -> None:
        """Pack all matrices except the output matrix."""
        pack_linears(self, packing)

    def fuse(self) -> None:
        """Fuse matrices with the same input."""

    def extend(self, token_ids: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """Extend the cache by committed tokens.

        Args:
            token_ids: (n,) int64.
            features: (n, feature_size), the target's features one position before each token.
        """
        return self._extend(self.embed(token_ids), features, cache)

    def _extend(self, embeddings: Tensor, features: Tensor, cache: RowCache) -> HeadOutput:
        """Run a causal pass over tokens after the cached ones: (tokens, hidden) and (tokens, feature_size)."""
        places = torch.arange(embeddings.shape[0], device=embeddings.device)
        # A comparison, because `tril` would wake all threads on a CPU
        mask = None if cache.is_empty else cache.visible(places <= places[:, None])[None, None]
        return self(embeddings[None], features[None], (places + cache.length)[None], mask, cache)

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers, key/value heads and head_dim of a cache."""
        return self.config.num_layers, self.config.num_key_value_heads, self.config.head_dim

    def new_cache(self, capacity: int) -> RowCache:
        """Return an empty cache for one sequence."""
        layers, kv_heads, head_dim = self.cache_shape
        return RowCache(layers, capacity, rows=self.output_weight.new_zeros((layers, 2, kv_heads, capacity, head_dim)))


class CountedRows:
    """Replacement of a cache that stores only the length of a text."""

    capacity = float("inf")

    def __init__(self) -> None:
        self.length = 0

    def keep(self, length: int) -> None:
        self.length = length


class FeatureHead(DraftHead):
    """A head that predicts all levels from the target's last feature.

    Its `forward` maps the target's features, (…, hidden), to the predictions of all levels, (levels, …, hidden).
    """

    @property
    def root_rows(self) -> int:
        return self.levels

    def new_cache(self, capacity: int) -> CountedRows:
        return CountedRows()

    def extend(self, token_ids: Tensor, features: Tensor, cache: CountedRows) -> HeadOutput:
        """Count committed tokens and return the features of all levels, predicted from the last token's feature."""
        cache.length += token_ids.shape[0]
        return row_output(self(features[-1:])[:, 0][None])
