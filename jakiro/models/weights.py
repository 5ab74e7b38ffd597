"""The weights of a target, taken over from a stock model or read from a GGUF file."""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from jakiro.models.families import output_function, readable_positions, takes_positions
from jakiro.models.llama import FusedLlama
from jakiro.models.stored import StoredModel
from jakiro.ops import kernels
from jakiro.ops.linear import (
    RowInvariantLinears,
    RowTable,
    pack_linears,
    packed_itemsize,
    packed_linear,
    packing_works,
)

# Attribute that `round_linears` sets on models with rounded weights, which compiled kernels then keep in 8 bits
ROUNDED = "rounded_to_blocks"


@dataclass(frozen=True, eq=False, kw_only=True)
class TargetWeights:
    """A target's weights as its passes read them.

    Attributes:
        model: The stock model, without the layers that `fused` took over, or a model in the bits of its file.
        config: transformers' text config.
        embedding: (vocab_size, hidden_size), a tensor or a `RowTable`.
        output_weight: (vocab_size, hidden_size), a tensor or a `RowTable`.
        logits: Output function, (rows, hidden_size) → (rows, vocab_size).
        fused: The decoder layers if they have Llama's shape; None if passes run through `model`.
        itemsize: Bytes of a weight as passes read it. Packed weights may take fewer than `dtype`.
        takes_positions: Whether the stock decoder accepts `position_ids`.
        linears: Context in which passes through `model` run.
    """

    model: nn.Module | StoredModel
    config: object
    embedding: Tensor | RowTable
    output_weight: Tensor | RowTable
    logits: Callable[[Tensor], Tensor]
    fused: FusedLlama | None
    itemsize: int
    takes_positions: bool = False
    linears: AbstractContextManager = field(default_factory=nullcontext)

    @classmethod
    def take_over(cls, model: nn.Module | StoredModel) -> "TargetWeights":
        """Pack and fuse a model's weights.

        Args:
            model: A stock causal language model on its device and in its dtype, which is changed in place: layers of
                Llama's shape move into a `FusedLlama`, and on a CPU in float32 linear layers are packed. Or a
                `StoredModel`.
        """
        config = model.config.get_text_config()
        if is_spread(model):
            embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
            is_exact = output.device.type == "cpu" and output.dtype == torch.float32
            linears = RowInvariantLinears() if is_exact else nullcontext()
            output_logits = output_function(model, output.detach())

            def logits(features: Tensor) -> Tensor:
                with linears:
                    return output_logits(features)

            return cls(
                model=model,
                config=config,
                embedding=embedding.detach(),
                output_weight=output.detach(),
                logits=logits,
                fused=None,
                itemsize=output.dtype.itemsize,
                takes_positions=takes_positions(model.base_model),
                linears=linears,
            )
        if isinstance(model, StoredModel):
            return cls(
                model=model,
                config=config,
                embedding=model.embedding,
                output_weight=model.output_weight,
                logits=model.output,
                fused=model.fused,
                itemsize=model.output.itemsize,
            )
        embedding = model.get_input_embeddings().weight.detach()
        output_weight = model.get_output_embeddings().weight.detach()
        can_pack = packing_works(output_weight.device, output_weight.dtype)
        packing = kernels.current().rounded_linear if getattr(model, ROUNDED, False) else packed_linear
        fused = FusedLlama.build(model, packing if can_pack else None)
        if fused is not None:
            model.base_model.layers = nn.ModuleList()
        if can_pack:
            pack_linears(model, packing)
        return cls(
            model=model,
            config=config,
            embedding=embedding,
            output_weight=output_weight,
            logits=output_function(model, output_weight),
            fused=fused,
            itemsize=packed_itemsize(model, output_weight.dtype),
            takes_positions=takes_positions(model.base_model),
        )

    @property
    def device(self) -> torch.device:
        """Device of trees and logits. A model that is spread over several devices moves tensors by itself."""
        return self.output_weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.output_weight.dtype

    @property
    def is_spread(self) -> bool:
        """Return whether accelerate moves layers to the device for each pass, see `jakiro.loading.spread`."""
        return is_spread(self.model)

    @property
    def is_compiled(self) -> bool:
        """True if passes over trees run in compiled code, see `jakiro.ops.kernels`."""
        return self.fused is not None and self.fused.native is not None

    @property
    def is_quantized(self) -> bool:
        """True if transformers quantized the weights while loading them."""
        return getattr(self.model, "quantization_method", None) is not None

    @property
    def max_positions(self) -> int:
        """Number of positions that may be used."""
        return readable_positions(self.config)[0]


def is_spread(model: nn.Module | StoredModel) -> bool:
    """Return whether accelerate spread a model's layers over several devices, memory or disk."""
    return len({str(device) for device in getattr(model, "hf_device_map", {}).values()}) > 1


def describe_device_map(device_map: Mapping[str, int | str]) -> str:
    """Return how many modules are on which device, such as "12 modules on GPU 0, 20 in memory"."""
    counts = Counter(device_map.values())
    names = {"cpu": "in memory", "disk": "on disk"}
    return ", ".join(f"{count} modules {names.get(device, f'on GPU {device}')}" for device, count in counts.items())
