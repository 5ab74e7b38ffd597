"""Modules of a draft head's decoder layer: norm, rotary attention, experts.

Tensors have the names of the official Jakiro checkpoints, so that a state dict needs no renaming. For drafting on a CPU
the layer is packed in place; a kernel of `jakiro.ops.kernels` runs it in 0.9 instead of 1.6 ms for eight rows.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from jakiro.heads.layer_config import DecoderConfig, LayerConfig
from jakiro.ops.attention import additive_mask, attend_grouped
from jakiro.ops.cache import PassCache
from jakiro.ops.linear import Packing
from jakiro.ops.rotary import apply_rotary

# Cosines and signed sines, both (batch or 1, tokens, head_dim), see `jakiro.ops.rotary`
Angles = tuple[Tensor, Tensor]


class HeadOutput(NamedTuple):
    """One pass of the head over tokens.

    Attributes:
        features: main features, (…, hidden); (experts, …, hidden) if the head mixes experts.
        contrastive: (…, hidden) features one position later, None without a contrastive branch.
        residual: (…, hidden), the stream x before the experts.
        expert_outputs: (experts, …, hidden), y_e before weighting.
        router_weights: (…, experts) after softmax.
        contrastive_weights: (…, 2) signed: + for the stronger expert, − for the weaker; None without the branch.
    """

    features: Tensor
    contrastive: Tensor | None
    residual: Tensor
    expert_outputs: Tensor
    router_weights: Tensor
    contrastive_weights: Tensor | None


def row_output(features: Tensor) -> HeadOutput:
    """Return the output of a network without experts from its (…, hidden) features."""
    return HeadOutput(features, None, features, features, features, None)


class RMSNorm(nn.RMSNorm):
    """RMS norm in the dtype of its weight, which is float32 in a head that is trained in bfloat16.

    Autocast converts the rows on a GPU, but not on a CPU: torch would warn about two dtypes there and use a slower
    kernel that rounds more.
    """

    def forward(self, rows: Tensor) -> Tensor:
        return super().forward(rows.to(self.weight.dtype))


class HeadAttention(nn.Module):
    """Grouped-query self-attention with the target family's rotary embedding.

    Args:
        input_size: Width of the inputs; None for the hidden size.
        norm_eps: Epsilon of the norms of queries and keys per head; None for no norms.
    """

    def __init__(
        self,
        config: DecoderConfig,
        index: int = 0,
        input_size: int | None = None,
        norm_eps: float | None = None,
    ) -> None:
        super().__init__()
        self.index = index
        self.num_heads, self.num_kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.head_dim
        query_width, kv_width = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        input_size = input_size or config.hidden_size
        self.q_proj = nn.Linear(input_size, query_width, bias=False)
        self.k_proj = nn.Linear(input_size, kv_width, bias=False)
        self.v_proj = nn.Linear(input_size, kv_width, bias=False)
        self.o_proj = nn.Linear(query_width, config.hidden_size, bias=False)
        self.q_norm = None if norm_eps is None else RMSNorm(self.head_dim, eps=norm_eps)
        self.k_norm = None if norm_eps is None else RMSNorm(self.head_dim, eps=norm_eps)
        self.query_key_value: nn.Module | None = None
        self.grouped = False

    def fuse(self) -> None:
        """Fuse three matrices into one, and multiply queries with a common key/value head together."""
        self.pack(frozen_linear)
        self.grouped = self.num_heads > self.num_kv_heads

    def pack(self, packing: Packing) -> None:
        self.query_key_value = packing(fused([self.q_proj, self.k_proj, self.v_proj]), None)
        self.o_proj = packing(self.o_proj.weight, None)
        del self.q_proj, self.k_proj, self.v_proj

    def forward(self, hidden: Tensor, angles: Angles, mask: Tensor | None, cache: PassCache | None) -> Tensor:
        """Return (batch, tokens, hidden) outputs of inputs of the same shape; the default mask is causal."""
        if self.query_key_value is None:
            fused = torch.cat([self.q_proj(hidden), self.k_proj(hidden), self.v_proj(hidden)], dim=-1)
        else:
            fused = self.query_key_value(hidden)
        fused = fused.unflatten(-1, (-1, self.head_dim))
        cos, signed_sin = (part[..., None, :] for part in angles)
        rotated, values = fused.tensor_split([self.num_heads + self.num_kv_heads], dim=-2)
        if self.q_norm is not None:
            queries, keys = rotated.tensor_split([self.num_heads], dim=-2)
            rotated = torch.cat([self.q_norm(queries), self.k_norm(keys)], dim=-2)
        rotated, values = apply_rotary(rotated, cos, signed_sin).transpose(1, 2), values.transpose(1, 2)
        queries, keys = rotated.tensor_split([self.num_heads], dim=1)
        if cache is not None:
            keys, values = cache.update(keys, values, self.index)
        if self.grouped and mask is not None:
            added = additive_mask(mask[0, 0], queries.dtype, self.num_heads // self.num_kv_heads)
            attended = attend_grouped(queries[0], keys, values, added, self.head_dim**-0.5)[None]
        else:
            attended = functional.scaled_dot_product_attention(
                queries, keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
            )
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class SwiGLUExpert(nn.Module):
    """down(silu(gate(u)) · up(u)), the MLP of Llama's layers."""

    def __init__(self, hidden_size: int, inner_size: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, inner_size, bias=False)
        self.up_proj = nn.Linear(hidden_size, inner_size, bias=False)
        self.down_proj = nn.Linear(inner_size, hidden_size, bias=False)

    def forward(self, rows: Tensor) -> Tensor:
        """Return (…, hidden) outputs of inputs of the same shape."""
        return self.down_proj(self.inner(self.gate_proj(rows), self.up_proj(rows)))

    @staticmethod
    def inner(gate: Tensor, up: Tensor) -> Tensor:
        """Return the input of the last matrix from the outputs of the first matrices."""
        return functional.silu(gate) * up


