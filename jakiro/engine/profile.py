"""Times target passes by nodes and drafts by levels on this device; kept as plain numbers in the user's cache.

What a target's passes cost is measured once for all methods; only drafts are timed for each.
"""

import hashlib
import json
import math
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.tree import DraftTree
from jakiro.drafting.base import Drafter, Kept, Method, Prompt, TreeLimits
from jakiro.engine.costs import NODE_BUCKETS, DeviceProfile
from jakiro.engine.runner import Runner, SlicedRunner
from jakiro.graphs.pool import Lanes
from jakiro.system import num_cores, processor_name, write_atomically
from jakiro.target.model import TargetModel

# 16-bit matrices are multiplied 14 rows at a time (AVX-512) or 6 (AVX2): a block begun costs nearly a whole one
PROFILED_NODES = (1, 2, 4, 8, 12, 14, 18, 24, 28, 42, 56, 64)
PROFILED_LEVELS = 8
PROFILED_WIDTH = 8
CONTEXT_TOKENS = 128
# Some passes and drafts are timed again after a text of so many tokens
FAR_TOKENS, FAR_NODES, FAR_LEVELS = 1152, (1, 4, 14, 28), (1, 3)
# … unless the target would take longer than this to read it
MAX_PREFILL_MS = 15_000
REPEATS = 5

T = TypeVar("T")
# (nodes or levels, milliseconds), ascending
Curve = tuple[tuple[int, float], ...]


def device_name(device: torch.device) -> str:
    """The device in words a person reads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{num_cores()}-core CPU" if device.type == "cpu" else str(device)


class Profiler:
    """Measures a target's passes and the drafts of its methods, each once, and keeps them in a folder.

    Args:
        lanes: where passes run at fixed addresses, these are timed, one for each row bucket. Their attention costs the
            same up to the next step in columns, so one length is timed.
    """

    def __init__(self, target: TargetModel, folder: Path, lanes: Lanes | None = None) -> None:
        self.target, self.folder, self.lanes = target, folder, lanes

    def profile(self, method: Method, drafter: Drafter) -> DeviceProfile:
        """This device's costs under a method."""
        key = self._key()
        passes = self._kept_or(key, partial(measure_passes, self.target, drafter, key, self.lanes))
        if not method.drafts:
            return passes
        info = drafter.info or {}
        key = key | {"method": method.name, "head": info.get("sha256"), "draft_precision": info.get("precision")}
        drafts = self._kept_or(key, partial(measure_drafts, self.target, drafter, key, self.lanes))
        return replace(passes, draft_ms=drafts.draft_ms, draft_slopes=drafts.draft_slopes, width=drafts.width, key=key)

    def _key(self) -> dict:
        """What the costs of a target's passes depend on."""
        target, lanes = self.target, self.lanes
        cuda = target.device.type == "cuda"
        device = torch.cuda.get_device_name(target.device) if cuda else f"{processor_name()} ({platform.machine()})"
        return {
            "target": target.sha256 or target.name,
            "device": device,
            "threads": torch.get_num_threads(),
            "dtype": str(target.dtype).removeprefix("torch."),
            "numerics": target.numerics,
            "compiled": target.compiled,
            "torch": str(torch.__version__),
            "contexts": [CONTEXT_TOKENS, FAR_TOKENS],
        } | ({} if lanes is None else {"graphs": lanes.graphs.enabled})

    def _kept_or(self, key: dict, measure: Callable[[], DeviceProfile]) -> DeviceProfile:
        """The costs kept for this key, or new ones, which are then kept."""
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        path = self.folder / f"{name}.json"
        if path.is_file():
            try:
                return DeviceProfile.from_dict(json.loads(path.read_text(encoding="utf-8")))
            except (ValueError, KeyError, TypeError):
                path.unlink(missing_ok=True)
        profile = measure()
        # Several processes may measure at once, such as the workers of a cluster; none may read half a file.
        write_atomically(path, json.dumps(profile.to_dict(), indent=1))
        return profile


def measure_passes(target: TargetModel, drafter: Drafter, key: dict, lanes: Lanes | None = None) -> DeviceProfile:
    """Times the target's passes a few times, interleaved, and keeps the least; takes some seconds on a small CPU.

    Other programs on the machine only add time, so the least is closest to what a pass costs alone. A few passes are
    timed after a longer text too, to learn what each further token adds.

    Args:
        drafter: one that will be used, so that lanes capture only what answers need.
    """
    counts = PROFILED_NODES if lanes is None else (1, *lanes.tree_sizes)
    curve, slopes = _measured(target, lanes, drafter, False, counts, FAR_NODES)
    return DeviceProfile(
        verify_ms=curve,
        draft_ms=(),
        width=PROFILED_WIDTH,
        key=key,
        buckets=NODE_BUCKETS if lanes is None else lanes.tree_sizes,
        context=CONTEXT_TOKENS,
        verify_slopes=slopes,
    )


