"""Costs of passes on this device, measured once, before a tree first chooses its size.

Timing the first steps of an answer instead would give the costs of one size only, and a short answer would end before
it gains.
"""

import json
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial

import torch

from jakiro.backends.device import hardware_name, synchronize
from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.backend import Backend, BackendSession
from jakiro.drafters.base import Committed, Context, Drafter, DraftRequest
from jakiro.models.probes import star_tree

ROUNDS = 5
# Few rows cost the time to read the weights, many rows the time to multiply them
ROWS, LEVELS = (1, 4, 12, 24), (1, 4)
# Passes are also timed after a long text, to measure the cost of each token before the root
NEAR_TOKENS, FAR_TOKENS, FAR_ROWS = 128, 1152, (1, 12)
# Passes that move layers between devices cost nearly the same for all trees, and are slow
SPREAD_ROWS, SLOW_MS = (1, 64, 256), 250.0
_SAMPLING = SamplingParams(max_new_tokens=64)

# (rows or levels, milliseconds), ascending
Line = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """Costs of passes on one device.

    Attributes:
        verify_ms: (nodes, milliseconds) of a target pass, named as in `Step`; the first entry is a plain pass.
        draft_ms: (levels, milliseconds) of a draft; empty for a method without draft passes.
        key: names of the hardware and number of threads.
        context: tokens before the root during the measurement.
        further_ms: (nodes, milliseconds) that 1,000 more tokens before the root add to a target pass.
    """

    verify_ms: Line
    draft_ms: Line
    key: dict = field(default_factory=dict)
    context: int = 0
    further_ms: Line = ()

    def pass_ms(self, nodes: int, context: int = 0) -> float:
        """Return the milliseconds of a target pass over `nodes` nodes with `context` tokens before the root."""
        added_ms = interpolate(self.further_ms, nodes) * max(context - self.context, 0) / 1000
        return interpolate(self.verify_ms, nodes) + added_ms

    def draft(self, levels: int) -> float:
        """Return the milliseconds of drafting `levels` levels."""
        return interpolate(self.draft_ms, levels) if levels else 0.0

    def to_dict(self) -> dict:
        """Return the fields in JSON's types."""
        return json.loads(json.dumps(asdict(self)))


def interpolate(points: Line, x: float) -> float:
    """Interpolate linearly between ascending (x, y) points.

    Beyond the last point the last slope continues; without points the value is 0.
    """
    if len(points) < 2 or x <= points[0][0]:
        return points[0][1] if points else 0.0
    right = min(bisect_left(points, x, key=lambda point: point[0]), len(points) - 1)
    (x0, y0), (x1, y1) = points[right - 1], points[right]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def measure(backend: Backend, drafter: Drafter, has_drafts: bool) -> DeviceProfile:
    """Time passes of different sizes; takes half a second on two cores of a laptop.

    A backend with one fixed size pads all passes to it, and its attention costs the same after any text: only plain
    passes and passes over that tree are timed.

    Args:
        has_drafts: whether the drafter runs passes.
    """
    target, size = backend.target, backend.fixed_size
    rows = SPREAD_ROWS if target.is_spread else ROWS if size is None else (1, size.nodes)
    levels = LEVELS if size is None else (size.levels,)
    verify_ms = time_passes(backend, drafter, rows)
    draft_ms = time_drafts(backend, drafter, levels) if has_drafts else ()
    far_tokens = min(FAR_TOKENS, target.max_positions - ROWS[-1])
    further_ms: Line = ()
    if size is None and not target.is_spread and far_tokens >= 2 * NEAR_TOKENS:
        added_tokens = far_tokens - NEAR_TOKENS
        further_ms = _ascending(
            [
                (nodes, 1000 * (ms - interpolate(verify_ms, nodes)) / added_tokens)
                for nodes, ms in time_passes(backend, drafter, FAR_ROWS, context=far_tokens)
            ]
        )
    key = {"device": hardware_name(target.device), "threads": torch.get_num_threads()}
    return DeviceProfile(verify_ms, draft_ms, key, NEAR_TOKENS, further_ms)


