"""The target model: any transformers causal language model behind prefill and score.

`score` runs a whole draft tree in one pass and returns logits and features at every node. Drafting is unknown here.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from jakiro.attention import EXACT_ATTENTION, STOCK_ATTENTION
from jakiro.cache import RowCache
from jakiro.engine import LeanDecoder
from jakiro.linear import pack_linears, packing_works
from jakiro.tree import DraftTree, ancestor_mask

NUMERICS = ("exact", "fast")
PREFILL_CHUNK = 512


@dataclass(frozen=True, slots=True)
class Scores:
    """One target pass over a tree.

    Attributes:
        logits: (num_nodes, vocab_size), raw.
        features: (num_nodes, hidden_size), last hidden states after the final norm.
        mask: (num_nodes, num_nodes) bool ancestor-or-self mask.
    """

    logits: Tensor
    features: Tensor
    mask: Tensor


class TargetModel:
    """A causal language model with its tokenizer.

    Args:
        model: a transformers `AutoModelForCausalLM`, already on its device and in its dtype. It is taken over: layers
            of Llama's shape move into a `LeanDecoder`, linear layers are packed on a CPU in float32.
        tokenizer: its tokenizer.
        name, sha256: what traces call it.
        numerics: "exact" makes plain and tree passes round alike, "fast" uses stock attention and single rows.

    Raises:
        ValueError: unknown numerics, or a model that is no decoder with attention in every layer.
    """

    def __init__(
        self, model: nn.Module, tokenizer, name: str = "", sha256: str | None = None, numerics: str = "exact"
    ) -> None:
        if numerics not in NUMERICS:
            raise ValueError(f"numerics must be one of {', '.join(NUMERICS)}; you gave {numerics!r}")
        _refuse_what_cannot_work(model)
        self.model, self.tokenizer, self.name, self.sha256 = model, tokenizer, name, sha256
        self.config = model.config.get_text_config()
        weight = model.get_input_embeddings().weight
        self.device, self.dtype = weight.device, weight.dtype
        self.embedding = weight.detach()
        self.output_weight = model.get_output_embeddings().weight.detach()
        packed = packing_works(self.device, self.dtype)
        self.lean = LeanDecoder.build(model, packed)
        if self.lean is not None:
            model.base_model.layers = nn.ModuleList()
        if packed:
            pack_linears(model)
        self.output_layer = model.get_output_embeddings()
        self.numerics = numerics
        self.stop_ids = _stop_ids(model, tokenizer)
        self.max_positions = int(getattr(self.config, "max_position_embeddings", 2**31))
        self.window = getattr(self.config, "sliding_window", None)
        self.bit_identical = numerics == "exact" and self.probe_bit_identity()

    def with_numerics(self, numerics: str) -> "TargetModel":
        """The same weights under other numerics; nothing is loaded again."""
        if numerics not in NUMERICS:
            raise ValueError(f"numerics must be one of {', '.join(NUMERICS)}; you gave {numerics!r}")
        other = copy.copy(self)
        other.numerics = numerics
        other.bit_identical = numerics == "exact" and other.probe_bit_identity()
        return other

    @property
    def hidden_size(self) -> int:
        return self.config.hidden_size

    @property
    def vocab_size(self) -> int:
        return self.embedding.shape[0]

    def new_cache(self, capacity: int) -> RowCache:
        """An empty cache; in exact numerics on a CPU it keeps float64 copies, so that nothing is converted twice."""
        storage = torch.float64 if self.numerics == "exact" and self.device.type == "cpu" else None
        return RowCache(self.config.num_hidden_layers, capacity, storage)

    def row_bucket(self, num_nodes: int) -> int:
        """Rows a pass over `num_nodes` runs with: at least two in exact numerics, where one row rounds differently."""
        return max(num_nodes, 2) if self.numerics == "exact" else num_nodes

    @torch.inference_mode()
    def prefill(self, token_ids: Tensor, cache: RowCache) -> tuple[Tensor, Tensor]:
        """Reads a prompt, in the same chunks and with stock attention whatever the numerics.

        Args:
            token_ids: (num_tokens,) int64.
            cache: filled in place.

        Returns:
            features (num_tokens, hidden_size) and the last position's logits (1, vocab_size).
        """
        features = []
        for chunk in token_ids.split(PREFILL_CHUNK):
            start = cache.length
            positions = torch.arange(start, start + chunk.shape[0], device=self.device)
            columns = torch.arange(start + chunk.shape[0], device=self.device)
            mask = columns <= positions[:, None]
            features.append(self._forward(chunk, positions, mask, columns, cache, STOCK_ATTENTION))
        last_rows = features[-1][-2:]
        return torch.cat(features), self.logits(last_rows)[-1:]

    @torch.inference_mode()
    def score(self, tree: DraftTree, cache: RowCache) -> Scores:
        """Runs all nodes in one pass under the tree mask.

        The cache must hold exactly the committed tokens before the root; behind them the pass leaves one row per
        node (pad rows included), of which `RowCache.keep` is to keep the accepted ones.
        """
        num_nodes, committed = tree.num_nodes, cache.length
        rows = self.row_bucket(num_nodes)
        mask = ancestor_mask(tree.parents, tree.max_depth)
        token_ids, positions = tree.token_ids, tree.depths + committed
        among = mask
        if rows > num_nodes:
            pad = rows - num_nodes
            token_ids = torch.cat([token_ids, token_ids.new_zeros(pad)])
            positions = torch.cat([positions, positions.new_full((pad,), committed)])
            among = torch.eye(rows, dtype=torch.bool, device=self.device)
            among[:num_nodes, :num_nodes] = mask
        visible = torch.cat([torch.ones((rows, committed), dtype=torch.bool, device=self.device), among], dim=1)
        column_positions = torch.cat([torch.arange(committed, device=self.device), positions])
        implementation = EXACT_ATTENTION if self.numerics == "exact" else STOCK_ATTENTION
        features = self._forward(token_ids, positions, visible, column_positions, cache, implementation)
        return Scores(self.logits(features)[:num_nodes], features[:num_nodes], mask)

    def logits(self, features: Tensor) -> Tensor:
        """The target's output function with whatever scaling or capping its family applies."""
        logits = self.output_layer(features)
        scaling, softcap = getattr(self.config, "logits_scaling", None), None
        if scaling:
            logits = logits / scaling
        softcap = getattr(self.config, "final_logit_softcapping", None)
        return torch.tanh(logits / softcap) * softcap if softcap else logits

    @torch.inference_mode()
    def probe_bit_identity(self, num_tokens: int = 8) -> bool:
        """Whether a chain hidden among siblings in one pass gives the same bits as one token at a time."""
        generator, count = torch.Generator("cpu").manual_seed(0), 24 + 2 * num_tokens
        ids = torch.randint(0, self.vocab_size, (count,), generator=generator, device="cpu").to(self.device)
        prompt, chain, siblings = ids[:24], ids[24 : 24 + num_tokens], ids[24 + num_tokens :]
        tree = _chain_among_siblings(chain, siblings)
        cache = self.new_cache(24 + 2 * num_tokens)
        self.prefill(prompt, cache)
        together = self.score(tree, cache).logits[::2]
        cache.keep(24, [])
        for index in range(num_tokens):
            committed = cache.length
            alone = self.score(DraftTree.root_only(chain[index : index + 1]), cache).logits
            if not torch.equal(alone[0], together[index]):
                return False
            cache.keep(committed, [0])
        return True

    def _forward(
        self,
        token_ids: Tensor,
        positions: Tensor,
        visible: Tensor,
        column_positions: Tensor,
        cache: RowCache,
        implementation: str,
    ) -> Tensor:
        """(rows,) tokens → (rows, hidden_size) features; `visible` is (rows, keys) bool."""
        if self.lean is not None:
            visible = self._windowed(visible, positions, column_positions) if self._only_windows else visible
            return self.lean(token_ids, positions, visible, cache, exact=implementation == EXACT_ATTENTION)
        masks = self._masks(visible, positions, column_positions)
        self.config._attn_implementation = implementation
        output = self.model.base_model(
            input_ids=token_ids[None],
            position_ids=positions[None],
            attention_mask=masks,
            past_key_values=cache,
            use_cache=True,
        )
        return output.last_hidden_state[0]

    def _masks(self, visible: Tensor, positions: Tensor, column_positions: Tensor) -> Tensor | dict[str, Tensor]:
        """One 4-dimensional mask, or one per layer type where the family mixes full and sliding attention."""
        if self._only_windows:
            return self._windowed(visible, positions, column_positions)[None, None]
        full = visible[None, None]
        if self.window and len(set(getattr(self.config, "layer_types", None) or [])) > 1:
            windowed = self._windowed(visible, positions, column_positions)[None, None]
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


