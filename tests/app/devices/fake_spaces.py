"""What the package `spaces` does on ZeroGPU, without its service: a decorated generator runs in a forked process.

As there, arguments and every yield are pickled, the parent drains eagerly, globals that change in the child are lost,
a closed generator sets a flag that is read after the child's next yield, and of other exceptions only the name arrives.
"""

import functools
import multiprocessing
import pickle
import queue
import threading
import time

import gradio as gr
from gradio.context import LocalContext

_FORK = multiprocessing.get_context("fork")


class FakeSpaces:
    """One instance stands for one Space.

    Args:
        pause: seconds a child waits before each yield.

    Attributes:
        refusal: raised instead of a GPU being lent, when set.
        durations, requests, processes: what each call asked for, on whose request, and where it ran.
    """

    def __init__(self, pause: float = 0.0) -> None:
        self.pause = pause
        self.refusal: Exception | None = None
        self.durations: list[int] = []
        self.requests: list = []
        self.processes: list = []

    def GPU(self, task=None, *, duration=None):
        if task is None:
            return functools.partial(self.GPU, duration=duration)

        @functools.wraps(task)
        def handler(*arguments):
            self.durations.append(duration(*arguments) if callable(duration) else duration)
            self.requests.append(LocalContext.request.get(None))
            if self.refusal is not None:
                raise self.refusal
            results, stop = _FORK.SimpleQueue(), _FORK.Event()
            sent = pickle.dumps(arguments)
            process = _FORK.Process(target=self._child, args=(task, sent, results, stop), daemon=True)
            process.start()
            self.processes.append(process)
            drained: queue.SimpleQueue = queue.SimpleQueue()
            reader = threading.Thread(target=_drain, args=(process, results, drained), daemon=True)
            reader.start()
            while True:
                kind, value = drained.get()
                if kind == "end":
                    break
                if kind == "failed":
                    raise gr.Error(value, title="ZeroGPU worker error", print_exception=False)
                try:
                    yield value
                except GeneratorExit:
                    stop.set()
                    raise

        return handler

    def _child(self, task, sent: bytes, results, stop) -> None:
        generator = task(*pickle.loads(sent))
        try:
            for value in generator:
                if stop.is_set():
                    generator.close()
                    break
                results.put(("yield", value))
                time.sleep(self.pause)
        except Exception as error:  # noqa: BLE001 - as the real one: only the class's name crosses
            results.put(("failed", type(error).__name__))
        results.put(("end", None))


def _drain(process, results, drained: queue.SimpleQueue) -> None:
    """Hands on what arrives; a child that dies without a word is an aborted task."""
    while True:
        while results.empty() and process.is_alive():
            time.sleep(0.005)
        if results.empty():
            drained.put(("failed", "GPU task aborted"))
            return
        kind, value = results.get()
        drained.put((kind, value))
        if kind != "yield":
            return
