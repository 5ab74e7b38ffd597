"""Speed estimates for a target and its head on a GPU, from data sheets; nothing here is measured.

The time of a pass is the sum of reading its bytes at the card's bandwidth, launching its kernels, and its float64
operations. Kernels and bytes are formulas of the model's shape, counted on torch's `meta` device.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from jakiro.cli.finding import Finding
from jakiro.loading import placement, weights
from jakiro.loading.shapes import SHAPES, Shape

CONTEXT, COLUMNS, TREE_ROWS, DRAFT_WIDTH = 960, 1024, 64, 8
# Share of the data sheet's bandwidth that reading weights reaches, microseconds between kernels of a graph, and
# milliseconds in which the device waits for the host after each step
BANDWIDTH_SHARE, KERNEL_US, HOST_MS = 0.85, 2.0, 1.0
# Memory of kernels, the CUDA context and captured graphs
WORKSPACE_BYTES = 1.5e9
# Kernels of a pass (per layer, and outside the layers), of a draft of five levels, and of the rest of a step
TARGET_KERNELS = {"fast": (15, 0), "exact": (16, 30)}
DRAFT_KERNELS, STEP_KERNELS = 276, 59


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU according to its data sheet.

    Attributes:
        memory: bytes.
        bandwidth: bytes per second.
        float64: operations per second.
        bfloat16: whether it multiplies bfloat16 in hardware.
        fast_float64: whether exact numerics is the default.
    """

    name: str
    memory: float
    bandwidth: float
    float64: float
    bfloat16: bool = True
    fast_float64: bool = False


CARDS = {
    "t4": Card("T4", 16e9, 320e9, 0.25e12, bfloat16=False),
    "l4": Card("L4", 24e9, 300e9, 0.47e12),
    "a10g": Card("A10G", 24e9, 600e9, 0.49e12),
    "a100": Card("A100 80 GB", 80e9, 1935e9, 9.7e12, fast_float64=True),
    "h100": Card("H100 80 GB", 80e9, 3350e9, 34e12, fast_float64=True),
}


@dataclass(frozen=True, slots=True)
class Estimate:
    """Estimate of one pair on one card; times are for passes after `CONTEXT` tokens.

    Attributes:
        needed: bytes of memory by the bits per weight of the target's layers.
        bits: most bits per weight that fit; None if none do.
        dtype, numerics: the defaults on this card.
        plain_ms: milliseconds of a plain step.
        parts: milliseconds of a drafted step by cause.
    """

    needed: dict[int, float]
    bits: int | None
    dtype: str
    numerics: str
    plain_ms: float
    parts: dict[str, float]

    @property
    def drafted_ms(self) -> float:
        return sum(self.parts.values())

    @property
    def break_even(self) -> float:
        """The τ above which drafting is faster than plain decoding."""
        return self.drafted_ms / self.plain_ms


