"""A fused pass through decoders with layers of Llama's shape, built from the stock modules' weights.

Python and dispatch take half of a small model's pass through the stock modules: thirty layers take 21 to 23 ms, here
13 to 15 ms. Projections with the same input are fused; queries, keys and values are rotated in one operation, into the
memory that attention reads; products are added to the residual stream in place. A layer is 15 or 16 operations at fixed
addresses, so that a CUDA graph can capture the pass.

A model qualifies by the modules of its layers, and only if a trial pass gives the stock modules' output. All other
models keep their stock modules. If `jakiro.ops.kernels` has a kernel for the decoder, exact passes run all layers in
one call of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from jakiro.ops import kernels
from jakiro.ops.attention import additive_mask, attend_exactly, attend_grouped
from jakiro.ops.cache import PassCache, RowCache
from jakiro.ops.kernels import DecoderKernel
from jakiro.ops.linear import Packing, RowTable, looked_up
from jakiro.ops.rotary import AngleTable, changes_with_length, signed

_LINEARS = {f"self_attn.{part}_proj" for part in "qkvo"} | {f"mlp.{part}_proj" for part in ("gate", "up", "down")}
_OTHERS = {"", "self_attn", "mlp", "mlp.act_fn", "input_layernorm", "post_attention_layernorm"}
_TRIAL_TOKENS = 12


def _fused(linears: list[nn.Linear], packing: Packing | None) -> Callable[[Tensor], Tensor]:
    """Return linear layers over the same input as one matrix product.

    Without packing the layers become views of the fused matrix, so that a large model is never in memory twice.
    """
    weights = [linear.weight.detach() for linear in linears]
    weight = torch.cat(weights) if len(weights) > 1 else weights[0]
    bias = None
    if any(linear.bias is not None for linear in linears):
        zeros = [linear.weight.new_zeros(linear.out_features) for linear in linears]
        bias = torch.cat(
            [zero if linear.bias is None else linear.bias.detach() for linear, zero in zip(linears, zeros, strict=True)]
        )
    if packing is not None:
        return packing(weight, bias)
    for linear, part in zip(linears, weight.split([len(rows) for rows in weights]), strict=True):
        linear.weight = nn.Parameter(part, requires_grad=False)
    return partial(functional.linear, weight=weight, bias=bias)


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer of Llama's shape; matrix products are functions, norms are weights with their epsilons.

    Attributes:
        inner_size: Inner width of the MLP.
    """

    query_key_value: Callable[[Tensor], Tensor]
    output: Callable[[Tensor], Tensor]
    gate_up: Callable[[Tensor], Tensor]
    down: Callable[[Tensor], Tensor]
    input_norm: Tensor
    input_eps: float
    middle_norm: Tensor
    middle_eps: float
    inner_size: int

    @classmethod
    def of(cls, stock: nn.Module, packing: Packing | None) -> "Layer":
        """Return the fused form of a stock layer."""
        attention, mlp = stock.self_attn, stock.mlp
        before, middle = stock.input_layernorm, stock.post_attention_layernorm
        return cls(
            _fused([attention.q_proj, attention.k_proj, attention.v_proj], packing),
            _fused([attention.o_proj], packing),
            _fused([mlp.gate_proj, mlp.up_proj], packing),
            _fused([mlp.down_proj], packing),
            before.weight.detach(),
            before.variance_epsilon,
            middle.weight.detach(),
            middle.variance_epsilon,
            mlp.gate_proj.out_features,
        )


