"""The lanes of one generator: borrowed by answers, made larger when an answer needs more, captured at load."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

import torch

from jakiro.config import AUTOMATIC_TREE, ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.drafting.base import Drafter
from jakiro.graphs.cache import SMALLEST_COLUMNS
from jakiro.graphs.capture import Graphs
from jakiro.graphs.lane import Lane, Room
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
    """

    def __init__(
        self,
        target: TargetModel,
        graphs: bool,
        smallest_columns: int = SMALLEST_COLUMNS,
        start_tokens: int = START_TOKENS,
    ) -> None:
        self.target, self.smallest_columns = target, smallest_columns
        self.graphs = Graphs(target.device, graphs)
        self._room = Room(min(start_tokens, target.max_positions + 1), ROW_BUCKETS[-1], START_DRAFT_ROWS)
        self._free: list[Lane] = []
        # An answer that was dropped unfinished returns its lane when Python collects it, in whatever thread.
        self._lock = threading.RLock()
        self.num_bytes = 0

    def for_target(self, target: TargetModel) -> "Lanes":
        """Lanes of the same kind for the same weights under other numerics; their passes are captured again."""
        wanted = self.graphs.enabled or self.graphs.failure is not None
        return Lanes(target, wanted, self.smallest_columns, self._room.tokens)

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
        lane = self._take(Room(tokens, max(tree.nodes, *sizes, 1), tree.depth * tree.width))
        lane.open(drafter, sampling, tree, sizes, num_prompt_tokens, tokens)
        return lane, partial(self._give_back, lane)

    def prepare(self, drafters: Sequence[Drafter], progress: Callable[[int, int], None] | None = None) -> None:
        """Makes the first lane and captures what answers usually need.

        Args:
            drafters: plain decoding's, and those that answers usually ask for.
            progress: called with passes done and passes in all.
        """
        lane = self._take(self._room)
        wanted = [
            (drafter, sampling, *((AUTOMATIC_TREE, self.tree_sizes) if drafter.proposers else (ROOT_ONLY, ())))
            for sampling in (SamplingParams(), SamplingParams(1.0))
            for drafter in drafters
        ]
        span = (1, self._room.tokens)
        total = sum(1 for plan in wanted for _ in lane.needed(*plan, *span))
        done = 0

        def captured() -> None:
            nonlocal done
            done += 1
            if progress is not None:
                progress(done, total)

        before = self._bytes_in_use()
        for plan in wanted:
            lane.open(*plan, *span, captured)
        self.num_bytes += max(self._bytes_in_use() - before, 0)
        self._give_back(lane)

    @property
    def status(self) -> dict:
        """What is captured, and the memory that lanes and graphs take."""
        return {
            "graphs": self.graphs.enabled,
            "captured": self.graphs.num_captured,
            "bytes": self.num_bytes,
            "failure": self.graphs.failure,
        }

    def _take(self, room: Room) -> Lane:
        with self._lock:
            fitting = [lane for lane in self._free if lane.room.holds(room)]
            if fitting:
                self._free.remove(fitting[0])
                return fitting[0]
            # Smaller lanes make room for the larger one; from now on all are as large.
            self._room = self._room.joined(room)
            self._drop(self._free)
            before = self._bytes_in_use()
            lane = Lane(self.target, self.graphs, self._room, self.smallest_columns)
            self.num_bytes = max(self.num_bytes + self._bytes_in_use() - before, 0)
            return lane

    def _give_back(self, lane: Lane) -> None:
        with self._lock:
            if lane in self._free:
                return
            if lane.room.holds(self._room):
                self._free.append(lane)
            else:
                self._drop([lane])

    def _drop(self, lanes: list[Lane]) -> None:
        """Frees lanes after the device has finished their work."""
        if lanes and self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        lanes.clear()

    def _bytes_in_use(self) -> int:
        """Of the device's memory, by this process or another; 0 on a CPU."""
        if self.target.device.type != "cuda":
            return 0
        free, total = torch.cuda.mem_get_info(self.target.device)
        return total - free