@torch.inference_mode()
def time_passes(backend: Backend, drafter: Drafter, rows: Sequence[int], context: int = NEAR_TOKENS) -> Line:
    """Time the target's passes over trees of `rows` nodes, after a text of `context` tokens."""
    with _read_text(backend, drafter, context, max(rows)) as (session, prompt):

        def time_pass(nodes: int) -> float:
            tree = session.place_tree(star_tree(prompt.ids[-2:], nodes))
            return _milliseconds(backend.target.device, partial(session.score, tree))

        return _medians(time_pass, rows)


@torch.inference_mode()
def time_drafts(backend: Backend, drafter: Drafter, levels: Sequence[int], width: int = 1) -> Line:
    """Time drafts by levels: of chains (`width` 1), which always reach their last level, or of wider trees."""
    with _read_text(backend, drafter, NEAR_TOKENS, 1) as (session, prompt):
        drafting = session.drafter.start(prompt, _SAMPLING, session.draft_noise)
        root = Committed(prompt.token_ids[-1:], prompt.ids[-1:], prompt.features[-1:])

        def time_draft(depth: int) -> float:
            # In decoding, the target's weights have just evicted the head's from the processor's caches
            session.score(session.root_tree())
            drafting.observe(root)
            tree = _fixed_tree(backend) or TreeConfig(width, depth, 1 + width * depth)
            milliseconds = _milliseconds(backend.target.device, partial(drafting.propose, DraftRequest(tree)))
            drafting.rewind(len(prompt.token_ids))
            return milliseconds

        return _medians(time_draft, levels)


def _fixed_tree(backend: Backend) -> TreeConfig | None:
    return None if backend.fixed_size is None else TreeConfig().with_size(backend.fixed_size)


@contextmanager
def _read_text(
    backend: Backend, drafter: Drafter, context: int, num_nodes: int
) -> Iterator[tuple[BackendSession, Context]]:
    """Yield a session that has read a text of `context` tokens and can score a tree after it, and the text."""
    target = backend.target
    ids = (torch.arange(NEAR_TOKENS + 1, device=target.device) * 7 + 11) % target.vocab_size
    tree = _fixed_tree(backend) or TreeConfig(nodes=num_nodes)
    session = backend.open(drafter, _SAMPLING, tree, NEAR_TOKENS, context + _SAMPLING.max_new_tokens)
    try:
        features, _ = session.prefill(ids[:-1])
        if context > NEAR_TOKENS:
            # The values of the rows do not change the cost of attending to them
            session.cache.extend(context - NEAR_TOKENS - 1)
            session.prefill(ids[-1:])
        session.begin(ids[-1:])
        yield session, Context(ids.tolist(), ids, features)
    finally:
        backend.close(session)


def _medians(time_once: Callable[[int], float], counts: Sequence[int]) -> Line:
    """Return the median time of each count over several rounds.

    All counts take turns in each round, so that other load on the machine affects them equally. The first round is not
    counted: a first pass may take several times as long. After a slow one, only one more round runs.
    """
    num_rounds = 1 if max(time_once(count) for count in counts) > SLOW_MS else ROUNDS
    rounds = [[time_once(count) for count in counts] for _ in range(num_rounds)]
    return _ascending(list(zip(counts, map(statistics.median, zip(*rounds, strict=True)), strict=True)))


def _ascending(points: Sequence[tuple[int, float]]) -> Line:
    """Return the points as a line that never falls and is never below 0: a dip is noise of the measurement."""
    line, highest = [], 0.0
    for count, milliseconds in points:
        highest = max(highest, milliseconds)
        line.append((count, round(highest, 3)))
    return tuple(line)


def _milliseconds(device: torch.device, work: Callable[[], object]) -> float:
    """Return the time until the device has finished the work."""
    synchronize(device)
    start = time.perf_counter()
    work()
    synchronize(device)
    return 1000 * (time.perf_counter() - start)
