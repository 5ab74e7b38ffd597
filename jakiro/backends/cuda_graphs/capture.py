"""Passes of fixed shape, captured once as CUDA graphs and replayed; the same passes run eagerly where graphs are off.

A pass is a function without arguments and results: it reads and writes tensors of fixed addresses. The caller fills
the inputs before and reads the outputs after. Captured or eager, the same function does the work.
"""

import threading
from collections.abc import Callable
from functools import partial

import torch

from jakiro.system import capture_was_refused, empty_cache, no_collection

WARM_UPS = 2
# Of the device's memory, for the graphs of one slot
SHARE_FOR_GRAPHS = 0.05
# Two threads' captures would meet in torch's allocator
_capturing = threading.Lock()


class Graphs:
    """What all slots of a generator capture by.

    Args:
        device: a CUDA device.
        enabled: False runs every pass eagerly.
        fewest_steps: for an answer of which fewer are expected, nothing is captured.

    Attributes:
        budget: bytes that a slot's graphs may take.
        failure: why capturing was given up, None where it was not.
        num_captured: passes captured so far.
    """

    def __init__(self, device: torch.device, enabled: bool, fewest_steps: int = 0) -> None:
        self.device, self.enabled, self.fewest_steps = device, enabled, fewest_steps
        self.failure: str | None = None
        self.num_captured = 0
        self.budget = int(SHARE_FOR_GRAPHS * torch.cuda.mem_get_info(device)[1]) if enabled else 0


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

    def __init__(self, book: "GraphCache", function: Callable[[], None]) -> None:
        self._book, self.function = book, function
        self.graph: torch.cuda.CUDAGraph | None = None

    def prepare(self) -> None:
        """Captures the pass, where graphs are on, there is room, and it was not captured yet."""
        if self.graph is None:
            self.graph = self._book.capture(self.function)

    def __call__(self) -> None:
        if self.graph is None:
            self.function()
        else:
            self.graph.replay()


class GraphCache:
    """The passes of one slot, each kept under its function, whose method it is, and its arguments; and their graphs.

    The graphs have a stream and a pool of memory of their own and are dropped together: where one alone is dropped,
    torch 2.13 clears the cuBLAS workspace of its stream, which the others captured there still point to. They share the
    pool because a slot's passes never run side by side, and in any order, because outputs lie outside of it.

    Attributes:
        num_bytes: what the graphs took from the device. fewest_steps: see `Graphs`.
    """

    def __init__(self, graphs: Graphs) -> None:
        self._graphs, self.num_bytes, self.fewest_steps = graphs, 0, graphs.fewest_steps
        self._passes: dict[tuple, GraphedPass] = {}
        self._stream: torch.cuda.Stream | None = None
        self._pool = None

    def get(self, function: Callable[..., None], *arguments) -> GraphedPass:
        """The pass that calls the function with these arguments, plain values that no step changes."""
        key = (getattr(function, "__self__", None), function.__qualname__, *arguments)
        if key not in self._passes:
            self._passes[key] = GraphedPass(self, partial(function, *arguments))
        return self._passes[key]

    def open(self) -> None:
        """Begins another answer: where graphs of earlier ones have filled the budget, all are captured anew."""
        if self.num_bytes > self._graphs.budget:
            torch.cuda.synchronize(self._graphs.device)
            self.clear()

    def clear(self) -> None:
        """Forgets all passes and their graphs, and with them the buffers they hold; the device is done with them."""
        for graphed in self._passes.values():
            if graphed.graph is not None:
                graphed.graph.reset()
        self._passes.clear()
        # Graphs that are gone leave a pool that takes no others
        self._pool, self.num_bytes = None, 0

    def capture(self, function: Callable[[], None]) -> "torch.cuda.CUDAGraph | None":
        """A graph of the function; None where there is no room, or CUDA refuses, now or before."""
        graphs = self._graphs
        if not graphs.enabled or self.num_bytes > graphs.budget:
            return None
        with _capturing:
            before = self._bytes_in_use()
            graph = self._captured(function)
            if graph is not None:
                self.num_bytes += max(self._bytes_in_use() - before, 0)
                graphs.num_captured += 1
        return graph

    def _captured(self, function: Callable[[], None]) -> "torch.cuda.CUDAGraph | None":
        """Runs the function a few times on the side stream, so that nothing is left to set up, and captures it."""
        device = self._graphs.device
        # What a collection frees, or a finaliser that it runs, may do what a capture does not allow
        with torch.cuda.device(device), no_collection():
            self._stream = self._stream or torch.cuda.Stream(device)
            self._pool = self._pool or torch.cuda.graph_pool_handle()
            current = torch.cuda.current_stream(device)
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
                capture_was_refused()
                cause = _first_cause(error)
                if isinstance(cause, torch.OutOfMemoryError):
                    raise cause from None
                self._graphs.enabled = False
                self._graphs.failure = str(cause).strip().splitlines()[0]
                return None
        return graph

    def _bytes_in_use(self) -> int:
        """Of the device's memory, without what torch only holds for later."""
        empty_cache()
        free, total = torch.cuda.mem_get_info(self._graphs.device)
        return total - free
