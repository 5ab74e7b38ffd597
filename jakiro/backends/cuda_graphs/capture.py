"""Passes of fixed shape, captured once as CUDA graphs and replayed; without graphs the same functions run eagerly.

A pass is a function without arguments and results: it reads and writes tensors at fixed addresses. The caller fills
the inputs before and reads the outputs after it.
"""

import threading
from collections.abc import Callable
from functools import partial

import torch

from jakiro.system import capture_was_refused, empty_cache, no_collection

WARM_UPS = 2
# Share of the device's memory for the graphs of one set of buffers
SHARE_FOR_GRAPHS = 0.05
# Concurrent captures of two threads would conflict in torch's allocator
_capturing = threading.Lock()


class Graphs:
    """Settings and counts of captures, shared by all buffers of a pool.

    Args:
        device: a CUDA device.
        enabled: False runs every pass eagerly.
        fewest_steps: an answer with fewer expected steps captures nothing.

    Attributes:
        budget: maximum bytes of the graphs of one set of buffers.
        failure: reason why capturing was given up; None while it works.
        num_captured: passes captured so far.
    """

    def __init__(self, device: torch.device, enabled: bool, fewest_steps: int = 0) -> None:
        self.device, self.enabled, self.fewest_steps = device, enabled, fewest_steps
        self.failure: str | None = None
        self.num_captured = 0
        self.budget = int(SHARE_FOR_GRAPHS * torch.cuda.mem_get_info(device)[1]) if enabled else 0


def _first_cause(error: BaseException) -> BaseException:
    """Return the first error of a chain; the error from the end of a failed capture only refers to an earlier one."""
    while error.__context__ is not None:
        error = error.__context__
    return error


class GraphedPass:
    """One pass: `prepare` captures it, a call runs it.

    Args:
        function: reads and writes tensors at fixed addresses only. `prepare` runs it on their current content, so it
            must be safe for any values.

    Attributes:
        graph: the captured graph; None if the pass runs eagerly.
    """

    def __init__(self, cache: "GraphCache", function: Callable[[], None]) -> None:
        self._cache, self.function = cache, function
        self.graph: torch.cuda.CUDAGraph | None = None

    def prepare(self) -> None:
        """Capture the pass, unless it is captured, graphs are disabled, or the budget is used up."""
        if self.graph is None:
            self.graph = self._cache.capture(self.function)

    def __call__(self) -> None:
        if self.graph is None:
            self.function()
        else:
            self.graph.replay()


class GraphCache:
    """Passes of one set of buffers and their graphs, by object, function and arguments.

    The graphs have their own stream and memory pool and are dropped together: when a single graph is dropped, torch
    2.13 clears the cuBLAS workspace of its stream, to which the other graphs of the stream still point. They can share
    the memory pool because these passes never run concurrently, and can run in any order because outputs are stored
    outside of it.

    Attributes:
        num_bytes: device memory of the graphs.
        fewest_steps: see `Graphs`.
    """

    def __init__(self, graphs: Graphs) -> None:
        self._graphs, self.num_bytes, self.fewest_steps = graphs, 0, graphs.fewest_steps
        self._passes: dict[tuple, GraphedPass] = {}
        self._stream: torch.cuda.Stream | None = None
        self._pool = None

    def get(self, function: Callable[..., None], *arguments) -> GraphedPass:
        """Return the pass that calls the function with these arguments, which must be constants of the graph."""
        key = (getattr(function, "__self__", None), function.__qualname__, *arguments)
        if key not in self._passes:
            self._passes[key] = GraphedPass(self, partial(function, *arguments))
        return self._passes[key]

    def open(self) -> None:
        """Start an answer: if the graphs exceed the budget, drop all, so that they are captured again."""
        if self.num_bytes > self._graphs.budget:
            torch.cuda.synchronize(self._graphs.device)
            self.clear()

    def clear(self) -> None:
        """Drop all passes and graphs, with their references to buffers; the device must have finished them."""
        for graphed in self._passes.values():
            if graphed.graph is not None:
                graphed.graph.reset()
        self._passes.clear()
        # After its graphs were dropped, a memory pool accepts no new graphs
        self._pool, self.num_bytes = None, 0

    def capture(self, function: Callable[[], None]) -> "torch.cuda.CUDAGraph | None":
        """Return a graph of the function; None if the budget is used up, or CUDA refuses or has refused a graph."""
        graphs = self._graphs
        if not graphs.enabled or self.num_bytes > graphs.budget:
            return None
        with _capturing:
            before = self._bytes_in_use()
            graph = self._capture_aside(function)
            if graph is not None:
                self.num_bytes += max(self._bytes_in_use() - before, 0)
                graphs.num_captured += 1
        return graph

    def _capture_aside(self, function: Callable[[], None]) -> "torch.cuda.CUDAGraph | None":
        """Warm the function up on the side stream, so that no set-up is captured, and capture it."""
        device = self._graphs.device
        # A garbage collection may free memory or run finalisers, which a capture does not allow
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
                # Other threads, such as a web page's, may use the device during the capture
                with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
                    function()
            except RuntimeError as error:
                # If ending a capture fails, torch leaves the thread on the side stream
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
        """Return the used bytes of the device, without memory that torch only caches."""
        empty_cache()
        free, total = torch.cuda.mem_get_info(self._graphs.device)
        return total - free
