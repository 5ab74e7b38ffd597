"""What passes cost on this device: timed once, by a few passes, when a tree is first to choose its own size.

The first steps of an answer could be timed instead, but all of one size: they say nothing of what another one would
cost, and a short answer is over before they do.
"""

import json
import platform
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.decode.runner import Runner, SlicedRunner
from jakiro.drafters.base import Committed, Context, Drafter, TreeLimits
from jakiro.models.probes import star_tree
from jakiro.models.target import TargetModel
from jakiro.system import num_cores, processor_name

ROUNDS = 5
# Few rows cost what reading the weights costs, many what multiplying them does
ROWS, LEVELS = (1, 4, 12, 24), (1, 4)
# Some passes are timed after a long text, too, to learn what each token before the root adds
NEAR_TOKENS, FAR_TOKENS, FAR_ROWS = 128, 1152, (1, 12)
_SAMPLING = SamplingParams(max_new_tokens=64)

# (rows or levels, milliseconds), ascending
Line = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """What passes cost on one device.

    Attributes:
        verify_ms: (nodes, milliseconds) of a target pass; the first entry is plain decoding's.
        draft_ms: (levels, milliseconds) of a draft; empty for a method that runs none.
        key: what was measured: target, method, device.
        context: tokens before the root where this was measured.
        further_ms: (nodes, milliseconds) that 1,000 further tokens before the root add to a target pass.
    """

    verify_ms: Line
    draft_ms: Line
    key: dict = field(default_factory=dict)
    context: int = 0
    further_ms: Line = ()

    def verify(self, nodes: int, context: int = 0) -> float:
        """Milliseconds of a target pass over so many nodes with `context` tokens before the root."""
        further = interpolate(self.further_ms, nodes) * max(context - self.context, 0) / 1000
        return interpolate(self.verify_ms, nodes) + further

    def draft(self, levels: int) -> float:
        """Milliseconds of drafting so many levels."""
        return interpolate(self.draft_ms, levels) if levels else 0.0

    def to_dict(self) -> dict:
        """The fields in JSON's types."""
        return json.loads(json.dumps(asdict(self)))


