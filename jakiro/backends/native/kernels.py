"""The compiled kernels as an entry of the registry in `jakiro.ops.kernels`."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from jakiro.backends.native import library, sampling
from jakiro.backends.native.linear import BlockLinear, CompiledInt8Linear, NativeLinear
from jakiro.ops.kernels import DecoderKernel, Kernels, Packing, SamplingKernels


class NativeKernels(Kernels):
    """Compiled kernels for float32 rows on a CPU.

    Methods import what they return on demand: this module is imported in a background thread, where modules of other
    packages may still be half imported.
    """

    name = "native"
    linear = NativeLinear
    int8_linear = CompiledInt8Linear
    rounded_linear = BlockLinear.rounded
    block_linear = BlockLinear

    def unavailable_reason(self) -> str | None:
        return library.unavailable_reason()

    def start_build(self) -> None:
        library.start_build()

    def sampling_for(self, rows: Tensor) -> SamplingKernels | None:
        return sampling if rows.device.type == "cpu" and rows.dtype == torch.float32 else None

    def decoder(self, layers: Sequence, heads: tuple[int, int, int], scaling: float) -> DecoderKernel | None:
        from jakiro.backends.native.decoder import NativeDecoder

        return NativeDecoder(layers, *heads, scaling) if NativeDecoder.fits(layers) else None

    def head_layer(self, projection: nn.Linear, layer: nn.Module, angles: object, packing: Packing):
        from jakiro.backends.native.head_layer import NativeHeadLayer

        return NativeHeadLayer(projection, layer, angles, packing) if NativeHeadLayer.fits(layer) else None

    def tree_growth(self, head: nn.Module, tree: object) -> Callable | None:
        from jakiro.backends.native.tree_growth import can_grow_in_one_call, grow_in_one_call

        return grow_in_one_call if can_grow_in_one_call(head, tree) else None


KERNELS = NativeKernels()
