"""The lanes of one generator: borrowed by answers, made larger when an answer needs more, captured at load."""

import gc
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial

import torch

from jakiro.config import AUTOMATIC_TREE, ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.drafting.base import Drafter
from jakiro.graphs.cache import SMALLEST_COLUMNS
from jakiro.graphs.capture import Graphs
from jakiro.graphs.lane import Lane
from jakiro.graphs.probe import NUM_PROMPT, rounds_alike
from jakiro.graphs.room import Room
from jakiro.target.model import ROW_BUCKETS, TargetModel

# Prompt and answer that a lane holds from the start; with the widest tree they fill a whole column step.
START_TOKENS = 2048 - ROW_BUCKETS[-1]
START_DRAFT_ROWS = 64


class Lanes:
    """Lanes over one target, for all methods.

    Args:
        target: one that runs lean.
        graphs: capture passes as CUDA graphs; False runs the same passes eagerly.
        smallest_columns: of attention, see `columns_for`.
        start_tokens: prompt and answer that a lane holds from the start; a longer one gets a larger lane.
        budget, fewest_runs: bytes for graphs, and which passes are worth one, see `Graphs`.

    Attributes:
        capture_seconds: what making lanes and capturing took until loading was done.
    """

    def __init__(
        self,
        target: TargetModel,
        graphs: bool,
        smallest_columns: int = SMALLEST_COLUMNS,
        start_tokens: int = START_TOKENS,
        budget: int | None = None,
        fewest_runs: int = 0,
    ) -> None:
        self.target, self.smallest_columns = target, smallest_columns
        self.graphs = Graphs(target.device, graphs, budget, fewest_runs)
        self._room = Room(min(start_tokens, target.max_positions + 1), ROW_BUCKETS[-1], START_DRAFT_ROWS)
        self._free: list[Lane] = []
        # Lanes that are too small, freed by the next answer: a finaliser must not wait for the device
        self._retired: list[Lane] = []
        self._all: weakref.WeakSet[Lane] = weakref.WeakSet()
        # An answer that was dropped unfinished returns its lane when Python collects it, in whatever thread.
        self._lock = threading.RLock()
        self.capture_seconds = 0.0

    def for_target(self, target: TargetModel) -> "Lanes":
        """Lanes of the same kind for the same weights under other numerics; their passes are captured again."""
        graphs, room = self.graphs, self._room
        wanted = graphs.enabled or graphs.failure is not None
        return Lanes(target, wanted, self.smallest_columns, room.tokens, graphs.budget, graphs.fewest_runs)

    @property
    def tree_sizes(self) -> tuple[int, ...]:
        """The numbers of nodes worth choosing between: whatever fits into a bucket costs the same."""
        return tuple(nodes for nodes in self.target.row_buckets if nodes > 1)

    def borrow(
        self,
        drafter: Drafter,
        sampling: SamplingParams,
        tree: TreeConfig,
        sizes: tuple[int, ...],
        num_prompt_tokens: int,
        limit: int,
    ) -> tuple[Lane, Callable[[], None]]:
        """A lane prepared for one answer, and a function that returns it; calling that again does nothing.

        Args:
            sizes: those that a tree chooses from; empty for a fixed tree.
            limit: tokens the answer may have.
        """
        tokens = num_prompt_tokens + limit
        lane = self._take(Room(tokens, max(tree.nodes, *sizes, 1), tree.depth * tree.width), drafter)
        try:
            lane.open(drafter, sampling, tree, sizes, num_prompt_tokens, tokens)
        except BaseException:
            # Half prepared, perhaps for want of memory: it makes room for the next answer
            with self._lock:
                self._retired.append(lane)
            raise
        return lane, partial(self._give_back, lane)

    def prepare(
        self, drafters: Sequence[Drafter], progress: Callable[[int, int], None] | None = None, side_by_side: int = 1
    ) -> None:
        """Makes the first lanes and captures what answers usually need.

        Args:
            drafters: plain decoding's, and those that answers usually ask for.
            progress: called with passes done and passes in all.
            side_by_side: answers that run at once, as in a race: each drafter gets a lane of its own as long as there
                are so many, and as long as memory lasts; the last lane serves all others.
        """
        start, span = time.perf_counter(), (1, self._room.tokens)
        lanes: list[Lane] = []
        while len(lanes) < min(side_by_side, len(drafters)) and self._fits_another(lanes):
            lanes.append(self._take(self._room))
        wanted = [
            (lane, (drafter, sampling, *((AUTOMATIC_TREE, self.tree_sizes) if drafter.proposers else (ROOT_ONLY, ()))))
            for lane, own in zip(lanes, _shared_out(drafters, len(lanes)), strict=True)
            for sampling in (SamplingParams(), SamplingParams(1.0))
            for drafter in own
        ]
        total = sum(1 for lane, plan in wanted for _ in lane.needed(*plan, *span))
        done = 0

        def captured() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, total)

        for lane, plan in wanted:
            lane.open(*plan, *span, captured)
        for lane in lanes:
            self._give_back(lane)
        self.capture_seconds = time.perf_counter() - start

    def check(self, drafter: Drafter) -> None:
        """Takes back that the target's plain and drafted passes round alike, where in a lane they do not.

        Args:
            drafter: one that answers with trees usually ask for.
        """
        if not self.target.bit_identical:
            return
        lane, give_back = self.borrow(drafter, SamplingParams(), AUTOMATIC_TREE, self.tree_sizes, NUM_PROMPT, 2)
        try:
            self.target.bit_identical = rounds_alike(lane)
        finally:
            give_back()

    @property
    def num_bytes(self) -> int:
        """Of the device's memory that lanes and graphs take."""
        return sum(lane.num_bytes for lane in self._all) + self.graphs.num_bytes

    @property
    def status(self) -> dict:
        """What is captured, and the memory that lanes and graphs take."""
        return {
            "graphs": self.graphs.enabled,
            "lanes": len(self._all),
            "captured": self.graphs.num_captured,
            "evicted": self.graphs.num_evicted,
            "bytes": self.num_bytes,
            "graph_bytes": self.graphs.num_bytes,
            "budget": self.graphs.budget,
            "capture_seconds": round(self.capture_seconds, 2),
            "failure": self.graphs.failure,
        }

    def _take(self, room: Room, drafter: Drafter | None = None) -> Lane:
        """A free lane, if possible one that has served the drafter, and few others, before; else a new one."""
        with self._lock:
            self._free_retired()
            fitting = [lane for lane in self._free if lane.room.holds(room)]
            if fitting:
                lane = min(fitting, key=lambda lane: (drafter not in lane.served, len(lane.served)))
                self._free.remove(lane)
                return lane
            # Smaller lanes make room for the larger one; from now on all are as large.
            larger = self._room.joined(room)
            self._retired += self._free
            self._free.clear()
            self._free_retired()
            lane = Lane(self.target, self.graphs, larger, self.smallest_columns)
            self._room = larger
            self._all.add(lane)
            return lane

    def _give_back(self, lane: Lane) -> None:
        with self._lock:
            if lane not in self._free and lane not in self._retired:
                (self._free if lane.room.holds(self._room) else self._retired).append(lane)

    def _free_retired(self) -> None:
        """Frees lanes after the device has finished their work."""
        if not self._retired:
            return
        on_cuda = self.target.device.type == "cuda"
        if on_cuda:
            torch.cuda.synchronize(self.target.device)
        for lane in self._retired:
            lane.close()
        self._retired.clear()
        gc.collect()
        if on_cuda:
            torch.cuda.empty_cache()

    def _fits_another(self, lanes: Sequence[Lane]) -> bool:
        """Whether there is room for one more lane besides these, and for as much again."""
        if not lanes or self.target.device.type != "cuda":
            return True
        return torch.cuda.mem_get_info(self.target.device)[0] > 2 * lanes[-1].num_bytes


def _shared_out(drafters: Sequence[Drafter], lanes: int) -> list[Sequence[Drafter]]:
    """Which lane serves which drafters: one each, and the last lane all that are left."""
    return [drafters[number : number + 1] for number in range(lanes - 1)] + [drafters[lanes - 1 :]]
