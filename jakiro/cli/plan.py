"""What a target and its head would do on a GPU that is not here: an estimate from data sheets, never a measurement.

A pass takes as long as its bytes at the card's bandwidth, its kernels' starts, and its float64 work, one after another.
Kernels and bytes are formulas of the model's shape, from passes that were counted on torch's `meta` device.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from jakiro.cli.finding import Finding
from jakiro.loading import placement, weights
from jakiro.loading.shapes import SHAPES, Shape

CONTEXT, COLUMNS, TREE_ROWS, DRAFT_WIDTH = 960, 1024, 64, 8
# Share of the data sheet's bandwidth that reading weights reaches, microseconds from one kernel of a graph to the next,
# and milliseconds that the device waits for the host after each step
BANDWIDTH_SHARE, KERNEL_US, HOST_MS = 0.85, 2.0, 1.0
# What kernels, the CUDA context and captured graphs take
WORKSPACE_BYTES = 1.5e9
# Kernels of a pass: a layer's, and those around the layers; of a draft of five levels; of what else is in a step
TARGET_KERNELS = {"fast": (15, 0), "exact": (16, 30)}
DRAFT_KERNELS, STEP_KERNELS = 276, 59


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU by its data sheet.

    Attributes:
        memory: bytes. bandwidth: bytes a second. float64: operations a second.
        bfloat16: whether it multiplies bfloat16 in hardware. fast_float64: whether exact numerics suits it.
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
    """One pair on one card; milliseconds are of passes over a text of `CONTEXT` tokens.

    Attributes:
        needed: bytes of memory with the target's layers in so many bits; bits: the most that fit, None where none do.
        plain_ms: of a plain step. numerics, dtype: what would be chosen.
        parts: of a drafted step, milliseconds by what takes them.
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
        """τ from which on drafting is faster than not to: so many tokens a drafted step has to write."""
        return self.drafted_ms / self.plain_ms


def estimate(shape: Shape, card: Card) -> Estimate:
    """What the pair would need and do."""
    numerics, cached = ("exact", 8) if card.fast_float64 else ("fast", 2)
    layer, around = TARGET_KERNELS[numerics]

    def reading(num_bytes: float) -> float:
        return 1000 * num_bytes / (BANDWIDTH_SHARE * card.bandwidth)

    def target_bytes(rows: int) -> float:
        """Read and written by a target's pass: weights, the cache, and the rows' own numbers."""
        streams = rows * shape.layers * 2 * (12 * shape.hidden + 6 * shape.inner)
        scores = 5 * rows * COLUMNS * shape.heads * 8 * shape.layers if numerics == "exact" else 0
        return 2 * shape.weights_read + COLUMNS * shape.cache_row * cached + streams + scores

    def attending(rows: int) -> float:
        work = 4 * rows * COLUMNS * shape.heads * shape.head_dim * shape.layers if numerics == "exact" else 0
        return 1000 * work / card.float64

    def starting(others: int) -> float:
        return KERNEL_US * (layer * shape.layers + around + others) / 1000

    # Read by a draft of five levels: four passes and the root's scores
    draft_bytes = 2 * (4 * shape.head_weights_read + 2 * DRAFT_WIDTH * shape.vocabulary * 5)
    parts = {
        "reading the target": reading(target_bytes(TREE_ROWS)),
        "float64 attention": attending(TREE_ROWS),
        "reading the head": reading(draft_bytes),
        "starting kernels": starting(DRAFT_KERNELS + STEP_KERNELS),
        "the host": HOST_MS,
    }
    plain = reading(target_bytes(1)) + attending(1) + starting(STEP_KERNELS) + HOST_MS
    others = 2 * (shape.head_weights_read + 2 * shape.vocabulary * shape.hidden) + WORKSPACE_BYTES
    others += 2 * placement.CACHE_TOKENS * shape.cache_row * cached
    weights_of = {16: 2.0} | {bits: placement.bytes_per_weight(bits) for bits in (8, 4)}
    needed = {bits: others + size * shape.layer_weights for bits, size in weights_of.items()}
    bits = next((bits for bits, size in needed.items() if size <= placement.USABLE_SHARE * card.memory), None)
    return Estimate(needed, bits, "bfloat16" if card.bfloat16 else "float16", numerics, plain, parts)


def planned(target: str, card: str | None) -> Iterator[Finding]:
    """Sentences about a target on one card, or on all of them.

    Raises:
        ValueError: an unknown card, or a target whose shape is neither known nor found.
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
    for each in CARDS.values() if card is None else [CARDS[card.lower()]]:
        found = estimate(shape, each)
        room = f"{placement.gigabytes(found.needed[16])} of {placement.gigabytes(each.memory)}"
        if found.bits != 16:
            yield Finding(each.name, f"estimate: does not fit in {found.dtype}, {room}; {_way_out(found)}", False)
            continue
        dominant = max(found.parts, key=found.parts.__getitem__)
        yield Finding(
            each.name,
            f"estimate: fits, {room}; {found.dtype}, numerics {found.numerics}; a plain step {found.plain_ms:.1f} ms, "
            f"a drafted one {found.drafted_ms:.1f} ms, faster from τ = {found.break_even:.2f} on; "
            f"{found.parts[dominant] / found.drafted_ms:.0%} of it is {dominant}",
        )


def _way_out(found: Estimate) -> str:
    if found.bits is None:
        return "nor in 8 or 4 bits; choose a larger card"
    return (
        f"with --dtype {found.bits}bit it needs {placement.gigabytes(found.needed[found.bits])} and fits, at a speed "
        "that is not estimated, and drafted text may then differ from plain decoding's in near ties"
    )
