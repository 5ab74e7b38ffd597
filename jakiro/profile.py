"""Times target passes by nodes and drafts by levels on this device; kept as plain numbers in the user's cache."""

import hashlib
import json
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from jakiro.budget import NODE_BUCKETS, DeviceProfile
from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting import Drafter
from jakiro.lane_pool import Lanes
from jakiro.limits import LimitedSession
from jakiro.machine import num_cores, processor_name
from jakiro.passes import Passes, SlicedPasses
from jakiro.target import TargetModel
from jakiro.tree import DraftTree

# 16-bit matrices are multiplied 14 rows at a time (AVX-512) or 6 (AVX2): a block begun costs nearly a whole one
PROFILED_NODES = (1, 2, 4, 8, 12, 14, 18, 24, 28, 42, 56, 64)
PROFILED_LEVELS = 8
PROFILED_WIDTH = 8
CONTEXT_TOKENS = 128
REPEATS = 5


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
        "torch": str(torch.__version__),
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
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(profile.to_dict(), indent=1))
    partial.replace(path)
    return profile


@torch.inference_mode()
def measure(target: TargetModel, drafter: Drafter, key: dict, lanes: Lanes | None = None) -> DeviceProfile:
    """Times every pass a few times, interleaved, and keeps the least; takes some seconds on a small CPU.

    Whatever else runs on the machine only adds time, so the least is nearest to what a pass costs by itself.

    Args:
        lanes: where passes run at fixed addresses, those are timed, one a row bucket.
    """
    sampling = SamplingParams(max_new_tokens=64)
    ids = (torch.arange(CONTEXT_TOKENS + 1, device=target.device) * 7 + 11) % target.vocab_size
    bounds = TreeConfig(width=PROFILED_WIDTH, depth=PROFILED_LEVELS, nodes=max(PROFILED_NODES), policy="auto")
    if lanes is None:
        nodes_timed, sizes, release = PROFILED_NODES, NODE_BUCKETS, lambda: None
        passes = SlicedPasses(target, drafter, sampling, CONTEXT_TOKENS + 1 + target.row_bucket(max(PROFILED_NODES)))
    else:
        nodes_timed, sizes = (1, *lanes.tree_sizes), lanes.tree_sizes
        passes, release = lanes.borrow(sampling, bounds, sizes, CONTEXT_TOKENS, sampling.max_new_tokens)
    try:
        verify, draft = _times(target.device, passes, ids, bounds, nodes_timed, sizes if lanes is not None else ())
    finally:
        release()
    return DeviceProfile(
        verify_ms=_ascending({nodes: min(times) for nodes, times in verify.items()}),
        draft_ms=_ascending({levels: min(times) for levels, times in draft.items()}),
        width=PROFILED_WIDTH,
        key=key,
        buckets=sizes,
    )


def _times(
    device: torch.device,
    passes: Passes,
    ids: torch.Tensor,
    bounds: TreeConfig,
    nodes_timed: Sequence[int],
    buckets: tuple[int, ...],
) -> tuple[dict[int, list[float]], dict[int, list[float]]]:
    """Milliseconds of every repeat: of target passes by nodes, of drafts by levels."""
    features, _ = passes.prefill(ids[:-1])
    passes.begin(ids[-1:])
    session = passes.session(ids[:-1], features)
    trees = {nodes: _bush(ids[-1:], nodes) for nodes in nodes_timed}
    configs = {levels: replace(bounds, depth=levels) for levels in range(1, PROFILED_LEVELS + 1)}
    if isinstance(session, LimitedSession):
        session = session.session
    session.buckets = buckets

    def propose(config: TreeConfig) -> None:
        session.extend(ids[-1:], features[-1:])
        session.propose(config)
        session.cache.cut(CONTEXT_TOKENS)

    between = passes.place(trees[nodes_timed[0]])
    verify: dict[int, list[float]] = {nodes: [] for nodes in trees}
    draft: dict[int, list[float]] = {levels: [] for levels in configs}
    for _ in range(REPEATS):
        for nodes, tree in trees.items():
            verify[nodes].append(_milliseconds(device, passes.score, passes.place(tree)))
        for levels, config in configs.items():
            # As in decoding, where the target's weights have just pushed the head's out of the processor's caches
            passes.score(between)
            draft[levels].append(_milliseconds(device, propose, config))
    return verify, draft


def _milliseconds(device: torch.device, work, argument) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work(argument)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return 1000 * (time.perf_counter() - start)


def _ascending(times: dict[int, float]) -> tuple[tuple[int, float], ...]:
    """More work never takes less time; a dip in the measurement is noise."""
    points, highest = [], 0.0
    for count, milliseconds in sorted(times.items()):
        highest = max(highest, milliseconds)
        points.append((count, round(highest, 3)))
    return tuple(points)


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