def _chain_among_siblings(chain: Tensor, siblings: Tensor) -> DraftTree:
    """Nodes chain[0], siblings[0], chain[1], siblings[1], …; every second node continues the chain."""
    count = chain.shape[0]
    depths = torch.arange(count, device=chain.device)
    root = DraftTree.root_only(chain[:1])
    nodes = torch.stack([chain, siblings], dim=1).flatten()
    parents = torch.stack([2 * (depths - 1), 2 * depths], dim=1).flatten()
    parents[0] = -1
    return DraftTree(
        **{
            name: getattr(root, name)
            for name in DraftTree.__dataclass_fields__
            if name not in {"token_ids", "parents", "depths", "max_depth"}
        },
        token_ids=nodes,
        parents=parents,
        depths=torch.stack([depths, depths + 1], dim=1).flatten(),
        max_depth=count,
    )


def _stop_ids(model: nn.Module, tokenizer) -> frozenset[int]:
    """Every id that ends an answer, from the generation config, the model's config and the tokenizer."""
    found: set[int] = set()
    for source in (getattr(model, "generation_config", None), model.config, tokenizer):
        ids = getattr(source, "eos_token_id", None)
        found.update(ids if isinstance(ids, (list, tuple)) else [] if ids is None else [ids])
    return frozenset(int(token_id) for token_id in found)


def _refuse_what_cannot_work(model: nn.Module) -> None:
    config = model.config.get_text_config()
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"{config.model_type} is an encoder-decoder model; Jakiro needs a decoder-only causal model")
    layer_types = set(getattr(config, "layer_types", None) or [])
    unknown = layer_types - {"full_attention", "sliding_attention"}
    if unknown or model._is_stateful:
        what = ", ".join(sorted(unknown)) or "recurrent state"
        raise ValueError(
            f"{config.model_type} has layers of the kind {what}, whose state cannot be rolled back after a refused "
            "draft; choose a model with full or sliding attention in every layer"
        )
