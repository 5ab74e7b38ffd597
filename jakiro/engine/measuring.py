"""Times target passes by nodes and drafts by levels on this device, in pieces that answers fit between.

The mean of several rounds counts, not the least. A pass over few rows waits for the memory, which now and then is much
quicker than usual; one over many rows waits for the processor, which never is. So by their least times larger trees
look too dear. A few passes are timed after a longer text too, to learn what each further token adds.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.tree import DraftTree
from jakiro.drafting.base import Committed, Drafter, Prompt, TreeLimits
from jakiro.engine.costs import NODE_BUCKETS, ROUNDS, DeviceProfile
from jakiro.engine.runner import Runner, RunnerPool, SlicedRunner
from jakiro.target.model import TargetModel

# Matrices are multiplied in blocks of 10 rows (tiles), 14 (AVX-512) or 6 (AVX2); a block begun costs almost a full one.
# Few rows cost what reading the weights costs, many what multiplying them does: on a line across that corner, from 4 to
# 8 rows for instance, 6 would look much dearer than they are, so small sizes are all timed
PROFILED_NODES = (1, 2, 4, 6, 8, 10, 12, 14, 20, 24, 28, 42, 56, 64)
PROFILED_LEVELS = 8
PROFILED_WIDTH = 8
CONTEXT_TOKENS = 128
# A time that was disturbed counts as no more than so many times the mean before it
MOST_OVER_MEAN = 1.5
# The first one of its size takes some milliseconds longer; where it is shorter than this, the second one counts
COLD_MS = 30.0
# Some passes and drafts are timed again after a text of so many tokens
FAR_TOKENS, FAR_NODES, FAR_LEVELS = 1152, (1, 4, 14, 28), (1, 3)
# … unless the target would take longer than this to read it
MAX_PREFILL_MS = 15_000

_LEVELS = range(1, PROFILED_LEVELS + 1)
# Drafts are timed for trees as answers mostly have them: what a tree can't hold is not expanded, and in wide ones each
# level would seem to cost twice as much
NODES_A_LEVEL = 3
_SAMPLING = SamplingParams(max_new_tokens=64)
_BOUNDS = TreeConfig(width=PROFILED_WIDTH, depth=PROFILED_LEVELS, nodes=max(PROFILED_NODES), policy="auto")

T = TypeVar("T")
# (nodes or levels, milliseconds), ascending
Curve = tuple[tuple[int, float], ...]


class Measuring:
    """Costs of a target's passes, or of a drafter's trees, found a piece at a time.

    A piece is a round over all sizes after a short text, one over some of them after a long text, or a part of the long
    text read before that; each takes some tenths of a second on a small CPU.

    Args:
        drafts: time drafts; False times passes, and the drafter only says what slots are to capture.
        slots: where passes run at fixed addresses, these are timed, one for each row bucket. Their attention costs the
            same up to the next step in columns, so one length is timed, and all in one piece.
        known: what earlier rounds found, in this process or another.
        nodes_a_level: of the trees that are drafted without slots; None drafts full levels.
    """

    def __init__(
        self,
        target: TargetModel,
        drafter: Drafter,
        drafts: bool,
        slots: RunnerPool | None = None,
        known: DeviceProfile | None = None,
        nodes_a_level: int | None = NODES_A_LEVEL,
    ) -> None:
        self._target, self._drafter, self._drafts, self._slots = target, drafter, drafts, slots
        self._nodes_a_level = nodes_a_level
        self._far_length = min(FAR_TOKENS, target.max_positions - self._rows)
        self._thousands = (self._far_length - CONTEXT_TOKENS) / 1000
        self._rounds = 0 if known is None else known.rounds
        self._near_known, self._far_known = ({}, {}) if known is None else self._times_of(known)
        self._near: _Timings | None = None
        self._far: _Timings | None = None
        self._reads_far, self._far_is_next = False, False

    @property
    def is_done(self) -> bool:
        return self._rounds >= ROUNDS

    @torch.inference_mode()
    def advance(self, key: dict) -> DeviceProfile:
        """Times a piece and returns what is known by then, under this key."""
        if self._slots is not None:
            self._advance_on_slots(self._slots)
        elif self._far_is_next:
            self._advance_far()
        else:
            self._advance_near()
        return self._found(key)

    def _advance_near(self) -> None:
        if self._near is None:
            self._near = self._timings(CONTEXT_TOKENS, self._near_known)
            self._near.read_on()
            prefill_ms = self._near.prefill_ms * self._far_length / CONTEXT_TOKENS
            self._reads_far = self._far_length >= 2 * CONTEXT_TOKENS and prefill_ms <= MAX_PREFILL_MS
        self._near.take(_LEVELS if self._drafts else PROFILED_NODES, self._rounds)
        self._far_is_next = self._reads_far
        self._rounds += not self._reads_far

    def _advance_far(self) -> None:
        if self._far is None:
            self._far = self._timings(self._far_length, self._far_known)
        if not self._far.is_ready:
            self._far.read_on()
            return
        self._far.take(FAR_LEVELS if self._drafts else FAR_NODES, self._rounds)
        self._far_is_next = False
        self._rounds += 1

    def _advance_on_slots(self, slots: RunnerPool) -> None:
        runner, release = slots.borrow(
            self._drafter, _SAMPLING, _BOUNDS, slots.tree_sizes, CONTEXT_TOKENS, _SAMPLING.max_new_tokens
        )
        try:
            self._near = self._timings_on(runner, CONTEXT_TOKENS, self._near_known, slots.tree_sizes)
            self._near.read_on()
            for rounds in range(self._rounds, ROUNDS):
                self._near.take(_LEVELS if self._drafts else (1, *slots.tree_sizes), rounds)
        finally:
            release()
        self._rounds = ROUNDS

    @property
    def _rows(self) -> int:
        """Rows of the cache after the text."""
        return 1 + self._target.row_bucket(max(PROFILED_NODES))

    def _timings(self, length: int, known: dict[int, float]) -> "_Timings":
        runner = SlicedRunner(self._target, _SAMPLING, length + self._rows)
        return self._timings_on(runner, length, known, NODE_BUCKETS, self._nodes_a_level)

    def _timings_on(
        self,
        runner: Runner,
        length: int,
        known: dict[int, float],
        sizes: tuple[int, ...],
        nodes_a_level: int | None = None,
    ) -> "_Timings":
        drafter = self._drafter if self._drafts else None
        return _Timings(self._target, runner, drafter, length, TreeLimits(_BOUNDS, sizes), known, nodes_a_level)

    def _times_of(self, known: DeviceProfile) -> tuple[dict[int, float], dict[int, float]]:
        """Milliseconds by nodes or levels after the short and the long text, from what a profile keeps."""
        curve, slopes = (known.draft_ms, known.draft_slopes) if self._drafts else (known.verify_ms, known.verify_slopes)
        near = dict(curve)
        return near, {count: near[count] + slope * self._thousands for count, slope in slopes if count in near}

    def _found(self, key: dict) -> DeviceProfile:
        near, far = self._near.times, self._far_known if self._far is None else self._far.times
        slopes = {count: max(ms - near[count], 0.0) / self._thousands for count, ms in far.items()}
        sizes = NODE_BUCKETS if self._slots is None or self._drafts else self._slots.tree_sizes
        profile = DeviceProfile((), (), PROFILED_WIDTH, key, sizes, CONTEXT_TOKENS, rounds=self._rounds)
        if self._drafts:
            return replace(profile, draft_ms=_ascending(near), draft_slopes=_ascending(slopes))
        return replace(profile, verify_ms=_ascending(near), verify_slopes=_ascending(slopes))


def measure_passes(target: TargetModel, drafter: Drafter, key: dict, slots: RunnerPool | None = None) -> DeviceProfile:
    """All rounds of a target's passes at once; takes some seconds on a small CPU.

    Args:
        drafter: one that will be used, so that slots capture only what answers need.
    """
    return _measured(Measuring(target, drafter, False, slots), key)


def measure_drafts(
    target: TargetModel,
    drafter: Drafter,
    key: dict,
    slots: RunnerPool | None = None,
    nodes_a_level: int | None = NODES_A_LEVEL,
) -> DeviceProfile:
    """All rounds of a drafter's trees at once."""
    return _measured(Measuring(target, drafter, True, slots, None, nodes_a_level), key)