class FusedLlama:
    """The decoder layers without the output function; `build` creates them from a stock model.

    Args:
        embedding: (vocab_size, hidden_size), a tensor or a `RowTable`.
        rotary: transformers' rotary embedding.
        norm: Weight of the final norm.
        eps: Epsilon of the final norm.
        layers: Layers of one shape.
        heads: Query heads, key/value heads and head_dim.
        scaling: Factor of the attention scores.

    Attributes:
        native: Kernel that runs all layers in one call; None if there is none.
    """

    def __init__(
        self,
        embedding: Tensor | RowTable,
        rotary: nn.Module,
        norm: Tensor,
        eps: float,
        layers: Sequence[Layer],
        heads: tuple[int, int, int],
        scaling: float,
    ) -> None:
        self.embedding, self.rotary, self.angles = embedding, rotary, AngleTable(rotary)
        self.norm, self.eps, self.layers = norm, eps, layers
        (self.num_heads, self.num_kv_heads, self.head_dim), self.scaling = heads, scaling
        self.native: DecoderKernel | None = None
        if self.is_static:
            self.native = kernels.current().decoder(layers, heads, scaling)

    @property
    def is_static(self) -> bool:
        """True if a pass reads no values on the host; rotary embeddings that change with the length do."""
        return not changes_with_length(self.rotary)

    @property
    def cache_shape(self) -> tuple[int, int, int]:
        """Layers, key/value heads and head_dim of a cache."""
        return len(self.layers), self.num_kv_heads, self.head_dim

    @classmethod
    @torch.inference_mode()
    def build(cls, model: nn.Module, packing: Packing | None) -> "FusedLlama | None":
        """Return the fused layers of a model, or None if it has another shape or other outputs.

        Args:
            model: A stock causal language model.
            packing: Packs matrices for passes over few tokens, see `jakiro.ops.linear`; None only fuses them.
        """
        base, config = model.base_model, model.config.get_text_config()
        if not _has_llama_shape(base, config):
            return None
        fused = cls.of(model, packing)
        # Ordinary tokens: after special tokens some models' states are so large that 16 bits change the output
        start = config.vocab_size // 2
        token_ids = (start + torch.arange(_TRIAL_TOKENS, device=fused.embedding.device)) % config.vocab_size
        stock = base(input_ids=token_ids[None], use_cache=False).last_hidden_state[0].float()
        tolerance = (1e-3 if fused.embedding.dtype == torch.float32 else 5e-2) * stock.abs().amax()

        def agrees(rows: Tensor, expected: Tensor) -> bool:
            return bool((rows.float() - expected).abs().amax() <= tolerance)

        cache = RowCache(config.num_hidden_layers, _TRIAL_TOKENS)
        visible = torch.ones((_TRIAL_TOKENS, _TRIAL_TOKENS), dtype=torch.bool, device=token_ids.device).tril()
        positions = torch.arange(_TRIAL_TOKENS, device=token_ids.device)
        if not agrees(fused(token_ids, positions, visible, cache, exact=False), stock):
            return None
        if fused.native is not None:
            half = _TRIAL_TOKENS // 2
            cache.keep(half, [])
            rows = fused(token_ids[half:], positions[half:], visible[half:], cache, exact=True)
            if not agrees(rows, stock[half:]):
                fused.native = None
        return fused

    @classmethod
    def of(cls, model: nn.Module, packing: Packing | None) -> "FusedLlama":
        """Return the fused layers of a model of Llama's shape without trial passes; arguments as in `build`."""
        base, config = model.base_model, model.config.get_text_config()
        attention, norm = base.layers[0].self_attn, base.norm
        heads = config.num_attention_heads, config.num_key_value_heads, attention.head_dim
        layers = [Layer.of(layer, packing) for layer in base.layers]
        last = norm.weight.detach(), norm.variance_epsilon
        return cls(base.embed_tokens.weight.detach(), base.rotary_emb, *last, layers, heads, attention.scaling)

    def __call__(self, token_ids: Tensor, *rows, **options) -> Tensor:
        """Run tokens that follow the cached ones.

        Args:
            token_ids: (tokens,) int64.
            rows: Arguments of `run` after `hidden`.
            options: Keyword arguments of `run`.

        Returns:
            (tokens, (1 + feature_layers) · hidden_size) features, starting with the rows after the final norm.
        """
        hidden, deeper = self.run(looked_up(self.embedding, token_ids), *rows, **options)
        last = self.normed(hidden)
        return torch.cat([last, *deeper], dim=-1) if deeper else last

    def normed(self, hidden: Tensor) -> Tensor:
        """Return the output function's input, from the last layer's output."""
        return functional.rms_norm(hidden, hidden.shape[-1:], self.norm, self.eps)

    def run(
        self,
        hidden: Tensor,
        positions: Tensor,
        visible: Tensor,
        cache: PassCache,
        exact: bool,
        feature_layers: tuple[int, ...] = (),
        live: int | None = None,
    ) -> tuple[Tensor, list[Tensor]]:
        """Run tokens that follow the cached ones.

        Args:
            hidden: (tokens, hidden_size), embeddings or the output of the layers below; overwritten.
            positions: (tokens,) int64.
            visible: (tokens, columns) bool; one column for each row that the cache returns after an update.
            cache: Extended in place by these tokens.
            exact: Whether attention is order-independent instead of the stock one.
            feature_layers: See `jakiro.models.features`.
            live: Number of tokens before the padding; None if there is none.

        Returns:
            (tokens, hidden_size) before the final norm, and the outputs of `feature_layers`.
        """
        if exact and self.native is not None and self.native.runs_on(cache):
            cos, sin = self.angles.at(positions, cache.end_after(len(positions)))
            return hidden, self.native(hidden, cos, sin, visible, cache, feature_layers)
        buffers = self._buffers(hidden, positions, visible, cache, exact, live)
        deeper = []
        for number, layer in enumerate(self.layers):
            normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.input_norm, layer.input_eps)
            attended = self._attend(layer.query_key_value(normed), buffers, cache, number)
            _add_product(hidden, attended, layer.output)
            normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.middle_norm, layer.middle_eps)
            gate, up = layer.gate_up(normed).tensor_split([layer.inner_size], dim=1)
            _add_product(hidden, functional.silu(gate).mul_(up), layer.down)
            if number + 1 in feature_layers:
                deeper.append(hidden.clone())
        return hidden, deeper

    def _buffers(
        self, hidden: Tensor, positions: Tensor, visible: Tensor, cache: PassCache, exact: bool, live: int | None
    ) -> "_PassBuffers":
        """Return the tensors that all layers of a pass share; arguments as in `run`."""
        count, heads, kv_heads = len(hidden), self.num_heads, self.num_kv_heads
        # Padding exists for matrix products, which round by their number of rows; exact attention leaves it out
        num_live = (live or count) if exact else count
        dtype = torch.float64 if exact else hidden.dtype
        cos, sin = self._angles(hidden, positions, cache, dtype)
        shape = (heads + 2 * kv_heads, count, self.head_dim)
        new_attended = hidden.new_empty if num_live == count else hidden.new_zeros
        return _PassBuffers(
            exact=exact,
            num_live=num_live,
            cos=cos,
            sin=sin,
            mask=additive_mask(visible[:num_live], dtype, heads // kv_heads),
            rotated=torch.empty(shape, dtype=dtype, device=hidden.device),
            attended=new_attended((count, heads, self.head_dim)),
        )

    def _attend(self, fused_rows: Tensor, buffers: "_PassBuffers", cache: PassCache, number: int) -> Tensor:
        """Rotate queries and keys, update the cache and attend.

        Args:
            fused_rows: (tokens, (heads + 2 · kv_heads) · head_dim), queries, keys and values.
            buffers: Buffers of the pass.
            cache: Extended by this layer's keys and values.
            number: Index of the layer, from 0.

        Returns:
            (tokens, heads · head_dim), a view of `buffers.attended`.
        """
        count, num_live = len(fused_rows), buffers.num_live
        rows = fused_rows.view(count, -1, self.head_dim)
        # Values are rotated by an angle of zero, so that one operation writes them where the cache reads them
        rolled, rotated = rows.roll(self.head_dim // 2, -1), buffers.rotated
        torch.addcmul(rows * buffers.cos, rolled, buffers.sin, out=rotated.transpose(0, 1))
        keys, values = cache.update_both(rotated[self.num_heads :], number)
        queries = rotated[: self.num_heads, :num_live]
        if buffers.exact:
            attended = attend_exactly(queries, keys, values, buffers.mask, self.scaling)
        else:
            attended = attend_grouped(queries, keys[None], values[None], buffers.mask, self.scaling)
        buffers.attended[:num_live].copy_(attended.transpose(0, 1))
        return buffers.attended.view(count, -1)

    def _angles(self, hidden: Tensor, positions: Tensor, cache: PassCache, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines by head, (tokens, heads + 2 · kv_heads, head_dim): 1 and 0 for the values."""
        if self.is_static:
            cos, sin = self.angles.at(positions, cache.end_after(len(positions)))
        else:
            cos, sin = (part[0] for part in self.rotary(hidden, positions[None]))
            sin = signed(sin)
        shape = (len(positions), self.num_heads + 2 * self.num_kv_heads, self.head_dim)
        num_rotated = self.num_heads + self.num_kv_heads
        all_cos, all_sin = cos.new_ones(shape, dtype=dtype), cos.new_zeros(shape, dtype=dtype)
        all_cos[:, :num_rotated] = cos[:, None]
        all_sin[:, :num_rotated] = sin[:, None]
        return all_cos, all_sin


@dataclass(frozen=True, slots=True, kw_only=True)
class _PassBuffers:
    """Tensors that all layers of one pass share.

    Attributes:
        exact: Whether attention is order-independent.
        num_live: Number of tokens before the padding.
        cos: (tokens, heads + 2 · kv_heads, head_dim) cosines.
        sin: Signed sines of the same shape.
        mask: Additive mask of the live tokens, see `additive_mask`.
        rotated: (heads + 2 · kv_heads, tokens, head_dim), overwritten by each layer.
        attended: (tokens, heads, head_dim), overwritten by each layer.
    """

    exact: bool
    num_live: int
    cos: Tensor
    sin: Tensor
    mask: Tensor
    rotated: Tensor
    attended: Tensor


def _add_product(hidden: Tensor, rows: Tensor, linear: Callable[[Tensor], Tensor]) -> None:
    """Add a linear layer's product to the residual stream in place, in one operation if the layer is not packed."""
    weight = linear.keywords["weight"] if isinstance(linear, partial) else None
    if weight is None or linear.keywords["bias"] is not None:
        hidden.add_(linear(rows))
    else:
        hidden.addmm_(rows, weight.T)


def _has_llama_shape(base: nn.Module, config) -> bool:
    """Return whether embeddings, layers and norms are exactly the modules that `FusedLlama` computes."""
    if {name for name, _ in base.named_children()} != {"embed_tokens", "layers", "norm", "rotary_emb"}:
        return False
    if getattr(config, "layer_types", None) and len(set(config.layer_types)) > 1:
        return False
    for layer in base.layers:
        modules = dict(layer.named_modules())
        if modules.keys() != _LINEARS | _OTHERS or any(type(modules[name]) is not nn.Linear for name in _LINEARS):
            return False
        if not isinstance(layer.mlp.act_fn, nn.SiLU) and type(layer.mlp.act_fn).__name__ != "SiLUActivation":
            return False
        if not hasattr(layer.input_layernorm, "variance_epsilon"):
            return False
    return True
