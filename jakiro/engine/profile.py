"""Times target passes by nodes and drafts by levels on this device; kept as plain numbers in the user's cache."""

import hashlib
import json
import math
import os
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
from jakiro.drafting.base import Drafter
from jakiro.drafting.limited import LimitedSession
from jakiro.engine.budget import NODE_BUCKETS, DeviceProfile
from jakiro.engine.runner import Passes, SlicedPasses
from jakiro.graphs.pool import Lanes
from jakiro.system import num_cores, processor_name
from jakiro.target.model import TargetModel

# 16-bit matrices are multiplied 14 rows at a time (AVX-512) or 6 (AVX2): a block begun costs nearly a whole one
PROFILED_NODES = (1, 2, 4, 8, 12, 14, 18, 24, 28, 42, 56, 64)
PROFILED_LEVELS = 8
PROFILED_WIDTH = 8
CONTEXT_TOKENS = 128
# Behind a text of so many tokens these are timed again
FAR_TOKENS, FAR_NODES, FAR_LEVELS = 1152, (1, 4, 14, 28), (1, 3)
# Unless the target would take longer than this to read it
MAX_READING_MS = 15_000
REPEATS = 5

T = TypeVar("T")


def profile_key(target: TargetModel, head: dict | None, lanes: Lanes | None = None) -> dict:
    """What a profile depends on."""
    cuda = target.device.type == "cuda"
    device = torch.cuda.get_device_name(target.device) if cuda else f"{processor_name()} ({platform.machine()})"
    return {
        "target": target.sha256 or target.name,
        "head": head and head["sha256"],
        "draft_precision": head and head.get("precision"),
        "device": device,
        "threads": torch.get_num_threads(),
        "dtype": str(target.dtype).removeprefix("torch."),
        "numerics": target.numerics,
        "compiled": target.compiled,
        "torch": str(torch.__version__),
        "contexts": [CONTEXT_TOKENS, FAR_TOKENS],
    } | ({} if lanes is None else {"graphs": lanes.graphs.enabled})


