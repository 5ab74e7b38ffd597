"""A target of Llama's shape with the quantized weights of a GGUF file, without a transformers model.

Matrices are read one by one. The file's scales, minima and quantized numbers are kept without rounding. Only the
storage changes: numbers of 4 to 6 bits are widened to 8 bits for the compiled kernels that multiply them.
"""

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from jakiro.models.llama import FusedLlama, Layer
from jakiro.ops import kernels
from jakiro.ops.blocks import BLOCKS, StoredBlocks
from jakiro.ops.linear import RowTable

# transformers' names of the model types with layers that compiled kernels support
SHAPES = ("llama", "qwen2")


class StoredModel:
    """The replacement of a transformers model for `TargetModel`.

    Args:
        config: transformers' config of one of `SHAPES`.
        weights: Weights by transformers' names. Each has its `tensor` in the file, the `order` of the stored rows
            (None if it is the same) and a method `dequantized`, see `jakiro.loading`.

    Attributes:
        embedding: (vocab_size, hidden_size), a tensor or a `RowTable`.
        output_weight: (vocab_size, hidden_size), a tensor or a `RowTable`.
        output: Output function.
        fused: Decoder layers.
        file_bits: Mean bits of a weight in the file.

    Raises:
        ValueError: The file was truncated after it was opened, or scales are not finite.
        OSError: The file cannot be read.
    """

    def __init__(self, config, weights: Mapping) -> None:
        # Imported here: the import takes seconds, and listing methods does not need it
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        self.config, self._weights = config, weights
        tensors = [weight.tensor for weight in weights.values()]
        self.file_bits = 8 * sum(tensor.num_bytes for tensor in tensors) / sum(prod(tensor.shape) for tensor in tensors)
        self.embedding = self._table("model.embed_tokens")
        self.output_weight = output = self.embedding if config.tie_word_embeddings else self._table("lm_head")
        self.output = kernels.current().linear(output, None) if isinstance(output, Tensor) else output
        heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
        head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
        self.fused = FusedLlama(
            self.embedding,
            LlamaRotaryEmbedding(config),
            self._vector("model.norm.weight"),
            config.rms_norm_eps,
            [self._layer(f"model.layers.{number}", config) for number in range(config.num_hidden_layers)],
            (heads, kv_heads, head_dim),
            head_dim**-0.5,
        )

    def _layer(self, name: str, config) -> Layer:
        attention, mlp = f"{name}.self_attn", f"{name}.mlp"
        return Layer(
            self._matrix(*(f"{attention}.{part}_proj" for part in "qkv")),
            self._matrix(f"{attention}.o_proj"),
            self._matrix(f"{mlp}.gate_proj", f"{mlp}.up_proj"),
            self._matrix(f"{mlp}.down_proj"),
            self._vector(f"{name}.input_layernorm.weight"),
            config.rms_norm_eps,
            self._vector(f"{name}.post_attention_layernorm.weight"),
            config.rms_norm_eps,
            config.intermediate_size,
        )

    def _vector(self, name: str) -> Tensor:
        return torch.from_numpy(np.array(self._weights[name].dequantized(), dtype=np.float32))

    def _matrix(self, *names: str) -> nn.Module:
        """Return one layer for several matrices with the same inputs; their outputs are concatenated."""
        stored = [self._weights[f"{name}.weight"] for name in names]
        sizes = [weight.tensor.shape[0] for weight in stored]
        bias = None
        if any(f"{name}.bias" in self._weights for name in names):
            biases = [f"{name}.bias" in self._weights and self._vector(f"{name}.bias") for name in names]
            bias = torch.cat([torch.zeros(size) if b is False else b for size, b in zip(sizes, biases, strict=True)])
        if all(weight.tensor.kind in BLOCKS for weight in stored):
            return _blocks(stored, bias)
        return kernels.current().linear(torch.cat([torch.from_numpy(weight.dequantized()) for weight in stored]), bias)

    def _table(self, name: str) -> Tensor | RowTable:
        weight = self._weights[f"{name}.weight"]
        return _blocks([weight], None) if weight.tensor.kind in BLOCKS else torch.from_numpy(weight.dequantized())


def bytes_kept(weights: Mapping) -> int:
    """Estimate the bytes of a `StoredModel` with these weights: a byte a weight with its scales, or a float."""
    tensors = [weight.tensor for weight in weights.values()]
    return sum(int((1.1 if tensor.kind in BLOCKS else 4) * prod(tensor.shape)) for tensor in tensors)


def _blocks(stored: Sequence, bias: Tensor | None) -> nn.Module:
    parts = [StoredBlocks(weight.tensor.kind, weight.tensor.read_bytes(), weight.order) for weight in stored]
    try:
        return kernels.current().block_linear(parts, stored[0].tensor.shape[1], bias)
    except ValueError as error:
        raise ValueError(f"{stored[0].tensor.path}: {stored[0].tensor.name} cannot be used, {error}.") from error
