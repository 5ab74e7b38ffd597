"""Passes of fixed shape, captured once as CUDA graphs and replayed; the same passes run eagerly where graphs are off.

A pass is a function without arguments and results: it reads and writes tensors of fixed addresses. The caller fills
the inputs before and reads the outputs after. Captured or eager, the same function does the work.
"""

import gc
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch

WARM_UPS = 2
# Of the device's memory, for all graphs together
SHARE_FOR_GRAPHS = 0.1
# From so many runs on, capturing is taken to pay: it takes about four eager runs, and a replay saves most of one
PAYS_FROM = 6


class Graphs:
    """Where passes are captured: one side stream and one memory pool, shared because passes never run side by side.

    Outputs lie in tensors that were allocated outside of captures, so the order of replays does not matter. When
    graphs take more than the budget, those whose last answer is longest ago are dropped; their passes run eagerly until
    they are captured again.

    Args:
        device: a CUDA device.
        enabled: False runs every pass eagerly.
        budget: bytes that graphs may take; None takes `SHARE_FOR_GRAPHS` of the device's memory.
        fewest_runs: passes that an answer is expected to run less often are not captured for it.

    Attributes:
        failure: why capturing was given up, None where it was not.
        num_captured, num_evicted: passes captured and dropped again so far.
        num_bytes: what the graphs that are kept took from the device.
    """

    def __init__(self, device: torch.device, enabled: bool, budget: int | None = None, fewest_runs: int = 0) -> None:
        self.device, self.enabled, self.fewest_runs = device, enabled, fewest_runs
        self.failure: str | None = None
        self.num_captured = self.num_evicted = self.num_bytes = 0
        self._stream = torch.cuda.Stream(device) if enabled else None
        self._pool = torch.cuda.graph_pool_handle() if enabled else None
        if budget is None:
            budget = int(SHARE_FOR_GRAPHS * torch.cuda.mem_get_info(device)[1]) if enabled else 0
        self.budget = budget
        # Bytes of captured passes, in the order of their last answers
        self._kept: dict[GraphedPass, int] = {}
        self._wanted: set[GraphedPass] = set()

    def open(self) -> None:
        """Begins another answer: passes that it does not prepare may make room for those that it does."""
        self._wanted = set()

    def keep(self, graphed: "GraphedPass", runs: float) -> None:
        """Captures a pass that an answer needs, if it pays and there is room; what was captured is kept for longer."""
        self._wanted.add(graphed)
        if graphed in self._kept:
            self._kept[graphed] = self._kept.pop(graphed)
        elif self.enabled and runs >= self.fewest_runs and self._make_room():
            before = self._bytes_in_use()
            graphed.graph = self._capture(graphed.function)
            if graphed.graph is not None:
                self._kept[graphed] = max(self._bytes_in_use() - before, 0)
                self.num_bytes += self._kept[graphed]
                self.num_captured += 1

    def drop(self, graphed: "GraphedPass") -> None:
        """Forgets a pass' graph; the device must have finished with it."""
        self.num_bytes -= self._kept.pop(graphed, 0)
        self._wanted.discard(graphed)
        if graphed.graph is not None:
            graphed.graph.reset()
            graphed.graph = None

    def _make_room(self) -> bool:
        """Drops graphs of earlier answers until the budget is kept; False where this answer's own fill it."""
        while self.num_bytes > self.budget:
            oldest = next((graphed for graphed in self._kept if graphed not in self._wanted), None)
            if oldest is None:
                return False
            torch.cuda.synchronize(self.device)
            self.drop(oldest)
            self.num_evicted += 1
        return True

    def _capture(self, function: Callable[[], None]) -> "torch.cuda.CUDAGraph | None":
        """Runs the function a few times on a side stream, so that nothing is left to set up, and captures it.

        Returns None, and captures nothing more, where CUDA refuses.
        """
        with torch.cuda.device(self.device), _no_collection():
            current = torch.cuda.current_stream(self.device)
            self._stream.wait_stream(current)
            with torch.cuda.stream(self._stream):
                for _ in range(WARM_UPS):
                    function()
            current.wait_stream(self._stream)
            graph = torch.cuda.CUDAGraph()
            try:
                # Other threads, such as a web page's, may go on using the device meanwhile.
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    function()
            except RuntimeError as error:
                # Where ending a capture fails, torch leaves the thread on the side stream
                torch.cuda.set_stream(current)
                cause = _first_cause(error)
                if isinstance(cause, torch.OutOfMemoryError):
                    raise cause from None
                self.enabled = False
                self.failure = str(cause).strip().splitlines()[0]
                return None
        return graph

    def _bytes_in_use(self) -> int:
        """Of the device's memory, without what torch only holds for later."""
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(self.device)
        return total - free


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection: what it frees, or a finaliser that it runs, may do what a capture does not allow."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _first_cause(error: BaseException) -> BaseException:
    """The error that came first; ending a capture that failed only reports that something failed before."""
    while error.__context__ is not None:
        error = error.__context__
    return error


class GraphedPass:
    """One pass: captured by `prepare`, and run by calling it.

    Args:
        function: reads and writes tensors of fixed addresses only. `prepare` runs it with whatever lies in them, so
            it must do no harm then.

    Attributes:
        graph: what replays it; None where it runs eagerly.
    """

    def __init__(self, graphs: Graphs, function: Callable[[], None]) -> None:
        self._graphs, self.function = graphs, function
        self.graph: torch.cuda.CUDAGraph | None = None

    @property
    def kind(self) -> str:
        """Passes of one kind take each other's place: of each kind a step runs one at most."""
        return self.function.func.__name__

    def prepare(self, runs: float = math.inf) -> None:
        """Captures the pass, where graphs are on, it pays, there is room, and it was not captured yet.

        Args:
            runs: how often it is expected to run in the answer that begins.
        """
        self._graphs.keep(self, runs)

    def __call__(self) -> None:
        if self.graph is None:
            self.function()
        else:
            self.graph.replay()


class PassBook:
    """The passes of one set of buffers, each kept under its function, whose method it is, and its arguments."""

    def __init__(self, graphs: Graphs) -> None:
        self._graphs = graphs
        self._passes: dict[tuple, GraphedPass] = {}

    def get(self, function: Callable[..., None], *arguments) -> GraphedPass:
        """The pass that calls the function with these arguments, plain values that no step changes."""
        key = (getattr(function, "__self__", None), function.__qualname__, *arguments)
        if key not in self._passes:
            self._passes[key] = GraphedPass(self._graphs, partial(function, *arguments))
        return self._passes[key]

    def open(self) -> None:
        """Begins another answer, see `Graphs.open`."""
        self._graphs.open()

    def clear(self) -> None:
        """Forgets all passes and their graphs, and with them the buffers they hold."""
        for graphed in self._passes.values():
            self._graphs.drop(graphed)
        self._passes.clear()