def estimate(shape: Shape, card: Card) -> Estimate:
    """Return memory and times of a pair on a card."""
    numerics, cached = ("exact", 8) if card.fast_float64 else ("fast", 2)
    layer, around = TARGET_KERNELS[numerics]

    def read_ms(num_bytes: float) -> float:
        return 1000 * num_bytes / (BANDWIDTH_SHARE * card.bandwidth)

    def target_bytes(rows: int) -> float:
        """Return the bytes that a pass of the target reads and writes: weights, cache, activations and scores."""
        streams = rows * shape.layers * 2 * (12 * shape.hidden + 6 * shape.inner)
        scores = 5 * rows * COLUMNS * shape.heads * 8 * shape.layers if numerics == "exact" else 0
        return 2 * shape.weights_read + COLUMNS * shape.cache_row * cached + streams + scores

    def attention_ms(rows: int) -> float:
        work = 4 * rows * COLUMNS * shape.heads * shape.head_dim * shape.layers if numerics == "exact" else 0
        return 1000 * work / card.float64

    def launch_ms(num_kernels: int) -> float:
        return KERNEL_US * (layer * shape.layers + around + num_kernels) / 1000

    # A draft of five levels reads the head four times and the root's scores
    draft_bytes = 2 * (4 * shape.head_weights_read + 2 * DRAFT_WIDTH * shape.vocabulary * 5)
    parts = {
        "reading the target": read_ms(target_bytes(TREE_ROWS)),
        "float64 attention": attention_ms(TREE_ROWS),
        "reading the head": read_ms(draft_bytes),
        "starting kernels": launch_ms(DRAFT_KERNELS + STEP_KERNELS),
        "the host": HOST_MS,
    }
    plain = read_ms(target_bytes(1)) + attention_ms(1) + launch_ms(STEP_KERNELS) + HOST_MS
    extra_bytes = 2 * (shape.head_weights_read + 2 * shape.vocabulary * shape.hidden) + WORKSPACE_BYTES
    extra_bytes += 2 * placement.CACHE_TOKENS * shape.cache_row * cached
    weights_of = {16: 2.0} | {bits: placement.bytes_per_weight(bits) for bits in (8, 4)}
    needed = {bits: extra_bytes + size * shape.layer_weights for bits, size in weights_of.items()}
    bits = next((bits for bits, size in needed.items() if size <= placement.USABLE_SHARE * card.memory), None)
    return Estimate(needed, bits, "bfloat16" if card.bfloat16 else "float16", numerics, plain, parts)


def estimate_target(target: str, card: str | None) -> Iterator[Finding]:
    """Yield the assumptions, then the estimate of a target on each card; it is not `ok` if 16-bit weights do not fit.

    Args:
        target: a name in `SHAPES`, or a target whose config can be loaded.
        card: a name in `CARDS` in any case; None for all cards.

    Raises:
        ValueError: the card or the target is unknown; raised at the first iteration.
    """
    if card is not None and card.lower() not in CARDS:
        raise ValueError(f"Unknown card {card!r}; choose one of {', '.join(CARDS)}.")
    shape = SHAPES.get(target) or Shape.of(weights.load_config(target))
    yield Finding(
        "plan",
        f"estimates for {target}, not measured. Memory, bandwidth and float64 are the card's data sheet's; weights are "
        f"the target's; kernels and bytes are counted on passes after {CONTEXT} tokens; that {BANDWIDTH_SHARE:.0%} of "
        f"the bandwidth is reached, {KERNEL_US:g} µs a kernel and {HOST_MS:g} ms of the host a step are assumed. How "
        "many tokens a drafted step writes (τ) depends on head and text: `python -m jakiro evaluate` measures it",
    )
    for gpu in CARDS.values() if card is None else [CARDS[card.lower()]]:
        result = estimate(shape, gpu)
        memory = f"{placement.gigabytes(result.needed[16])} of {placement.gigabytes(gpu.memory)}"
        if result.bits != 16:
            yield Finding(gpu.name, f"estimate: does not fit in {result.dtype}, {memory}; {_remedy(result)}", False)
            continue
        dominant = max(result.parts, key=result.parts.__getitem__)
        yield Finding(
            gpu.name,
            f"estimate: fits, {memory}; {result.dtype}, numerics {result.numerics}; a plain step "
            f"{result.plain_ms:.1f} ms, a drafted one {result.drafted_ms:.1f} ms, faster from τ = "
            f"{result.break_even:.2f} on; {result.parts[dominant] / result.drafted_ms:.0%} of it is {dominant}",
        )


def _remedy(result: Estimate) -> str:
    if result.bits is None:
        return "nor in 8 or 4 bits; choose a larger card"
    return (
        f"with --dtype {result.bits}bit it needs {placement.gigabytes(result.needed[result.bits])} and fits, at a "
        "speed that is not estimated, and drafted text may then differ from plain decoding's in near ties"
    )