class ExpertMixture(nn.Module):
    """All experts at every position, and the router's logits; the head combines them.

    A layer with one expert is a dense layer. Its router exists only because files have one.

    Args:
        config: Sizes.
        expert: Class of the experts.
        num_experts: Number of experts.
        router_rows: Rows of the router: one per expert, and two for a contrastive pair.
    """

    def __init__(
        self, config: LayerConfig, expert: type[nn.Module], num_experts: int = 1, router_rows: int = 1
    ) -> None:
        super().__init__()
        size, inner_size = config.hidden_size, config.expert_intermediate_size
        self.gate = nn.Linear(size, router_rows, bias=False)
        self.experts = nn.ModuleList(expert(size, inner_size) for _ in range(num_experts))
        self.inner, self.num_experts, self.inner_size = expert.inner, num_experts, inner_size
        self.readers: nn.Module | None = None
        self.writers: Tensor | None = None

    def fuse(self) -> None:
        """Fuse the matrices of all experts' inputs, and compute all outputs in one product; `experts` becomes empty.

        Afterwards the layer cannot be trained.
        """
        self.pack(frozen_linear)
        self.writers = torch.stack([last.weight.T for last in self.experts])
        self.experts = nn.ModuleList()

    def pack(self, packing: Packing) -> None:
        """Pack the experts; the router stays unpacked because it is small and its precision matters."""
        experts = [list(expert.children()) for expert in self.experts]
        self.readers = packing(fused([reader for *readers, _ in experts for reader in readers]), None)
        self.experts = nn.ModuleList(packing(last.weight, None) for *_, last in experts)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Return expert outputs (experts, …, hidden) and router logits (…, router_rows) of (…, hidden) inputs."""
        if self.readers is None:
            experts = [list(expert.children()) for expert in self.experts]
            outputs = [last(self.inner(*(reader(hidden) for reader in readers))) for *readers, last in experts]
        else:
            parts = self.readers(hidden).unflatten(-1, (self.num_experts, -1, self.inner_size))
            if self.writers is not None:
                rows = self.inner(*parts.unbind(-2)).flatten(0, -3).transpose(0, 1)
                return torch.bmm(rows, self.writers).unflatten(1, hidden.shape[:-1]), self.gate(hidden)
            pairs = zip(parts.unbind(-3), self.experts, strict=True)
            outputs = [last(self.inner(*part.unbind(-2))) for part, last in pairs]
        return torch.stack(outputs), self.gate(hidden)


class HeadLayer(nn.Module):
    """A decoder layer of a head: attention, then the experts; the first layer has no norm before attention.

    Args:
        config: Sizes.
        mixture: The experts.
        index: Number of the layer, from 0.
    """

    def __init__(self, config: LayerConfig, mixture: ExpertMixture, index: int = 0) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps) if index else None
        self.self_attn = HeadAttention(config, index)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.mlp_moe = mixture

    def fuse(self) -> None:
        """Fuse matrices with the same input: on a GPU, a pass over few tokens is mostly launches."""
        self.self_attn.fuse()
        self.mlp_moe.fuse()

    def pack(self, packing: Packing) -> None:
        """Fuse matrices with the same input and pack them: on a CPU, a pass over few tokens is mostly dispatch."""
        self.self_attn.pack(packing)
        self.mlp_moe.pack(packing)

    def forward(
        self, hidden: Tensor, angles: Angles, mask: Tensor | None, cache: PassCache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the residual stream x, the expert outputs y (experts first) and the router logits."""
        read = hidden if self.input_layernorm is None else self.input_layernorm(hidden)
        residual = hidden + self.self_attn(read, angles, mask, cache)
        expert_outputs, router_logits = self.mlp_moe(self.post_attention_layernorm(residual))
        return residual, expert_outputs, router_logits


def fused(linears: list[nn.Linear]) -> Tensor:
    """Return the concatenated weights of layers with the same input."""
    return torch.cat([linear.weight.detach() for linear in linears])


def frozen_linear(weight: Tensor, bias: None = None) -> nn.Linear:
    """Return a linear layer without bias and without training."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight.detach(), requires_grad=False)
    return linear
