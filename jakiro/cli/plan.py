"""What a target and its head would do on a GPU that is not here: an estimate from data sheets, never a measurement.

A pass takes as long as its bytes at the card's bandwidth, its kernels' starts, and its float64 work, one after another.
Kernels and bytes are formulas of the model's shape; a test compares them with the passes themselves, counted on torch's
`meta` device at true shapes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from jakiro.cli.finding import Finding
from jakiro.zoo import placement, weights
from jakiro.zoo.shapes import SHAPES, Shape

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
        needed: bytes of memory. plain_ms: of a plain step. numerics, dtype: what would be chosen.
        needed_in: bytes of memory with the target's layers in so many bits.
        parts: of a drafted step, milliseconds by what takes them.
    """

    card: Card
    needed: float
    needed_in: dict[int, float]
    dtype: str
    numerics: str
    plain_ms: float
    parts: dict[str, float]

    @property
    def fits(self) -> bool:
        return self._holds(self.needed)

    @property
    def fewer_bits(self) -> int | None:
        """In how many bits the target's layers would fit; None where in none."""
        return next((bits for bits, needed in self.needed_in.items() if self._holds(needed)), None)

    def _holds(self, needed: float) -> bool:
        return needed <= placement.USABLE_SHARE * self.card.memory

    @property
    def drafted_ms(self) -> float:
        return sum(self.parts.values())

    @property
    def break_even(self) -> float:
        """τ from which on drafting is faster than not to: so many tokens a drafted step has to write."""
        return self.drafted_ms / self.plain_ms

    @property
    def dominant(self) -> str:
        return max(self.parts, key=self.parts.__getitem__)


def target_kernels(shape: Shape, numerics: str) -> int:
    """Kernels of a target's pass over a tree."""
    layer, around = TARGET_KERNELS[numerics]
    return layer * shape.layers + around


def target_bytes(shape: Shape, numerics: str, rows: int = TREE_ROWS) -> float:
    """Read and written by a target's pass: weights, the cache, and the rows' own numbers."""
    cache = COLUMNS * shape.cache_row * (8 if numerics == "exact" else 2)
    streams = rows * shape.layers * 2 * (12 * shape.hidden + 6 * shape.inner)
    scores = 5 * rows * COLUMNS * shape.heads * 8 * shape.layers if numerics == "exact" else 0
    return 2 * shape.weights_read + cache + streams + scores


def draft_bytes(shape: Shape) -> float:
    """Read by a draft of five levels: four passes and the root's scores."""
    return 2 * (4 * shape.head_weights_read + 2 * DRAFT_WIDTH * shape.vocabulary * 5)


def estimate(shape: Shape, card: Card) -> Estimate:
    """What the pair would need and do."""
    numerics = "exact" if card.fast_float64 else "fast"
    rows = {"plain": 1, "tree": TREE_ROWS}
    work = {
        kind: (4 * count * COLUMNS * shape.heads * shape.head_dim * shape.layers if numerics == "exact" else 0)
        for kind, count in rows.items()
    }
    read = {kind: target_bytes(shape, numerics, count) for kind, count in rows.items()}
    bandwidth = BANDWIDTH_SHARE * card.bandwidth
    kernels = target_kernels(shape, numerics)
    plain = 1000 * (read["plain"] / bandwidth + work["plain"] / card.float64) + HOST_MS
    plain += KERNEL_US * (kernels + STEP_KERNELS) / 1000
    parts = {
        "reading the target": 1000 * read["tree"] / bandwidth,
        "float64 attention": 1000 * work["tree"] / card.float64,
        "reading the head": 1000 * draft_bytes(shape) / bandwidth,
        "starting kernels": KERNEL_US * (kernels + DRAFT_KERNELS + STEP_KERNELS) / 1000,
        "the host": HOST_MS,
    }
    slot = 2 * placement.CACHE_TOKENS * shape.cache_row * (8 if numerics == "exact" else 2)
    tables = 2 * 2 * shape.vocabulary * shape.hidden
    others = 2 * shape.head_weights_read + tables + slot + WORKSPACE_BYTES
    needed = others + 2 * shape.layer_weights
    needed_in = {bits: others + placement.bytes_per_weight(bits) * shape.layer_weights for bits in (8, 4)}
    dtype = "bfloat16" if card.bfloat16 else "float16"
    return Estimate(card, needed, needed_in, dtype, numerics, plain, parts)


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
        room = f"{placement.gigabytes(found.needed)} of {placement.gigabytes(each.memory)}"
        if not found.fits:
            yield Finding(each.name, f"estimate: does not fit in {found.dtype}, {room}; {_way_out(found)}", False)
            continue
        share = found.parts[found.dominant] / found.drafted_ms
        yield Finding(
            each.name,
            f"estimate: fits, {room}; {found.dtype}, numerics {found.numerics}; a plain step {found.plain_ms:.1f} ms, "
            f"a drafted one {found.drafted_ms:.1f} ms, faster from τ = {found.break_even:.2f} on; {share:.0%} of it is "
            f"{found.dominant}",
        )


def _way_out(found: Estimate) -> str:
    bits = found.fewer_bits
    if bits is None:
        return "nor in 8 or 4 bits; choose a larger card"
    return (
        f"a checkpoint in {bits} bits needs {placement.gigabytes(found.needed_in[bits])} and fits, at a speed that is "
        "not estimated, and drafted text may then differ from plain decoding's in near ties"
    )
