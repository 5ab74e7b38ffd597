"""The registry of kernels: torch's own operations, and modules that replace some of them with faster code.

Every caller has torch code for its operation. It requests a replacement from `current()` and runs its own code if that
is None, so no other package imports a module with compiled kernels.
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn

from jakiro.ops.blocks import StoredBlocks

if TYPE_CHECKING:
    from jakiro.ops.cache import RowCache

# Modules with a `KERNELS` that replaces operations, the preferred one first. To remove one, delete its line and folder.
MODULES: tuple[str, ...] = (
    "jakiro.backends.native.kernels",
)  # fmt: skip

# Makes a packed layer from weight and bias
Packing = Callable[[Tensor, Tensor | None], nn.Module]


class SamplingKernels(Protocol):
    """Noise, verification and ranking over rows of a vocabulary; implemented by `jakiro.backends.native.sampling`."""

    write_noise: Callable[[int, int, Tensor, Tensor], None]
    filters: Callable[..., object]
    verify: Callable[..., tuple]
    ranks_up_to: Callable[[int], bool]
    best_tokens: Callable[..., tuple]
    best_of_mixture: Callable[..., tuple]


class DecoderKernel(Protocol):
    """All layers of a target of Llama's shape in one call."""

    def runs_on(self, cache: object) -> bool:
        """Return whether the kernel can append rows to this cache."""

    def __call__(
        self, hidden: Tensor, cos: Tensor, sin: Tensor, visible: Tensor, cache: "RowCache", output_layers: Sequence[int]
    ) -> list[Tensor]:
        """Run tokens; see `jakiro.backends.native.decoder.NativeDecoder`."""


class Kernels:
    """Torch's kernels: every operation is left to the caller's torch code.

    A subclass overrides the operations that it computes faster.

    Attributes:
        name: Name in reports.
        linear: Packs float32 weights without loss, or None.
        int8_linear: Rounds weights to 8 bits with one scale per output, or None.
        rounded_linear: Rounds weights to blocks of 8 bits as GGUF's Q8_0 does, or None.
        block_linear: Makes a layer from `StoredBlocks`, the number of inputs and a bias, or None.
    """

    name = "torch"
    linear: Packing | None = None
    int8_linear: Packing | None = None
    rounded_linear: Packing | None = None
    block_linear: Callable[[Sequence[StoredBlocks], int, Tensor | None], nn.Module] | None = None

    def unavailable_reason(self) -> str | None:
        """Return why these kernels cannot run here, as the end of a sentence; None if they can."""
        return None

    def start_build(self) -> None:
        """Start building the kernels in a background thread, if they still have to be built."""

    def sampling_for(self, rows: Tensor) -> SamplingKernels | None:
        """Return the functions that compute on rows of this device and dtype, or None."""
        return None

    def decoder(self, layers: Sequence, heads: tuple[int, int, int], scaling: float) -> DecoderKernel | None:
        """Return one call for all layers of a decoder, or None if they do not fit it.

        Args:
            layers: `jakiro.models.llama.Layer` objects of one shape.
            heads: Query heads, key/value heads and head_dim.
            scaling: Factor of the attention scores.
        """
        return None

    def head_layer(self, projection: nn.Linear, layer: nn.Module, angles: object, packing: Packing):
        """Return one call for the layer of a `LayerHead`, or None if it does not fit; arguments as in
        `jakiro.backends.native.head_layer.NativeHeadLayer`.
        """
        return None

    def tree_growth(self, head: nn.Module, tree: object) -> Callable | None:
        """Return the function that grows such trees with this head in one call, or None.

        It is called as `jakiro.backends.native.tree_growth.grow_in_one_call` is.
        """
        return None


TORCH = Kernels()


@functools.cache
def registered() -> tuple[Kernels, ...]:
    """Return the kernels of all `MODULES`, whether they run here or not, and torch's last."""
    return (*(importlib.import_module(name).KERNELS for name in MODULES), TORCH)


def current() -> Kernels:
    """Return the preferred kernels that run on this machine; the first call builds them."""
    return next(kernels for kernels in registered() if kernels.unavailable_reason() is None)


def unavailable_reason() -> str | None:
    """Return why no kernels but torch's run here, as the end of a sentence; None if others do."""
    if current() is not TORCH:
        return None
    return "; ".join(str(kernels.unavailable_reason()) for kernels in registered()[:-1]) or "none are installed"


def start_build() -> None:
    """Start building all kernels in background threads while the caller does other work."""
    for kernels in registered():
        kernels.start_build()
