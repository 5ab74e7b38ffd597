"""Passes of a target: `prefill` reads a prompt, `score` runs a whole draft tree at once.

This module does not depend on drafting; the rules for model families are in `families.py`.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from jakiro.config import MOST_NODES
from jakiro.core.tree import DraftTree, ancestor_mask
from jakiro.models.families import EXACT, OWN, STOCK, AttentionImpl, additive
from jakiro.models.features import features_of
from jakiro.models.weights import TargetWeights
from jakiro.ops.cache import PassCache, RowCache, cache_argument

PREFILL_CHUNK = 512
# On a GPU a pass over a tree runs with a multiple of so many rows: all trees use one kernel, at nearly the same cost
TREE_ROWS = 64


@dataclass(frozen=True, slots=True)
class AttentionModes:
    """The attention implementations that give a model's own logits, found by trial passes at load.

    Attributes:
        fast: Implementation for prompts and for fast numerics.
        exact: Whether order-independent attention gives the stock model's logits too.
        wide: Dtype of caches in exact numerics; None for the model's own.
    """

    fast: AttentionImpl = STOCK
    exact: bool = True
    wide: torch.dtype | None = None


@dataclass(frozen=True, slots=True)
class PassSettings:
    """Settings of a target's passes; the result of its trial passes.

    Attributes:
        modes: Attention implementations.
        numerics: "exact" or "fast".
        requested_numerics: The numerics that the caller requested.
        min_rows: Rows of a pass at least, so that a single row is rounded as in a tree.
        bucketed: Whether passes run with one row or a multiple of `TREE_ROWS`, as on a GPU.
        bit_identical: Whether trial passes over trees and over single tokens gave the same bits.
        feature_layers: Layers with hidden states that follow the last one in features.
    """

    modes: AttentionModes
    numerics: str
    requested_numerics: str
    min_rows: int = 1
    bucketed: bool = False
    bit_identical: bool = False
    feature_layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Scores:
    """One target pass over a tree.

    Attributes:
        logits: (num_nodes, vocab_size) raw logits.
        features: (num_nodes, feature_size), last hidden states after the final norm, then those of `feature_layers`.
        mask: (num_nodes, num_nodes) bool ancestor-or-self mask.
    """

    logits: Tensor
    features: Tensor
    mask: Tensor


class TargetPasses:
    """Passes over the weights of a target with fixed settings.

    Args:
        weights: Weights, which several objects may share.
        settings: Values of the attributes below.

    Attributes:
        embedding: See `TargetWeights`.
        output_weight: See `TargetWeights`.
        device: Device of trees and logits.
        bucketed: See `PassSettings`.
        bit_identical: See `PassSettings`.
        feature_layers: See `PassSettings`.
    """

    def __init__(self, weights: TargetWeights, settings: PassSettings) -> None:
        self.weights, self.settings = weights, settings
        self.model, self.config, self.fused, self.logits = weights.model, weights.config, weights.fused, weights.logits
        self.embedding, self.output_weight = weights.embedding, weights.output_weight
        self.device, self.dtype = weights.device, weights.dtype
        self.max_positions = weights.max_positions
        self.numerics, self.bit_identical = settings.numerics, settings.bit_identical
        self.bucketed, self.feature_layers = settings.bucketed, settings.feature_layers
        self.window = getattr(self.config, "sliding_window", None)

    @property
    def chains_only(self) -> bool:
        """True if only chains can be scored, because the model counts positions inside its own attention."""
        return self.settings.modes.fast is OWN

    @property
    def is_spread(self) -> bool:
        """Return whether passes move layers between devices, so that trees of all sizes cost nearly the same."""
        return self.weights.is_spread

    @property
    def compiled(self) -> bool:
        """True if passes over trees run in compiled code."""
        return self.weights.is_compiled

    @property
    def max_reusable_tokens(self) -> int:
        """Length of the longest prefix with key/value rows that do not depend on the chunks of the prompt."""
        return self.max_positions if self.compiled else 0

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def feature_size(self) -> int:
        """Width of a feature row."""
        return (1 + len(self.feature_layers)) * self.hidden_size

    @property
    def vocab_size(self) -> int:
        return self.embedding.shape[0]

    @property
    def cache_dtype(self) -> torch.dtype:
        """Dtype of cached keys and values.

        Exact numerics caches float64 copies if they fit, so that nothing is converted twice. Compiled code converts in
        registers and caches the model's dtype.
        """
        if self.compiled or self.numerics != "exact":
            return self.dtype
        return self.settings.modes.wide or self.dtype

    def new_cache(self, capacity: int) -> RowCache:
        """Return an empty cache for `capacity` rows."""
        if self.compiled:
            layers, kv_heads, head_dim = self.fused.cache_shape
            return RowCache(layers, capacity, rows=torch.zeros(layers, 2, kv_heads, capacity, head_dim, device="cpu"))
        storage = None if self.cache_dtype == self.dtype else self.cache_dtype
        return RowCache(self.config.num_hidden_layers, capacity, storage)

    def row_bucket(self, num_nodes: int) -> int:
        """Return the number of rows of a pass over `num_nodes` nodes.

        In exact numerics plain and tree passes must round in the same way. On a CPU a single row may be rounded
        differently from two or more. On a GPU any two numbers of rows may differ, so exact plain passes there run with
        as many rows as a tree.
        """
        if not self.bucketed:
            return max(num_nodes, self.settings.min_rows)
        if num_nodes == 1 and self.numerics == "fast":
            return 1
        # With layers outside the GPU more rows cost nothing, so all trees run with the same number
        bucket = MOST_NODES if self.is_spread else TREE_ROWS
        return -(-num_nodes // bucket) * bucket

    def rounds_alike(self, num_nodes: int) -> bool:
        """Return whether a tree of this size has as many rows as plain decoding, or rows do not affect rounding."""
        return not self.bucketed or self.row_bucket(num_nodes) == self.row_bucket(1)

    @torch.inference_mode()
    def prefill(self, token_ids: Tensor, cache: RowCache) -> tuple[Tensor, Tensor]:
        """Read a prompt, or tokens that follow the cached rows. Chunks do not depend on the numerics.

        Args:
            token_ids: (num_tokens,) int64, at least one.
            cache: Extended in place.

        Returns:
            (num_tokens, feature_size) features and (1, vocab_size) logits of the last position.
        """
        features = []
        while token_ids.shape[0]:
            start = cache.length
            chunk, token_ids = token_ids.tensor_split([PREFILL_CHUNK - start % PREFILL_CHUNK])
            positions = torch.arange(start, start + chunk.shape[0], device=self.device)
            columns = torch.arange(start + chunk.shape[0], device=self.device)
            mask = columns <= positions[:, None]
            attention = EXACT if self.compiled else self.settings.modes.fast
            features.append(self._forward(chunk, positions, mask, columns, cache, attention))
        last_rows = features[-1][-2:]
        return torch.cat(features), self.logits(self._last_layer(last_rows))[-1:]

    @torch.inference_mode()
    def score(self, tree: DraftTree, cache: PassCache, live: int | None = None) -> Scores:
        """Run all nodes of a tree in one pass under the tree mask.

        The cache must hold exactly the committed tokens before the root. The pass appends one row per node, padding
        included; the caller keeps the accepted ones with `RowCache.keep`.

        Args:
            tree: The draft tree.
            cache: Extended in place.
            live: Number of nodes before the padding that the caller added; None if there is none.

        Raises:
            ValueError: The tree branches and the target scores chains only.
        """
        num_nodes = tree.num_nodes
        if self.chains_only and tree.max_depth < num_nodes - 1:
            raise ValueError(f"{self.config.model_type} can score chains only; set the tree's width to 1.")
        rows = self.row_bucket(num_nodes)
        mask = ancestor_mask(tree.parents, tree.max_depth)
        token_ids, positions = tree.token_ids, tree.depths + cache.length
        padded_mask = mask
        if rows > num_nodes:
            padding = rows - num_nodes
            token_ids = torch.cat([token_ids, token_ids.new_zeros(padding)])
            positions = torch.cat([positions, positions[:1].expand(padding)])
            padded_mask = torch.eye(rows, dtype=torch.bool, device=self.device)
            padded_mask[:num_nodes, :num_nodes] = mask
        features = self.features(token_ids, positions, cache.visible(padded_mask), cache, live or num_nodes)
        return Scores(self.logits(self._last_layer(features))[:num_nodes], features[:num_nodes], mask)

    @torch.inference_mode()
    def features(
        self, token_ids: Tensor, positions: Tensor, visible: Tensor, cache: PassCache, live: int | None = None
    ) -> Tensor:
        """Run rows that follow the cached ones, for a tree or for a drafter that runs this model.

        Args:
            token_ids: (rows,) int64.
            positions: (rows,) int64.
            visible: (rows, columns) bool, see `RowCache.visible`.
            cache: Extended in place.
            live: As in `score`.

        Returns:
            (rows, feature_size) features.
        """
        # Nodes after the last position are never accepted, but a table of position embeddings ends there
        positions = positions.clamp(max=self.max_positions - 1)
        column_positions = cache.column_positions(positions) if self.window else None
        attention = EXACT if self.numerics == "exact" else self.settings.modes.fast
        return self._forward(token_ids, positions, visible, column_positions, cache, attention, live)

    def _last_layer(self, features: Tensor) -> Tensor:
        """Return the columns that the output function reads, (rows, hidden_size)."""
        return features[:, : self.hidden_size] if self.feature_layers else features

    def _forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        visible: Tensor,
        column_positions: Tensor | None,
        cache: PassCache,
        attention: AttentionImpl,
        live: int | None = None,
    ) -> Tensor:
        """Return the (rows, feature_size) features of (rows,) tokens; `visible` is (rows, columns) bool."""
        if self.fused is not None:
            visible = self._windowed(visible, positions, column_positions) if self._only_windows else visible
            is_exact = attention is EXACT
            return self.fused(token_ids, positions, visible, cache, is_exact, self.feature_layers, live)
        cache_name = cache_argument(type(self.model.base_model).forward)
        inputs = {"input_ids": token_ids[None], cache_name: cache, "use_cache": True}
        if attention.mask == "own":
            inputs["attention_mask"] = torch.ones((1, visible.shape[1]), dtype=torch.int64, device=self.device)
        else:
            inputs["attention_mask"] = self._masks(visible, positions, column_positions, attention.mask == "float")
            if self.weights.takes_positions:
                inputs["position_ids"] = positions[None]
        # Imported here: transformers' models take seconds to import, and listing methods does not need them
        from jakiro.models.attention_modes import exact_attention_if

        with exact_attention_if(attention.exact), self.weights.linears:
            return features_of(self.model.base_model, self.feature_layers, **inputs)[0].to(self.device)

    def _masks(
        self, visible: Tensor, positions: Tensor, column_positions: Tensor | None, is_additive: bool
    ) -> Tensor | dict[str, Tensor]:
        """Return a (1, 1, rows, columns) mask, or one per layer type if the family mixes full and sliding attention."""

        def four_dimensional(mask: Tensor) -> Tensor:
            return (additive(mask, self.dtype) if is_additive else mask)[None, None]

        if self._only_windows:
            return four_dimensional(self._windowed(visible, positions, column_positions))
        full = four_dimensional(visible)
        if self.window and len(set(getattr(self.config, "layer_types", None) or [])) > 1:
            windowed = four_dimensional(self._windowed(visible, positions, column_positions))
            return {"full_attention": full, "sliding_attention": windowed}
        return full

    @property
    def _only_windows(self) -> bool:
        """True if every layer has a sliding window."""
        layer_types = set(getattr(self.config, "layer_types", None) or ["sliding_attention"])
        uses_window = getattr(self.config, "use_sliding_window", True)
        return bool(self.window) and uses_window and layer_types == {"sliding_attention"}

    def _windowed(self, visible: Tensor, positions: Tensor, column_positions: Tensor) -> Tensor:
        return visible & (positions[:, None] - column_positions < self.window)
