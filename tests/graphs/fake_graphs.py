"""CUDA graphs without CUDA: a capture records every operation, a replay runs the same ones on the same tensors.

As with the real ones, nothing of Python runs again at replay: a value that was a number at capture stays what it was.
"""

from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from jakiro.graphs.capture import GraphedPass
from tests.engine.test_meta_device import READING_OPERATIONS, ReadCounter


class Recorder(TorchDispatchMode):
    """Keeps operations with their inputs and outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.operations = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.removeprefix("aten::")
        if name in READING_OPERATIONS and function._overloadname != "self_int":
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        result = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, result))
        return result


class FakeGraph:
    """What stands in for `torch.cuda.CUDAGraph`."""

    def __init__(self) -> None:
        self.recorder = Recorder()
        self.replays = 0

    def replay(self) -> None:
        self.replays += 1
        for function, args, kwargs, before in self.recorder.operations:
            again = function(*args, **kwargs)
            for old, new in zip(tree_leaves(before), tree_leaves(again), strict=True):
                # Views and what is written in place lie where they lay.
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


class FakeCuda:
    """Replaces the parts of `torch.cuda` that capture; `log` tells in which order they were used.

    Attributes:
        captures: one (function, counter of host reads) a capture.
        eager: functions of passes that ran outside of captures.
    """

    def __init__(self, monkeypatch) -> None:
        self.log: list[str] = []
        self.graphs: list[FakeGraph] = []
        self.reads = ReadCounter()
        self.eager: list[str] = []
        self._monkeypatch = monkeypatch
        self._capturing = False

        class Stream:
            def __init__(stream, *arguments) -> None:
                pass

            def wait_stream(stream, other) -> None:
                self.log.append("wait")

        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: Stream())
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
        monkeypatch.setattr(torch.cuda, "device", self._nothing)
        monkeypatch.setattr(torch.cuda, "stream", self._aside)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", self._new_graph)
        monkeypatch.setattr(torch.cuda, "graph", self._capture)
        monkeypatch.setattr(GraphedPass, "__call__", self._called(GraphedPass.__call__))

    @contextmanager
    def _nothing(self, device):
        yield

    @contextmanager
    def _aside(self, stream):
        self.log.append("aside")
        yield
        self.log.append("back")

    def _new_graph(self) -> FakeGraph:
        self.graphs.append(FakeGraph())
        return self.graphs[-1]

    @contextmanager
    def _capture(self, graph, pool, stream, capture_error_mode):
        assert pool == "pool" and capture_error_mode == "thread_local"
        self.log.append("capture")
        with self.reads.watching(self._monkeypatch), graph.recorder:
            yield
        self.log.append("captured")

    def _called(self, call):
        def watched(graphed) -> None:
            if graphed._graph is None:
                self.eager.append(graphed._function.func.__name__)
            call(graphed)

        return watched