def device_name(device: torch.device) -> str:
    """The device in words a person reads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{num_cores()}-core CPU" if device.type == "cpu" else str(device)


def load_or_measure(
    target: TargetModel, drafter: Drafter, head: dict, folder: Path, lanes: Lanes | None = None
) -> DeviceProfile:
    """The profile kept for this key, or a new one, which is then kept."""
    key = profile_key(target, head, lanes)
    name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
    path = folder / f"{name}.json"
    if path.is_file():
        try:
            return DeviceProfile.from_dict(json.loads(path.read_text()))
        except (ValueError, KeyError, TypeError):
            path.unlink(missing_ok=True)
    profile = measure(target, drafter, key, lanes)
    folder.mkdir(parents=True, exist_ok=True)
    # Several processes may measure at once, such as the workers of a cluster; none may read half a file.
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_text(json.dumps(profile.to_dict(), indent=1))
    unfinished.replace(path)
    return profile


@torch.inference_mode()
def measure(target: TargetModel, drafter: Drafter, key: dict, lanes: Lanes | None = None) -> DeviceProfile:
    """Times every pass a few times, interleaved, and keeps the least; takes some seconds on a small CPU.

    Whatever else runs on the machine only adds time, so the least is nearest to what a pass costs by itself. A few
    passes are timed behind a longer text too, for what each further token adds.

    Args:
        lanes: where passes run at fixed addresses, those are timed, one a row bucket. Their attention costs the same up
            to its next column step, so one length is timed.
    """
    sampling = SamplingParams(max_new_tokens=64)
    bounds = TreeConfig(width=PROFILED_WIDTH, depth=PROFILED_LEVELS, nodes=max(PROFILED_NODES), policy="auto")
    rows = 1 + target.row_bucket(max(PROFILED_NODES))
    levels = range(1, PROFILED_LEVELS + 1)
    buckets, release, far = NODE_BUCKETS, lambda: None, None
    if lanes is not None:
        buckets = lanes.tree_sizes
        passes, release = lanes.borrow(sampling, bounds, buckets, CONTEXT_TOKENS, sampling.max_new_tokens)
    else:
        passes = SlicedPasses(target, drafter, sampling, CONTEXT_TOKENS + rows)
    try:
        near = _Timings(target, passes, CONTEXT_TOKENS, bounds, buckets)
        length = min(FAR_TOKENS, target.max_positions - rows)
        reading_ms = near.prefill_ms * length / CONTEXT_TOKENS
        if lanes is None and length >= 2 * CONTEXT_TOKENS and reading_ms <= MAX_READING_MS:
            far = _Timings(target, SlicedPasses(target, drafter, sampling, length + rows), length, bounds, buckets)
        for _ in range(REPEATS):
            near.take(PROFILED_NODES if lanes is None else (1, *buckets), levels)
            if far is not None:
                far.take(FAR_NODES, FAR_LEVELS)
    finally:
        release()
    return DeviceProfile(
        verify_ms=_ascending(near.verify),
        draft_ms=_ascending(near.draft),
        width=PROFILED_WIDTH,
        key=key,
        buckets=buckets,
        context=CONTEXT_TOKENS,
        verify_slopes=() if far is None else _slopes(near.verify, far.verify, far.context - near.context),
        draft_slopes=() if far is None else _slopes(near.draft, far.draft, far.context - near.context),
    )


class _Timings:
    """Passes behind a text of one length, timed again and again; milliseconds, the least of each.

    Args:
        bounds: width of the drafts; buckets: tree sizes whose promise a draft tells.
    """

    def __init__(
        self, target: TargetModel, passes: Passes, context: int, bounds: TreeConfig, buckets: tuple[int, ...]
    ) -> None:
        self.passes, self.context, self.bounds, self.device = passes, context, bounds, target.device
        ids = (torch.arange(context + 1, device=target.device) * 7 + 11) % target.vocab_size
        (features, _), self.prefill_ms = _timed(self.device, partial(passes.prefill, ids[:-1]))
        self.root, self.features = ids[-1:], features[-1:]
        passes.begin(self.root)
        session = passes.session(ids[:-1], features)
        self.session = session.session if isinstance(session, LimitedSession) else session
        self.session.buckets = buckets
        self.verify: dict[int, float] = {}
        self.draft: dict[int, float] = {}

    def take(self, nodes_timed: Iterable[int], levels_timed: Iterable[int]) -> None:
        """One round over target passes by nodes and drafts by levels."""
        for nodes in nodes_timed:
            tree = self.passes.place(_bush(self.root, nodes))
            self._keep(self.verify, nodes, partial(self.passes.score, tree))
        between = self.passes.place(_bush(self.root, 1))
        for levels in levels_timed:
            # As in decoding, where the target's weights have just pushed the head's out of the processor's caches
            self.passes.score(between)
            self._keep(self.draft, levels, partial(self._propose, replace(self.bounds, depth=levels)))

    def _propose(self, config: TreeConfig) -> None:
        self.session.extend(self.root, self.features)
        self.session.propose(config)
        self.session.cache.cut(self.context)

    def _keep(self, times: dict[int, float], count: int, work: Callable[[], object]) -> None:
        times[count] = min(times.get(count, math.inf), _timed(self.device, work)[1])


def _timed(device: torch.device, work: Callable[[], T]) -> tuple[T, float]:
    """What the work gives, and the milliseconds until the device was done with it."""
    _wait_for(device)
    start = time.perf_counter()
    result = work()
    _wait_for(device)
    return result, 1000 * (time.perf_counter() - start)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _ascending(times: dict[int, float]) -> tuple[tuple[int, float], ...]:
    """More work never takes less time; a dip in the measurement is noise."""
    points, highest = [], 0.0
    for count, milliseconds in sorted(times.items()):
        highest = max(highest, milliseconds)
        points.append((count, round(highest, 3)))
    return tuple(points)


def _slopes(near: dict[int, float], far: dict[int, float], tokens: int) -> tuple[tuple[int, float], ...]:
    """What 1,000 further tokens of text add to each pass that was timed at both lengths."""
    return _ascending({count: max(far[count] - near[count], 0.0) * 1000 / tokens for count in far})


def _bush(root: torch.Tensor, nodes: int) -> DraftTree:
    """A root with `nodes` − 1 children."""
    tree = DraftTree.root_only(root)
    if nodes == 1:
        return tree
    values = {}
    for name in DraftTree.__dataclass_fields__:
        if name != "max_depth":
            column = getattr(tree, name)
            values[name] = column.repeat_interleave(nodes, dim=0)
    values["parents"] = torch.tensor([-1] + [0] * (nodes - 1), device=root.device)
    values["depths"] = torch.tensor([0] + [1] * (nodes - 1), device=root.device)
    return DraftTree(**values, max_depth=1)
