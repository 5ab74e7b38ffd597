"""The pool of one model's graph buffers: all of one size, borrowed by answers, captured at load."""

import itertools
import threading
import time
import weakref
from collections.abc import Sequence

import torch

from jakiro import progress
from jakiro.backends.cuda_graphs.buffers import MOST_DRAFT_ROWS, MOST_NODES, GraphBuffers
from jakiro.backends.cuda_graphs.cache import SMALLEST_COLUMNS
from jakiro.backends.cuda_graphs.capture import Graphs
from jakiro.backends.cuda_graphs.probe import NUM_PROMPT, is_batch_invariant
from jakiro.config import ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.drafters.base import Drafter
from jakiro.models.target import TargetModel
from jakiro.system import release_memory

# Prompt and completion that buffers hold; with the widest tree they fill a whole column step
POOL_TOKENS = 2048 - MOST_NODES
# The one tree of answers that choose their own size: every tree that fits into a pass costs the same
TREE = TreeConfig(nodes=MOST_NODES)


class GraphPool:
    """Buffers over one target, for all methods.

    Args:
        target: with `fused` layers.
        graphs: capture passes as CUDA graphs; False runs the same passes eagerly.
        smallest_columns: of attention, see `columns_for`.
        tokens: prompt and completion that buffers hold.
        fewest_steps: see `Graphs`.

    Attributes:
        capture_seconds: time to allocate buffers and capture passes while loading.
    """

    def __init__(
        self,
        target: TargetModel,
        graphs: bool,
        smallest_columns: int = SMALLEST_COLUMNS,
        tokens: int = POOL_TOKENS,
        fewest_steps: int = 0,
    ) -> None:
        self.target, self.smallest_columns = target, smallest_columns
        self.tokens = min(tokens, target.max_positions + 1)
        self.graphs = Graphs(target.device, graphs, fewest_steps)
        self._free: list[GraphBuffers] = []
        # Buffers that ran out of memory; freed by the next answer, because now a traceback may refer to their tensors
        self._retired: list[GraphBuffers] = []
        self._all: weakref.WeakSet[GraphBuffers] = weakref.WeakSet()
        # An answer that was dropped unfinished gives back its buffers when it is collected, in any thread
        self._lock = threading.RLock()
        self.capture_seconds = 0.0

    def for_target(self, target: TargetModel) -> "GraphPool":
        """Return a pool of the same kind for the same weights under other numerics; it captures passes again."""
        graphs = self.graphs
        captures = graphs.enabled or graphs.failure is not None
        return GraphPool(target, captures, self.smallest_columns, self.tokens, graphs.fewest_steps)

    def fits(self, tree: TreeConfig, max_length: int) -> bool:
        """Return whether buffers hold so many tokens of prompt and completion, and trees of this size."""
        is_small = tree.nodes <= MOST_NODES and tree.depth * tree.width <= MOST_DRAFT_ROWS
        return is_small and max_length <= self.tokens

    def borrow(
        self, drafter: Drafter, sampling: SamplingParams, tree: TreeConfig, num_prompt_tokens: int, max_length: int
    ) -> GraphBuffers:
        """Return buffers prepared for one answer; `give_back` returns them.

        Args:
            tree: the largest that the answer drafts; see `fits`.
            max_length: upper bound of prompt and completion together.
        """
        buffers = self._take(drafter)
        try:
            return buffers.open(drafter, sampling, tree, num_prompt_tokens, max_length)
        except BaseException:
            # The buffers are half prepared, possibly for lack of memory: free them for the next answer
            with self._lock:
                self._retired.append(buffers)
            raise

    def give_back(self, buffers: GraphBuffers) -> None:
        """Return buffers to the pool; a second call has no effect."""
        with self._lock:
            if buffers not in self._free and buffers not in self._retired:
                self._free.append(buffers)

    def prepare(self, drafters: Sequence[Drafter], side_by_side: int = 1) -> None:
        """Allocate the first buffers and capture the passes of common answers; report progress.

        Args:
            drafters: plain decoding's and the default method's.
            side_by_side: answers that run at once, as in a race. Each drafter gets its own buffers, up to this number
                and as long as memory lasts; the last buffers serve all other drafters.
        """
        start, span = time.perf_counter(), (1, self.tokens)
        prepared: list[GraphBuffers] = []
        while len(prepared) < min(side_by_side, len(drafters)) and self._fits_another(prepared):
            prepared.append(self._take())
        # Each set of buffers serves one drafter; the last one serves all others, too
        last = len(prepared) - 1
        shares = [drafters[number : number + 1] for number in range(last)] + [drafters[last:]]
        jobs = [
            (buffers, (drafter, sampling, TREE if drafter.proposers else ROOT_ONLY))
            for buffers, served in zip(prepared, shares, strict=True)
            for sampling in (SamplingParams(), SamplingParams(1.0))
            for drafter in served
        ]
        total = sum(1 for buffers, answer in jobs for _ in buffers.needed(*answer, *span))
        count = itertools.count(1)

        def report_capture() -> None:
            progress.tell(progress.CAPTURE, next(count) / total)

        for buffers, answer in jobs:
            buffers.open(*answer, *span, report_capture)
        for buffers in prepared:
            self.give_back(buffers)
        self.capture_seconds = time.perf_counter() - start

    def settle(self, drafter: Drafter) -> TargetModel:
        """Test whether plain and tree passes in these buffers give the same bits; return the target to use from now on.

        Call before `prepare`.
        """
        is_invariant = True
        if self.target.bit_identical:
            buffers = self.borrow(drafter, SamplingParams(), TREE, NUM_PROMPT, NUM_PROMPT + 2)
            try:
                is_invariant = is_batch_invariant(buffers)
            finally:
                self.give_back(buffers)
        self.target = self.target.with_settings(bit_identical=self.target.bit_identical and is_invariant)
        return self.target

    @property
    def is_always_captured(self) -> bool:
        """True if the passes of every answer are captured first; only then measured costs predict later costs."""
        return self.graphs.enabled and self.graphs.fewest_steps == 0

    @property
    def status(self) -> dict:
        """Captured passes, and bytes of buffers and graphs."""
        graph_bytes = sum(buffers.passes.num_bytes for buffers in self._all)
        return {
            "graphs": self.graphs.enabled,
            "slots": len(self._all),
            "captured": self.graphs.num_captured,
            "bytes": sum(buffers.num_bytes for buffers in self._all) + graph_bytes,
            "graph_bytes": graph_bytes,
            "budget": self.graphs.budget,
            "capture_seconds": round(self.capture_seconds, 2),
            "failure": self.graphs.failure,
        }

    def _take(self, drafter: Drafter | None = None) -> GraphBuffers:
        """Return free buffers, preferably used by this drafter and few others, or new ones."""
        with self._lock:
            self._free_retired()
            if self._free:
                buffers = min(self._free, key=lambda free: (drafter not in free.served, len(free.served)))
                self._free.remove(buffers)
                return buffers
            buffers = GraphBuffers(self.target, self.graphs, self.tokens, self.smallest_columns)
            self._all.add(buffers)
            return buffers

    def _free_retired(self) -> None:
        """Free buffers after the device has finished their work."""
        if not self._retired:
            return
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        for buffers in self._retired:
            buffers.close()
        self._retired.clear()
        release_memory()

    def _fits_another(self, prepared: Sequence[GraphBuffers]) -> bool:
        """Return whether memory suffices for two more sets of buffers."""
        if not prepared or self.target.device.type != "cuda":
            return True
        return torch.cuda.mem_get_info(self.target.device)[0] > 2 * prepared[-1].num_bytes
