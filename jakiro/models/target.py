"""The target model: any transformers causal language model with `prefill` and `score`.

`score` runs a whole draft tree in one pass and returns logits and features at every node. Drafting is unknown here;
what a family asks for is in `families.py`, the trial passes are in `probes.py`.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jakiro.config import NUMERICS
from jakiro.core.tree import DraftTree, ancestor_mask
from jakiro.models.families import (
    EAGER,
    EXACT,
    OWN,
    STOCK,
    Attending,
    additive,
    makers_settings,
    output_function,
    readable_positions,
    refuse_what_cannot_work,
    stop_ids,
    takes_positions,
)
from jakiro.models.features import check_feature_layers, features_of
from jakiro.models.llama import FusedLlama
from jakiro.models.probes import FULL_PRECISION, OVERFLOW, Trial, chain_among_siblings, random_ids, star_tree
from jakiro.models.stored import StoredModel
from jakiro.ops import kernels
from jakiro.ops.cache import PassCache, RowCache
from jakiro.ops.linear import pack_linears, packed_itemsize, packed_linear, packing_works

# Says of a model that `round_linears` rounded its weights, which compiled code then keeps in 8 bits
ROUNDED = "rounded_to_blocks"
PREFILL_CHUNK = 512
# Rows that a pass over a tree runs with on a GPU, or a multiple: one kernel for all trees, which there cost about alike
TREE_ROWS = 64
# Float64 copies of so many tokens' keys and values may take this share of a GPU's memory
WIDE_TOKENS, WIDE_SHARE = 2048, 0.125
# Sizes of the trees whose passes are compared with single tokens: kernels take 4, 6, 8 or 14 rows at a time and treat
# the rest separately
PROBED_NODES = (2, 3, 7, 15, 31, 64)


@dataclass(frozen=True, slots=True)
class Ways:
    """The ways of attending that a model can be run with, found by trial at load.

    Attributes:
        fast: that of prompts and of fast numerics.
        exact: whether order-independent attention gives the stock model's logits, too.
        wide: what caches keep in exact numerics; None for the model's dtype.
    """

    fast: Attending = STOCK
    exact: bool = True
    wide: torch.dtype | None = None


@dataclass(frozen=True, slots=True)
class Scores:
    """One target pass over a tree.

    Attributes:
        logits: (num_nodes, vocab_size), raw.
        features: (num_nodes, feature_size), last hidden states after the final norm, then those of further layers.
        mask: (num_nodes, num_nodes) bool ancestor-or-self mask.
    """

    logits: Tensor
    features: Tensor
    mask: Tensor


class TargetModel:
    """A causal language model with its tokenizer.

    Args:
        model: a transformers `AutoModelForCausalLM`, already on its device and in its dtype. It is taken over: layers
            of Llama's shape move into a `FusedLlama`, linear layers are packed on a CPU in float32. Or a model in a
            file's own bits.
        tokenizer: its tokenizer.
        name, sha256: what traces call it; a function of the hash where it may not be known yet.
        numerics: "exact" makes plain and tree passes round alike, "fast" uses stock attention and single rows; where a
            family's attention cannot be computed exactly, "fast" is used and `notices` say so. Compiled passes
            are exact whatever is asked: there that costs nothing.
        makers: what its makers ask for where its generation_config asks for nothing.

    Attributes:
        embedding, output_weight: (vocab_size, hidden_size), see `looked_up`.
        device: of trees and logits: that of the output function. A model that is spread over devices moves what it
            needs by itself.
        weight_itemsize: bytes that a weight takes as passes read it; packed weights may take fewer than `dtype` says.
        file_bits: of a weight in its file, in the mean, where passes read a file's own bits; None elsewhere.
        bucketed: passes run with one row or a multiple of `TREE_ROWS`; so it is on a GPU.
        bit_identical: whether trial passes over trees and over single tokens had the same bits.
        feature_layers: layers whose hidden states features hold beside the last; none unless a head reads them.
        notices: sentences to show to people.

    Raises:
        ValueError: unknown numerics, a model that is no decoder with attention in every layer, or one whose passes
            over a tree do not give what it computes for each path alone.
    """

    def __init__(
        self,
        model: nn.Module | StoredModel,
        tokenizer,
        name: str = "",
        sha256: str | Callable[[], str | None] | None = None,
        numerics: str = "exact",
        makers: Mapping[str, float] | None = None,
    ) -> None:
        _refuse_unknown(numerics)
        refuse_what_cannot_work(model.config, type(model))
        self.model, self.tokenizer, self.name, self._sha256 = model, tokenizer, name, sha256
        self.config = model.config.get_text_config()
        if isinstance(model, StoredModel):
            self.embedding, self.output_weight = model.embedding, model.output_weight
        else:
            self.embedding = model.get_input_embeddings().weight.detach()
            self.output_weight = model.get_output_embeddings().weight.detach()
        self.device, self.dtype = self.output_weight.device, self.output_weight.dtype
        self.bucketed = self.device.type == "cuda"
        self.quantized = getattr(model, "quantization_method", None) is not None
        self.feature_layers: tuple[int, ...] = ()
        trial, self.file_bits = None, getattr(model, "file_bits", None)
        if isinstance(model, StoredModel):
            self.fused, self.logits, self.weight_itemsize = model.fused, model.output, model.output.itemsize
        else:
            trial = Trial(model, self.vocab_size, self.device)
            packed = packing_works(self.device, self.dtype)
            packing = kernels.current().rounded_linear if getattr(model, ROUNDED, False) else packed_linear
            self.fused = FusedLlama.build(model, packing if packed else None)
            if self.fused is not None:
                model.base_model.layers = nn.ModuleList()
            if packed:
                pack_linears(model, packing)
            self.weight_itemsize = packed_itemsize(model, self.dtype)
            self.logits = output_function(model, self.output_weight)
            self._takes_positions = takes_positions(model.base_model)
        self.stop_ids = stop_ids(model, tokenizer)
        self.makers_settings = makers_settings(getattr(model, "generation_config", None)) or dict(makers or {})
        self.max_positions, positions_notice = readable_positions(self.config)
        self._notices = [positions_notice] if positions_notice else []
        self.window = getattr(self.config, "sliding_window", None)
        # Compiled passes are tried once a build, and what a stored model computes is known
        self._ways = Ways(wide=torch.float64) if trial is None else self._tried(trial)
        self._decide(numerics)

    def with_numerics(self, numerics: str) -> "TargetModel":
        """The same weights under other numerics; nothing is loaded again."""
        _refuse_unknown(numerics)
        other = copy.copy(self)
        other._decide(numerics)
        return other

    def with_feature_layers(self, feature_layers: Sequence[int]) -> "TargetModel":
        """The same weights for a head that reads these layers beside the last hidden state.

        Raises:
            ValueError: the target has no such layer below its last.
        """
        check_feature_layers(feature_layers, self.config.num_hidden_layers)
        return self._but(feature_layers=tuple(feature_layers))

    def seen_in_slots(self, rounds_alike: bool) -> "TargetModel":
        """The same weights, whose passes at fixed addresses round alike or not."""
        return self._but(bit_identical=self.bit_identical and rounds_alike)

    def _but(self, **changed) -> "TargetModel":
        """A copy with other values of some attributes."""
        other = copy.copy(self)
        vars(other).update(changed)
        return other

    def _decide(self, numerics: str) -> None:
        """Decides how passes compute, once: nothing of it changes later."""
        numerics = "exact" if self.compiled else numerics
        self.numerics = numerics if self._ways.exact else "fast"
        self.notices = list(self._notices)
        if self.chains_only:
            self.notices.append(
                f"{self.config.model_type} counts positions inside its own attention, so only chains can be drafted, "
                "no trees."
            )
        if self.quantized:
            self.notices.append(
                "The weights were quantized as they were loaded: they may round a row differently "
                "beside other rows, so drafted text can differ from plain decoding's in near ties."
            )
        if numerics != self.numerics:
            self.notices.append(
                f"{self.config.model_type} attends in a way that exact numerics does not compute; fast numerics is "
                "used, so plain and drafted passes may round differently."
            )
        # One row alone often runs another kernel; two cost little more and may round like many. In half precision most
        # of its differences round away, and a few passes of a probe may show none.
        wanted = (1, 2) if self.dtype in FULL_PRECISION or self.device.type != "cpu" else (2,)
        can = self.numerics == "exact" and not self.quantized
        alike = next((rows for rows in wanted if can and self._but(_fewest_rows=rows).probe_bit_identity()), None)
        self.bit_identical = alike is not None
        self._fewest_rows = alike or wanted[0 if self.numerics != "exact" else -1]

    def _tried(self, trial: Trial) -> Ways:
        """Tries ways of attending until one gives the stock model's logits; then whether the exact one does."""

        def failure(ways: Ways, numerics: str) -> str | None:
            self.config._attn_implementation = ways.fast.implementation
            return trial.failure(self._but(_ways=ways, numerics=numerics, _fewest_rows=1))

        wide = torch.float64 if self._has_room_for_float64() else None
        # A model that applies a window inside its own attention counts slots, which in a tree are no positions.
        own_window = getattr(self.config, "window_size", None)
        for fast in (STOCK, OWN) if own_window else (STOCK, EAGER, OWN):
            wrong = failure(Ways(fast, False, wide), "fast")
            if wrong is None:
                break
        else:
            if wrong == OVERFLOW and self.dtype == torch.float16:
                raise ValueError(
                    f"{self.config.model_type} computes numbers that float16 cannot hold; choose dtype bfloat16 or "
                    "float32."
                )
            raise ValueError(
                f"{self.config.model_type} cannot be a target: a pass over a tree does not give what the model "
                f"computes for each path alone ({wrong}); choose another model."
            )
        # Families that project what the cache holds cannot take wider numbers from it
        exact = [Ways(fast, True, each) for each in dict.fromkeys((wide, None))] if fast is STOCK else []
        return next((ways for ways in exact if failure(ways, "exact") is None), Ways(fast, False, wide))

    def _has_room_for_float64(self) -> bool:
        """Whether caches may keep float64 copies: always on a CPU, on a GPU if they take little of its memory."""
        if self.device.type != "cuda" or self.fused is None:
            return self.device.type == "cpu"
        layers, kv_heads, head_dim = self.fused.cache_shape
        needed = 2 * layers * kv_heads * head_dim * torch.float64.itemsize * WIDE_TOKENS
        return needed <= WIDE_SHARE * torch.cuda.mem_get_info(self.device)[1]

    @property
    def chains_only(self) -> bool:
        """Whether only chains can be scored, because the model counts positions inside its own attention."""
        return self._ways.fast is OWN

    @property
    def sha256(self) -> str | None:
        """Of the weights; None where it is unknown, or not known yet."""
        return self._sha256() if callable(self._sha256) else self._sha256

    @property
    def compiled(self) -> bool:
        """Whether passes over trees run in compiled code, see `jakiro.ops.kernels`."""
        return self.fused is not None and self.fused.native is not None

    @property
    def max_reusable_tokens(self) -> int:
        """How many of a text's first rows have the same bits however they were read: an answer may begin with them."""
        return self.max_positions if self.compiled else 0

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def feature_size(self) -> int:
        """Width of a row of features."""
        return (1 + len(self.feature_layers)) * self.hidden_size

    @property
    def vocab_size(self) -> int:
        return self.embedding.shape[0]

    @property
    def cache_dtype(self) -> torch.dtype:
        """What a cache keeps: in exact numerics float64 copies where they fit, so that nothing is converted twice; in
        compiled code, which widens in registers, what the model computes with.
        """
        if self.compiled:
            return self.dtype
        return (self._ways.wide if self.numerics == "exact" else None) or self.dtype

    def new_cache(self, capacity: int) -> RowCache:
        """An empty cache."""
        if self.compiled:
            layers, kv_heads, head_dim = self.fused.cache_shape
            return RowCache(layers, capacity, rows=torch.zeros(layers, 2, kv_heads, capacity, head_dim, device="cpu"))
        storage = None if self.cache_dtype == self.dtype else self.cache_dtype
        return RowCache(self.config.num_hidden_layers, capacity, storage)

    def row_bucket(self, num_nodes: int) -> int:
        """Rows a pass over `num_nodes` runs with, so that in exact numerics plain and tree passes round alike.

        On a CPU one row may round otherwise than two or more do; on a GPU any other number of rows may, so that there
        exact plain passes run with as many rows as a tree.
        """
        if not self.bucketed:
            return max(num_nodes, self._fewest_rows)
        if num_nodes == 1 and self.numerics == "fast":
            return 1
        return -(-num_nodes // TREE_ROWS) * TREE_ROWS

    def rounds_alike(self, num_nodes: int) -> bool:
        """Whether a tree of so many nodes runs with as many rows as plain decoding, or rows do not matter."""
        return not self.bucketed or self.row_bucket(num_nodes) == self.row_bucket(1)

    @torch.inference_mode()
    def prefill(self, token_ids: Tensor, cache: RowCache) -> tuple[Tensor, Tensor]:
        """Reads a prompt, or what follows the cached rows, in the same chunks and alike whatever the numerics.

        Args:
            token_ids: (num_tokens,) int64, at least one.
            cache: filled in place.

        Returns:
            features (num_tokens, feature_size) and the last position's logits (1, vocab_size).
        """
        features = []
        while token_ids.shape[0]:
            start = cache.length
            chunk, token_ids = token_ids.tensor_split([PREFILL_CHUNK - start % PREFILL_CHUNK])
            positions = torch.arange(start, start + chunk.shape[0], device=self.device)
            columns = torch.arange(start + chunk.shape[0], device=self.device)
            mask = columns <= positions[:, None]
            attending = EXACT if self.compiled else self._ways.fast
            features.append(self._forward(chunk, positions, mask, columns, cache, attending))
        last_rows = features[-1][-2:]
        return torch.cat(features), self.logits(self._last_layer(last_rows))[-1:]

    @torch.inference_mode()
    def score(self, tree: DraftTree, cache: PassCache, live: int | None = None) -> Scores:
        """Runs all nodes in one pass under the tree mask.

        The cache must hold exactly the committed tokens before the root; after them the pass leaves one row per
        node (pad rows included), of which `RowCache.keep` is to keep the accepted ones.

        Args:
            live: the first nodes, where those after them are pads that the caller brought; None where none are.

        Raises:
            ValueError: a tree that branches, for a target that scores chains only.
        """
        num_nodes = tree.num_nodes
        if self.chains_only and tree.max_depth < num_nodes - 1:
            raise ValueError(f"{self.config.model_type} can score chains only; set the tree's width to 1.")
        rows = self.row_bucket(num_nodes)
        mask = ancestor_mask(tree.parents, tree.max_depth)
        token_ids, positions = tree.token_ids, tree.depths + cache.length
        among = mask
        if rows > num_nodes:
            pad = rows - num_nodes
            token_ids = torch.cat([token_ids, token_ids.new_zeros(pad)])
            positions = torch.cat([positions, positions[:1].expand(pad)])
            among = torch.eye(rows, dtype=torch.bool, device=self.device)
            among[:num_nodes, :num_nodes] = mask
        features = self.features(token_ids, positions, cache.visible(among), cache, live or num_nodes)
        return Scores(self.logits(self._last_layer(features))[:num_nodes], features[:num_nodes], mask)

    @torch.inference_mode()
    def features(
        self, token_ids: Tensor, positions: Tensor, visible: Tensor, cache: PassCache, live: int | None = None
    ) -> Tensor:
        """A pass over any rows that follow the cache's: a tree's, or those of whoever drafts with this model.

        Args:
            token_ids, positions: (rows,) int64. visible: (rows, columns) bool, see `RowCache.visible`.
            live: as in `score`.

        Returns:
            (rows, feature_size).
        """
        # Nodes after the last position are never kept, but a table of positions ends there.
        positions = positions.clamp(max=self.max_positions - 1)
        column_positions = cache.column_positions(positions) if self.window else None
        attending = EXACT if self.numerics == "exact" else self._ways.fast
        return self._forward(token_ids, positions, visible, column_positions, cache, attending, live)

    def _last_layer(self, features: Tensor) -> Tensor:
        """The part of features that the output function reads, (rows, hidden_size)."""
        return features[:, : self.hidden_size] if self.feature_layers else features

    @torch.inference_mode()
    def probe_bit_identity(self, num_tokens: int = 8) -> bool:
        """Whether passes over trees of several sizes give the same bits as one token at a time."""
        ids = random_ids(24 + 2 * num_tokens, self.vocab_size, self.device)
        prompt, chain, siblings = ids[:24], ids[24 : 24 + num_tokens], ids[24 + num_tokens :]
        cache = self.new_cache(24 + num_tokens + self.row_bucket(max(2 * num_tokens, *PROBED_NODES)))
        self.prefill(prompt, cache)
        together = self.score(chain_among_siblings(chain, siblings), cache).logits[::2]
        cache.keep(24, [])
        for index in range(num_tokens):
            committed = cache.length
            alone = self.score(DraftTree.root_only(chain[index : index + 1]), cache).logits
            if not torch.equal(alone[0], together[index]):
                return False
            cache.keep(committed, [0])
        # Equal children of one root: whichever row a kernel treats otherwise, it is one of them
        for num_nodes in {self.row_bucket(nodes): nodes for nodes in PROBED_NODES}.values():
            cache.keep(24, [])
            tree = star_tree(chain, num_nodes)
            rows = zip(self.score(tree, cache).logits, tree.depths.tolist(), strict=True)
            # One by one: logits of a large vocabulary are the highest memory of a start
            if not all(torch.equal(row, together[depth]) for row, depth in rows):
                return False
        return True

    def _forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        visible: Tensor,
        column_positions: Tensor | None,
        cache: PassCache,
        attending: Attending,
        live: int | None = None,
    ) -> Tensor:
        """(rows,) tokens → (rows, feature_size) features; `visible` is (rows, keys) bool."""
        if self.fused is not None:
            visible = self._windowed(visible, positions, column_positions) if self._only_windows else visible
            exact = attending is EXACT
            return self.fused(token_ids, positions, visible, cache, exact, self.feature_layers, live)
        inputs = {"input_ids": token_ids[None], "past_key_values": cache, "use_cache": True}
        if attending.mask == "own":
            inputs["attention_mask"] = torch.ones((1, visible.shape[1]), dtype=torch.int64, device=self.device)
        else:
            inputs["attention_mask"] = self._masks(visible, positions, column_positions, attending.mask == "float")
            if self._takes_positions:
                inputs["position_ids"] = positions[None]
        # Imported here: transformers' models take seconds, and a list of methods needs none
        from jakiro.models.attention_modes import attending as attending_as

        with attending_as(attending.exact):
            return features_of(self.model.base_model, self.feature_layers, **inputs)[0].to(self.device)

    def _masks(
        self, visible: Tensor, positions: Tensor, column_positions: Tensor | None, as_numbers: bool
    ) -> Tensor | dict[str, Tensor]:
        """One 4-dimensional mask, or one per layer type where the family mixes full and sliding attention."""

        def four_dimensional(mask: Tensor) -> Tensor:
            return (additive(mask, self.dtype) if as_numbers else mask)[None, None]

        if self._only_windows:
            return four_dimensional(self._windowed(visible, positions, column_positions))
        full = four_dimensional(visible)
        if self.window and len(set(getattr(self.config, "layer_types", None) or [])) > 1:
            windowed = four_dimensional(self._windowed(visible, positions, column_positions))
            return {"full_attention": full, "sliding_attention": windowed}
        return full

    @property
    def _only_windows(self) -> bool:
        """Whether every layer looks through a sliding window."""
        layer_types = set(getattr(self.config, "layer_types", None) or ["sliding_attention"])
        uses_window = getattr(self.config, "use_sliding_window", True)
        return bool(self.window) and uses_window and layer_types == {"sliding_attention"}

    def _windowed(self, visible: Tensor, positions: Tensor, column_positions: Tensor) -> Tensor:
        return visible & (positions[:, None] - column_positions < self.window)


def _refuse_unknown(numerics: str) -> None:
    if numerics not in NUMERICS:
        raise ValueError(f"numerics must be one of {', '.join(NUMERICS)}; you gave {numerics!r}.")
