"""CUDA graphs without CUDA: a capture records all operations, and a replay runs them on the same tensors.

Python code does not run at replay, as with real graphs: a Python number keeps its value from the capture. Before each
replay, tensors that were made in captures of the same pool are filled with garbage. As on torch 2.13, dropping a graph
clears the cuBLAS workspace that other graphs of its stream use.
"""

import gc
import os
import sys
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import jakiro
from jakiro.backends.cuda_graphs.capture import GraphedPass

# Location of the library's code; the environment may be in a folder with the library's name
LIBRARY = f"{Path(jakiro.__file__).parent}{os.sep}"
GRAPH_BYTES = 1000
READING_OPERATIONS = {
    "_local_scalar_dense", "item", "nonzero", "nonzero_numpy", "argwhere", "masked_select", "_unique", "_unique2",
    "unique_dim", "unique_consecutive", "repeat_interleave", "equal", "is_nonzero",
}  # fmt: skip
TOTAL_BYTES = 1 << 40


class Recorder(TorchDispatchMode):
    """A recorder of operations with their inputs and outputs.

    Attributes:
        made: tensors with memory from the pool.
    """

    def __init__(self) -> None:
        super().__init__()
        self.operations = []
        self.made: list[torch.Tensor] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.removeprefix("aten::")
        if name in READING_OPERATIONS and function._overloadname != "self_int":
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        result = function(*args, **(kwargs or {}))
        self.operations.append((function, args, kwargs or {}, result))
        existing = {None} | {storage_of(value) for value in tree_leaves((args, kwargs))}
        self.made += [value for value in tree_leaves(result) if storage_of(value) not in existing]
        return result


def storage_of(value) -> int | None:
    """Return the id of a tensor's storage; None for other values and for tensors packed by oneDNN."""
    if not isinstance(value, torch.Tensor) or value.is_mkldnn:
        return None
    return value.untyped_storage()._cdata


def library_place() -> str:
    """Return file and line of the library's code that is running; empty if there is none."""
    frame = sys._getframe(1)
    while frame is not None and not frame.f_code.co_filename.startswith(LIBRARY):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename.removeprefix(LIBRARY)}:{frame.f_lineno}"


class FakeGraph:
    """Replacement for `torch.cuda.CUDAGraph`."""

    def __init__(self, cuda: "FakeCuda") -> None:
        self.cuda, self.recorder = cuda, Recorder()
        self.replays, self.process = 0, os.getpid()
        self.pool = self.stream = None
        self.has_workspace = True

    def replay(self) -> None:
        assert os.getpid() == self.process, "a graph of another process is replayed"
        assert self in self.cuda.graphs, "a graph that was reset is replayed"
        assert self.has_workspace, "the workspace of a graph was cleared with another graph of its stream"
        self.replays += 1
        # The modes saw the operations at the capture
        with torch._C.DisableTorchFunction():
            self.cuda.poison_the_pool(self.pool)
            for function, args, kwargs, before in self.recorder.operations:
                again = function(*args, **kwargs)
                for old, new in zip(tree_leaves(before), tree_leaves(again), strict=True):
                    # Views, and tensors that are written in place, keep their address
                    if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)

    def reset(self) -> None:
        self.cuda.log.append("reset")
        self.cuda.graphs.remove(self)
        for graph in self.cuda.graphs:
            graph.has_workspace &= graph.stream is not self.stream


class FakeCuda:
    """Replacement for the parts of `torch.cuda` that capture; `log` lists their calls in order.

    Attributes:
        graphs: captured graphs that were not reset.
        eager: functions of passes that ran outside of captures.
        stream: name of the thread's current stream.
        collecting: True if Python's garbage collector was enabled during a capture.
        fail: called at the end of a capture; may raise.
        asserts: if True, releasing memory fails after a rejected capture, as up to torch 2.12.
    """

    def __init__(self, monkeypatch) -> None:
        self.log: list[str] = []
        self.graphs: list[FakeGraph] = []
        self.eager: list[str] = []
        self.stream, self.collecting = "current", False
        self.fail = lambda: None
        self.asserts, self._refused = False, False

        class Stream:
            def __init__(stream, name="side", **options) -> None:
                stream.name = name if isinstance(name, str) else "side"

            def wait_stream(stream, source) -> None:
                self.log.append("wait")

        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: Stream(self.stream))
        monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "stream", stream.name))
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: self.log.append("synchronize"))
        monkeypatch.setattr(torch.cuda, "empty_cache", self._empty_cache)
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (self._free_bytes(), TOTAL_BYTES))
        monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
        monkeypatch.setattr(torch.cuda, "device", nullcontext)
        monkeypatch.setattr(torch.cuda, "stream", self._aside)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: FakeGraph(self))
        monkeypatch.setattr(torch.cuda, "graph", self._capture)
        monkeypatch.setattr(GraphedPass, "__call__", self._called(GraphedPass.__call__))

    def poison_the_pool(self, pool: object) -> None:
        """Overwrite every tensor made in a capture, as another graph of the same pool may do."""
        for graph in self.graphs:
            for tensor in graph.recorder.made if graph.pool is pool else ():
                if tensor.is_floating_point():
                    tensor.fill_(torch.nan)
                elif tensor.dtype == torch.bool:
                    tensor.logical_not_()
                else:
                    tensor.fill_(2**40 + 7 if tensor.dtype == torch.int64 else 101)

    def _empty_cache(self) -> None:
        assert not (self.asserts and self._refused), "captures_underway.empty() INTERNAL ASSERT FAILED"

    def _free_bytes(self) -> int:
        return TOTAL_BYTES - GRAPH_BYTES * len(self.graphs)

    @contextmanager
    def _aside(self, stream):
        self.log.append("aside")
        self.stream, before = stream.name, self.stream
        yield
        self.stream = before
        self.log.append("back")

    @contextmanager
    def _capture(self, graph, pool, stream, capture_error_mode):
        assert capture_error_mode == "thread_local"
        graph.pool, graph.stream = pool, stream
        self.log.append("capture")
        before, self.stream = self.stream, stream.name
        self.collecting |= gc.isenabled()
        try:
            with graph.recorder:
                yield
                self.fail()
        except RuntimeError as error:
            # The real call first ends the capture, which fails, so it never restores the previous stream
            self._refused = True
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture") from error
        self.stream = before
        self.graphs.append(graph)
        self.log.append("captured")

    def _called(self, call):
        def call_and_record(graphed) -> None:
            if graphed.graph is None:
                self.eager.append(graphed.function.func.__name__)
            call(graphed)

        return call_and_record