def interpolate(points: Line, x: float) -> float:
    """Piecewise linear through ascending (x, y) points; beyond the last one its last slope goes on. 0 without any."""
    if len(points) < 2 or x <= points[0][0]:
        return points[0][1] if points else 0.0
    right = min(bisect_left(points, x, key=lambda point: point[0]), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def device_name(device: torch.device) -> str:
    """The device in words a person reads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{num_cores()}-core CPU" if device.type == "cpu" else str(device)


def measure(target: TargetModel, drafter: Drafter, drafts: bool, slots=None) -> DeviceProfile:
    """Times what the size of a tree depends on: half a second on two cores of a laptop.

    Args:
        drafts: whether the drafter runs passes.
        slots: `jakiro.backends.cuda_graphs.pool.Slots`, where passes run at fixed addresses, else None. Trees have
            one size there, and attention costs the same for any text, so only plain passes and those of that tree are
            timed.
    """
    rows, levels = (ROWS, LEVELS) if slots is None else ((1, slots.tree.nodes), (slots.tree.depth,))
    verify_ms = time_passes(target, drafter, rows, slots=slots)
    draft_ms = time_drafts(target, drafter, levels, slots=slots) if drafts else ()
    far = min(FAR_TOKENS, target.max_positions - ROWS[-1])
    further: Line = ()
    if slots is None and far >= 2 * NEAR_TOKENS:
        added = [
            (nodes, 1000 * (ms - interpolate(verify_ms, nodes)) / (far - NEAR_TOKENS))
            for nodes, ms in time_passes(target, drafter, FAR_ROWS, context=far)
        ]
        further = _ascending(added)
    cpu = f"{processor_name()} ({platform.machine()})"
    device = torch.cuda.get_device_name(target.device) if target.device.type == "cuda" else cpu
    key = {"device": device, "threads": torch.get_num_threads()}
    return DeviceProfile(verify_ms, draft_ms, key, NEAR_TOKENS, further)


@torch.inference_mode()
def time_passes(
    target: TargetModel, drafter: Drafter, rows: Sequence[int], context: int = NEAR_TOKENS, slots=None
) -> Line:
    """Milliseconds of the target's passes by rows, after a text of `context` tokens."""
    with _after_text(target, drafter, context, max(rows), slots) as (runner, prompt):

        def pass_over(nodes: int) -> float:
            tree = runner.place(star_tree(prompt.ids[-2:], nodes))
            return _milliseconds(target.device, partial(runner.score, tree))

        return _medians(pass_over, rows)


@torch.inference_mode()
def time_drafts(target: TargetModel, drafter: Drafter, levels: Sequence[int], width: int = 1, slots=None) -> Line:
    """Milliseconds of drafts by levels: of chains, which surely reach their last level, or of wider trees."""
    with _after_text(target, drafter, NEAR_TOKENS, 1, slots) as (runner, prompt):
        session = runner.session(drafter, prompt)
        root = Committed(prompt.token_ids[-1:], prompt.ids[-1:], prompt.features[-1:])

        def draft(depth: int) -> float:
            # As in decoding, where the target's weights have just pushed the head's out of the processor's caches
            runner.score(runner.root_tree())
            session.observe(root)
            tree = TreeConfig(width, depth, 1 + width * depth) if slots is None else slots.tree
            milliseconds = _milliseconds(target.device, partial(session.propose, TreeLimits(tree)))
            session.rewind(len(prompt.token_ids))
            return milliseconds

        return _medians(draft, levels)


@contextmanager
def _after_text(
    target: TargetModel, drafter: Drafter, context: int, rows: int, slots
) -> Iterator[tuple[Runner, Context]]:
    """A runner that has read a text of so many tokens, with room for a tree of `rows` after it; and the text."""
    ids = (torch.arange(NEAR_TOKENS + 1, device=target.device) * 7 + 11) % target.vocab_size
    if slots is None:
        runner, release = SlicedRunner(target, _SAMPLING, context + target.row_bucket(rows)), lambda: None
    else:
        num_tokens = NEAR_TOKENS + _SAMPLING.max_new_tokens
        runner, release = slots.borrow(drafter, _SAMPLING, slots.tree, NEAR_TOKENS, num_tokens)
    try:
        features, _ = runner.prefill(ids[:-1])
        if context > NEAR_TOKENS:
            # What rows hold does not change what attending to them costs
            runner.cache.extend(context - NEAR_TOKENS - 1)
            runner.prefill(ids[-1:])
        runner.begin(ids[-1:])
        yield runner, Context(ids.tolist(), ids, features)
    finally:
        release()


def _medians(once: Callable[[int], float], counts: Sequence[int]) -> Line:
    """The median of some rounds, in which all counts take turns, so that who else computes meanwhile meets each alike.

    A first round is not counted: what is timed for the first time may take several times as long.
    """
    rounds = [[once(count) for count in counts] for _ in range(1 + ROUNDS)][1:]
    return _ascending(list(zip(counts, map(statistics.median, zip(*rounds, strict=True)), strict=True)))


def _ascending(points: Sequence[tuple[int, float]]) -> Line:
    """The points as a line that never falls, nor below 0: more work takes no less time, so a dip is noise."""
    found, highest = [], 0.0
    for count, milliseconds in points:
        highest = max(highest, milliseconds)
        found.append((count, round(highest, 3)))
    return tuple(found)


def _milliseconds(device: torch.device, work: Callable[[], object]) -> float:
    """Until the device has finished the work."""
    wait = partial(torch.cuda.synchronize, device) if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    work()
    wait()
    return 1000 * (time.perf_counter() - start)