def measure_drafts(target: TargetModel, drafter: Drafter, key: dict, lanes: Lanes | None = None) -> DeviceProfile:
    """Times a drafter's trees by levels, in the same way."""
    curve, slopes = _measured(target, lanes, drafter, True, range(1, PROFILED_LEVELS + 1), FAR_LEVELS)
    return DeviceProfile((), curve, PROFILED_WIDTH, key, context=CONTEXT_TOKENS, draft_slopes=slopes)


@torch.inference_mode()
def _measured(
    target: TargetModel,
    lanes: Lanes | None,
    drafter: Drafter,
    drafts: bool,
    counts: Iterable[int],
    far_counts: Iterable[int],
) -> tuple[Curve, Curve]:
    """Milliseconds of drafts, or else of passes, and what 1,000 further tokens add; empty where that was not timed."""
    sampling = SamplingParams(max_new_tokens=64)
    bounds = TreeConfig(width=PROFILED_WIDTH, depth=PROFILED_LEVELS, nodes=max(PROFILED_NODES), policy="auto")
    rows = 1 + target.row_bucket(max(PROFILED_NODES))
    sizes, release, far = NODE_BUCKETS, lambda: None, None
    if lanes is None:
        runner = SlicedRunner(target, sampling, CONTEXT_TOKENS + rows)
    else:
        sizes = lanes.tree_sizes
        length = sampling.max_new_tokens
        runner, release = lanes.borrow(drafter, sampling, bounds, sizes, CONTEXT_TOKENS, length)
    try:
        near = _Timings(target, runner, drafter if drafts else None, CONTEXT_TOKENS, TreeLimits(bounds, sizes))
        length = min(FAR_TOKENS, target.max_positions - rows)
        prefill_ms = near.prefill_ms * length / CONTEXT_TOKENS
        if lanes is None and length >= 2 * CONTEXT_TOKENS and prefill_ms <= MAX_PREFILL_MS:
            runner = SlicedRunner(target, sampling, length + rows)
            far = _Timings(target, runner, drafter if drafts else None, length, TreeLimits(bounds, sizes))
        for _ in range(REPEATS):
            near.take(counts)
            if far is not None:
                far.take(far_counts)
    finally:
        release()
    if far is None:
        return _ascending(near.times), ()
    thousands = (far.context - near.context) / 1000
    slopes = {count: max(ms - near.times[count], 0.0) / thousands for count, ms in far.times.items()}
    return _ascending(near.times), _ascending(slopes)


class _Timings:
    """Repeated timings of passes or drafts after a text of one length.

    Args:
        drafter: what drafts; None times the target's passes.
        limits: of the drafts.

    Attributes:
        times: by nodes or levels, the least milliseconds.
    """

    def __init__(
        self, target: TargetModel, runner: Runner, drafter: Drafter | None, context: int, limits: TreeLimits
    ) -> None:
        self.runner, self.context, self.limits, self.device = runner, context, limits, target.device
        ids = (torch.arange(context + 1, device=target.device) * 7 + 11) % target.vocab_size
        (features, _), self.prefill_ms = _timed(self.device, partial(runner.prefill, ids[:-1]))
        self.root = ids[-1:]
        runner.begin(self.root)
        self.again = Kept(self.root.tolist(), self.root, features[-1:])
        self.session = None
        if drafter is not None:
            self.session = runner.session(drafter, Prompt(ids.tolist(), ids, features))
        self.times: dict[int, float] = {}

    def take(self, counts: Iterable[int]) -> None:
        """One round over passes by nodes, or over drafts by levels."""
        between = self.runner.place(_bush(self.root, 1))
        for count in counts:
            if self.session is None:
                work = partial(self.runner.score, self.runner.place(_bush(self.root, count)))
            else:
                # As in decoding, where the target's weights have just pushed the head's out of the processor's caches
                self.runner.score(between)
                work = partial(self._propose, count)
            self.times[count] = min(self.times.get(count, math.inf), _timed(self.device, work)[1])

    def _propose(self, levels: int) -> None:
        self.session.observe(self.again)
        self.session.propose(replace(self.limits, tree=replace(self.limits.tree, depth=levels)))
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
