"""Passes of fixed shape, captured once as CUDA graphs and replayed; the same passes run eagerly where graphs are off.

A pass is a function without arguments and results: it reads and writes tensors of fixed addresses. The caller fills
the inputs before and reads the outputs after. Captured or eager, the same function does the work.
"""

from collections.abc import Callable
from functools import partial

import torch

WARM_UPS = 2


class Graphs:
    """Where passes are captured: one side stream and one memory pool, shared because passes never run side by side.

    Outputs lie in tensors that were allocated outside of captures, so the order of replays does not matter.

    Args:
        device: a CUDA device.
        enabled: False runs every pass eagerly.

    Attributes:
        failure: why capturing was given up, None where it was not.
        num_captured: passes captured so far.
    """

    def __init__(self, device: torch.device, enabled: bool) -> None:
        self.device, self.enabled = device, enabled
        self.failure: str | None = None
        self.num_captured = 0
        self._stream = torch.cuda.Stream(device) if enabled else None
        self._pool = torch.cuda.graph_pool_handle() if enabled else None

    def capture(self, function: Callable[[], None]) -> "torch.cuda.CUDAGraph | None":
        """Runs the function a few times on a side stream, so that nothing is left to set up, and captures it.

        Returns None, and captures nothing more, where CUDA refuses.
        """
        with torch.cuda.device(self.device):
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
                if isinstance(error, torch.OutOfMemoryError):
                    raise
                self.enabled = False
                self.failure = str(error).strip().splitlines()[0]
                return None
        self.num_captured += 1
        return graph


class GraphedPass:
    """One pass: captured by `prepare`, and run by calling it.

    Args:
        function: reads and writes tensors of fixed addresses only. `prepare` runs it with whatever lies in them, so
            it must do no harm then.
    """

    def __init__(self, graphs: Graphs, function: Callable[[], None]) -> None:
        self._graphs, self._function = graphs, function
        self._graph: torch.cuda.CUDAGraph | None = None

    def prepare(self) -> None:
        """Captures the pass, where graphs are on and it was not captured yet."""
        if self._graphs.enabled and self._graph is None:
            self._graph = self._graphs.capture(self._function)

    def __call__(self) -> None:
        if self._graph is None:
            self._function()
        else:
            self._graph.replay()


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