def _measured(measuring: Measuring, key: dict) -> DeviceProfile:
    found = measuring.advance(key)
    while not measuring.is_done:
        found = measuring.advance(key)
    return found


class _Timings:
    """Repeated timings of passes or drafts after a text of one length, once that is read.

    Args:
        drafter: what drafts; None times the target's passes.
        context: tokens of the text.
        limits: of the drafts.
        known: times of earlier rounds.
        nodes_a_level: of drafted trees, beside the root; None drafts full levels, as slots have captured them.

    Attributes:
        times: by nodes or levels, mean milliseconds.
        is_ready: whether the text is read.
        prefill_ms: what reading it took.
    """

    def __init__(
        self,
        target: TargetModel,
        runner: Runner,
        drafter: Drafter | None,
        context: int,
        limits: TreeLimits,
        known: dict[int, float],
        nodes_a_level: int | None = None,
    ) -> None:
        self._nodes_a_level = nodes_a_level
        self.runner, self.context, self.limits, self.device = runner, context, limits, target.device
        self.times, self.is_ready, self.prefill_ms = dict(known), False, 0.0
        self._ids = (torch.arange(context + 1, device=target.device) * 7 + 11) % target.vocab_size
        self._drafter = drafter
        # Of the parts of the text that are read
        self._features: list[torch.Tensor] = []

    def read_on(self) -> None:
        """Reads the next part of the text, `CONTEXT_TOKENS` of it; after the last one it is ready."""
        start = sum(map(len, self._features))
        part = self._ids[start : min(start + CONTEXT_TOKENS, self.context)]
        (features, _), milliseconds = _timed(self.device, partial(self.runner.prefill, part))
        self._features.append(features)
        self.prefill_ms += milliseconds
        if start + len(part) == self.context:
            self._begin(torch.cat(self._features))

    def _begin(self, features: torch.Tensor) -> None:
        self._features, self.is_ready = [], True
        self.root = self._ids[-1:]
        self.runner.begin(self.root)
        self.again = Committed(self.root.tolist(), self.root, features[-1:])
        self.session = None
        if self._drafter is not None:
            self.session = self.runner.session(self._drafter, Prompt(self._ids.tolist(), self._ids, features))

    def take(self, counts: Sequence[int], rounds: int) -> None:
        """One round over passes by nodes, or over drafts by levels, after so many."""
        # The very first one may take several times as long as any other, and one after the largest is slower, too
        self._time(counts[0])
        for count in counts:
            milliseconds = self._time(count)
            if count not in self.times and milliseconds < COLD_MS:
                milliseconds = self._time(count)
            mean = self.times.setdefault(count, milliseconds)
            self.times[count] += (min(milliseconds, MOST_OVER_MEAN * mean) - mean) / (rounds + 1)

    def _time(self, count: int) -> float:
        """Milliseconds of a pass over so many nodes, or of a draft of so many levels."""
        if self.session is None:
            return _timed(self.device, partial(self.runner.score, self.runner.place(_bush(self.root, count))))[1]
        # As in decoding, where the target's weights have just pushed the head's out of the processor's caches
        self.runner.score(self.runner.place(_bush(self.root, 1)))
        return _timed(self.device, partial(self._propose, count))[1]

    def _propose(self, levels: int) -> None:
        self.session.observe(self.again)
        tree = replace(self.limits.tree, depth=levels)
        if self._nodes_a_level is not None:
            tree = replace(tree, nodes=1 + self._nodes_a_level * levels)
        self.session.propose(replace(self.limits, tree=tree))
        self.session.rewind(self.context + 1)


def _timed(device: torch.device, work: Callable[[], T]) -> tuple[T, float]:
    """The result of the work, and the milliseconds until the device finished it."""
    _wait_for(device)
    start = time.perf_counter()
    result = work()
    _wait_for(device)
    return result, 1000 * (time.perf_counter() - start)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _ascending(times: dict[int, float]) -> Curve:
    """The timings as a curve that never falls: more work takes no less time, so a dip is noise."""
    points, highest = [], 0.0
    for count, milliseconds in sorted(times.items()):
        highest = max(highest, milliseconds)
        points.append((count, round(highest, 3)))
    return tuple(points)


def _bush(root: torch.Tensor, nodes: int) -> DraftTree:
    """A root with `nodes` − 1 children."""
    depths = torch.tensor([0] + [1] * (nodes - 1), device=root.device)
    return DraftTree.unscored(root.expand(nodes), depths - 1, depths, min(nodes - 1, 1))
