"""The C decoder (`csrc/decoder.c`): all layers of a target of Llama's shape in one call, on a CPU.

Plain decoding of the default target generates 66 tokens/s with it and 39 with torch's kernels (two threads of a Xeon).
"""

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from jakiro.backends.native.library import Decoder, Layer, Pass, address, library, num_threads
from jakiro.backends.native.linear import NativeLinear
from jakiro.ops.cache import RowCache


class NativeDecoder:
    """All layers of a decoder with attention that is order-independent, as that of `jakiro.ops.attention`.

    Args:
        layers: Layers of a fused model for which `fits` is true, all of one shape.
        heads: Query heads.
        kv_heads: Key/value heads.
        head_dim: Width of a head.
        scaling: Factor of the attention scores.
    """

    def __init__(self, layers: Sequence, heads: int, kv_heads: int, head_dim: int, scaling: float) -> None:
        self._layers = layers
        self._structures = (Layer * len(layers))(*map(_structure_of, layers))
        self.hidden_size, self.inner_size = layers[0].output.out_features, layers[0].inner_size
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        sizes = (len(layers), self.hidden_size, self.inner_size, heads, kv_heads, head_dim)
        self._decoder = Decoder(self._structures, *sizes, scaling)

    @staticmethod
    def fits(layers: Sequence) -> bool:
        """Return whether the layers are packed for the compiled functions and the gates fill whole panels."""
        packed = all(isinstance(linear, NativeLinear) for layer in layers for linear in _projections(layer))
        return packed and not any(layer.inner_size % library().jakiro_panel() for layer in layers)

    @staticmethod
    def runs_on(cache: object) -> bool:
        """Return whether a cache stores the rows of all layers in the layout of the compiled functions."""
        rows = cache.store.rows if isinstance(cache, RowCache) else None
        return rows is not None and rows.dtype == torch.float32 and not any(layer.by_itself for layer in cache.layers)

    def __call__(
        self, hidden: Tensor, cos: Tensor, sin: Tensor, visible: Tensor, cache: RowCache, output_layers: Sequence[int]
    ) -> list[Tensor]:
        """Run tokens that follow the cached ones and extend the cache.

        Args:
            hidden: (tokens, hidden_size) float32 embeddings, overwritten by the last layer's output.
            cos: (tokens, head_dim).
            sin: (tokens, head_dim), as returned by `jakiro.ops.rotary.signed`.
            visible: (tokens, length + tokens) bool.
            cache: A cache for which `runs_on` is true.
            output_layers: Numbers of the layers to return the output of; the first layer is 1.

        Returns:
            The outputs of these layers, (tokens, hidden_size) each.
        """
        rows, threads = hidden.shape[0], num_threads()
        length = cache.extend(rows)
        memory = threads * library().jakiro_decoder_floats(ctypes.byref(self._decoder), rows, length + rows)
        widths = [(self.heads + 2 * self.kv_heads) * self.head_dim, self.heads * self.head_dim, self.inner_size]
        joint, attended, gated, scratch = hidden.new_empty(rows * sum(widths) + memory).split(
            [*(rows * width for width in widths), memory]
        )
        outputs = {layer: torch.empty_like(hidden) for layer in output_layers}
        places = (ctypes.c_void_p * len(self._layers))()
        for layer, output in outputs.items():
            places[layer - 1] = output.data_ptr()
        cos, sin, visible = cos.contiguous(), sin.contiguous(), visible.contiguous()
        store = cache.store.rows
        buffers = (hidden, cos, sin, visible, store, joint, attended, gated, scratch)
        run = Pass(ctypes.pointer(self._decoder), rows, length, store.shape[3], *map(address, buffers), places)
        library().jakiro_decode(ctypes.byref(run), threads)
        return list(outputs.values())


def _structure_of(layer: object) -> Layer:
    norms, eps = (layer.input_norm, layer.middle_norm), (layer.input_eps, layer.middle_eps)
    return Layer(*(linear.matrix for linear in _projections(layer)), *map(address, norms), *eps)


def _projections(layer: object) -> tuple:
    return layer.query_key_value, layer.output, layer.gate_up, layer.down
