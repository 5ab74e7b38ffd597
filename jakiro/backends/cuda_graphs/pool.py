"""The slots of one generator: all of one size, borrowed by answers, captured at load."""

import itertools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial

import torch

from jakiro import progress
from jakiro.backends.cuda_graphs.cache import SMALLEST_COLUMNS
from jakiro.backends.cuda_graphs.capture import Graphs
from jakiro.backends.cuda_graphs.probe import NUM_PROMPT, rounds_alike
from jakiro.backends.cuda_graphs.slot import MOST_DRAFT_ROWS, MOST_NODES, Slot
from jakiro.config import ROOT_ONLY, SamplingParams, TreeConfig
from jakiro.drafters.base import Drafter
from jakiro.models.target import TargetModel
from jakiro.system import free_memory

# Prompt and answer that a slot holds; with the widest tree they fill a whole column step.
SLOT_TOKENS = 2048 - MOST_NODES


class Slots:
    """Slots over one target, for all methods.

    Args:
        target: one with `fused` layers.
        graphs: capture passes as CUDA graphs; False runs the same passes eagerly.
        smallest_columns: of attention, see `columns_for`.
        tokens: prompt and answer that a slot holds.
        fewest_steps: see `Graphs`.

    Attributes:
        capture_seconds: what making slots and capturing took until loading was done.
        turned_away: answers so far that were too long for a slot, or whose trees were too large.
    """

    def __init__(
        self,
        target: TargetModel,
        graphs: bool,
        smallest_columns: int = SMALLEST_COLUMNS,
        tokens: int = SLOT_TOKENS,
        fewest_steps: int = 0,
    ) -> None:
        self.target, self.smallest_columns = target, smallest_columns
        self.tokens = min(tokens, target.max_positions + 1)
        self.graphs = Graphs(target.device, graphs, fewest_steps)
        self.turned_away = 0
        self._free: list[Slot] = []
        # Slots that memory ran out for, freed by the next answer: here an error's traceback may hold their tensors
        self._retired: list[Slot] = []
        self._all: weakref.WeakSet[Slot] = weakref.WeakSet()
        # An answer that was dropped unfinished returns its slot when Python collects it, in whatever thread.
        self._lock = threading.RLock()
        self.capture_seconds = 0.0

    # The one tree of answers that choose their own size: whatever fits into a pass costs the same
    tree = TreeConfig(nodes=MOST_NODES)

    def for_target(self, target: TargetModel) -> "Slots":
        """Slots of the same kind for the same weights under other numerics; their passes are captured again."""
        graphs = self.graphs
        wanted = graphs.enabled or graphs.failure is not None
        return Slots(target, wanted, self.smallest_columns, self.tokens, graphs.fewest_steps)

    def borrow(
        self, drafter: Drafter, sampling: SamplingParams, tree: TreeConfig, num_prompt_tokens: int, num_tokens: int
    ) -> tuple[Slot, Callable[[], None]] | None:
        """A slot prepared for one answer, and a function that returns it; calling that again does nothing.

        None where no slot holds so long an answer, or trees so large.

        Args:
            tree: the largest one that is asked for. num_tokens: prompt and answer at most.
        """
        if num_tokens > self.tokens or tree.nodes > MOST_NODES or tree.depth * tree.width > MOST_DRAFT_ROWS:
            self.turned_away += 1
            return None
        slot = self._take(drafter)
        try:
            slot.open(drafter, sampling, tree, num_prompt_tokens, num_tokens)
        except BaseException:
            # Half prepared, perhaps for want of memory: it makes room for the next answer
            with self._lock:
                self._retired.append(slot)
            raise
        return slot, partial(self._give_back, slot)

    def prepare(self, drafters: Sequence[Drafter], side_by_side: int = 1) -> None:
        """Makes the first slots and captures what answers usually need; the listener of this start hears how far it is.

        Args:
            drafters: plain decoding's, and those that answers usually ask for.
            side_by_side: answers that run at once, as in a race: each drafter gets a slot of its own as long as there
                are so many, and as long as memory lasts; the last slot serves all others.
        """
        start, span = time.perf_counter(), (1, self.tokens)
        slots: list[Slot] = []
        while len(slots) < min(side_by_side, len(drafters)) and self._fits_another(slots):
            slots.append(self._take())
        wanted = [
            (slot, (drafter, sampling, self.tree if drafter.proposers else ROOT_ONLY))
            for slot, own in zip(slots, _shared_out(drafters, len(slots)), strict=True)
            for sampling in (SamplingParams(), SamplingParams(1.0))
            for drafter in own
        ]
        total, count = sum(1 for slot, plan in wanted for _ in slot.needed(*plan, *span)), itertools.count(1)

        def captured() -> None:
            progress.tell(progress.CAPTURE, next(count) / total)

        for slot, plan in wanted:
            slot.open(*plan, *span, captured)
        for slot in slots:
            self._give_back(slot)
        self.capture_seconds = time.perf_counter() - start

    def settle(self, drafter: Drafter) -> TargetModel:
        """The target as it computes in slots, to be used from now on: whether plain and drafted passes round alike with
        this drafter. Before `prepare`.
        """
        alike = True
        if self.target.bit_identical:
            slot, give_back = self.borrow(drafter, SamplingParams(), self.tree, NUM_PROMPT, NUM_PROMPT + 2)
            try:
                alike = rounds_alike(slot)
            finally:
                give_back()
        self.target = self.target.with_settings(bit_identical=self.target.bit_identical and alike)
        return self.target

    @property
    def replays(self) -> bool:
        """Whether whatever answers run is captured first; what passes cost is worth measuring only then."""
        return self.graphs.enabled and self.graphs.fewest_steps == 0

    @property
    def notices(self) -> list[str]:
        """Sentences about what runs without graphs."""
        found = []
        if self.graphs.failure:
            found.append(
                f"CUDA refused a graph ({self.graphs.failure}): passes run without graphs, one kernel at a time."
            )
        if self.turned_away:
            found.append(
                f"Graphs are for up to {self.tokens:,} tokens of prompt and answer and trees of {MOST_NODES} nodes; an "
                "answer that asked for more ran without graphs, one kernel at a time."
            )
        return found

    @property
    def status(self) -> dict:
        """What is captured, and the memory that slots and graphs take."""
        graph_bytes = sum(slot.passes.num_bytes for slot in self._all)
        return {
            "graphs": self.graphs.enabled,
            "slots": len(self._all),
            "captured": self.graphs.num_captured,
            "bytes": sum(slot.num_bytes for slot in self._all) + graph_bytes,
            "graph_bytes": graph_bytes,
            "budget": self.graphs.budget,
            "capture_seconds": round(self.capture_seconds, 2),
            "failure": self.graphs.failure,
        }

    def _take(self, drafter: Drafter | None = None) -> Slot:
        """A free slot, if possible one that has served the drafter, and few others, before; else a new one."""
        with self._lock:
            self._free_retired()
            if self._free:
                slot = min(self._free, key=lambda slot: (drafter not in slot.served, len(slot.served)))
                self._free.remove(slot)
                return slot
            slot = Slot(self.target, self.graphs, self.tokens, self.smallest_columns)
            self._all.add(slot)
            return slot

    def _give_back(self, slot: Slot) -> None:
        with self._lock:
            if slot not in self._free and slot not in self._retired:
                self._free.append(slot)

    def _free_retired(self) -> None:
        """Frees slots after the device has finished their work."""
        if not self._retired:
            return
        if self.target.device.type == "cuda":
            torch.cuda.synchronize(self.target.device)
        for slot in self._retired:
            slot.close()
        self._retired.clear()
        free_memory()

    def _fits_another(self, slots: Sequence[Slot]) -> bool:
        """Whether there is room for one more slot besides these, and for as much again."""
        if not slots or self.target.device.type != "cuda":
            return True
        return torch.cuda.mem_get_info(self.target.device)[0] > 2 * slots[-1].num_bytes


def _shared_out(drafters: Sequence[Drafter], slots: int) -> list[Sequence[Drafter]]:
    """Which slot serves which drafters: one each, and the last slot all that are left."""
    return [drafters[number : number + 1] for number in range(slots - 1)] + [drafters[slots - 1 :]]
