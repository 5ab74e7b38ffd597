"""ZeroGPU on Spaces: each answer runs in a process that Spaces forks from this one and lends a GPU for some seconds.

The weights are read here, without a GPU; a forked process inherits them, moves them to its GPU and probes and measures
there. What it measures is sent back and given to later processes, whose globals are lost. A CUDA graph belongs to the
process that captured it: this one has none, a forked one captures what its answers run often enough. Everything Spaces
pickles is plain data. The seconds asked for depend on the request, because short ones wait less.
"""

import importlib.util
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator

import gradio as gr

from app.asking import Asking
from app.devices.base import LOADING, Event
from app.devices.local import answer_events
from app.devices.remote import FAILED, follow, with_failures
from app.words import page as words

PLACES = 4
DTYPE = "bfloat16"
SECONDS_MOST = 120
_SECONDS_TO_START, _SECONDS_TO_MEASURE = 6, 8
_MS_PER_TOKEN_AT_FIRST = 30.0
_MARGIN = 1.5
_MEMORY = 0.7
# ("facts", None, {"status": …, "costs": …}): what a forked process measured on its GPU
_FACTS = "facts"


def is_here() -> bool:
    """Whether this process runs in a Space on ZeroGPU."""
    asked_for = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
    return asked_for and importlib.util.find_spec("spaces") is not None


class ZeroDevice:
    """Runs answers in processes with a borrowed GPU.

    Args:
        read_pair: reads a pair without a GPU; gives what `jakiro.zoo.loading.start_pair` takes.
        gpu: the decorator `spaces.GPU`.
        device: where a forked process moves the pair.
    """

    places = PLACES

    def __init__(self, read_pair: Callable[[], object], gpu: Callable, device: str = "cuda") -> None:
        self._read_pair, self._device = read_pair, device
        self._pair = self._generator = None
        self._facts = {"status": None, "costs": None}
        self._ms_per_token = _MS_PER_TOKEN_AT_FIRST
        # Spaces looks for a decorated function when the page is launched, which is before the pair is read
        self._on_gpu = gpu(duration=lambda asking, seconds, costs: seconds)(self._answer_on_gpu)

    @property
    def status(self) -> dict:
        """As measured on a GPU by the first answer; until then what is known without one."""
        return self._facts["status"] or {
            "target": self._pair.names.target_name,
            "head": self._pair.names.head_name,
            "device": words.ZERO_GPU,
            "dtype": str(self._pair.model.dtype).removeprefix("torch."),
            "numerics": self._pair.options.numerics or "exact",
            "bit_identical": False,
            "notices": [],
        }

    @property
    def costs(self) -> dict | None:
        return self._facts["costs"]

    def load(self, told: Callable[[str, float | None], None]) -> None:
        told(LOADING, None)
        self._pair = self._read_pair()

    def answer(self, asking: Asking, halt: threading.Event, prefixes: object = None) -> Iterator[Event]:
        seconds = seconds_for(asking, self._ms_per_token, self.costs is not None)
        milliseconds = tokens = 0
        try:
            for kind, method, payload in follow(lambda _: self._on_gpu(asking, seconds, self.costs), halt):
                if kind == _FACTS:
                    self._facts = payload
                    continue
                if kind == "step":
                    milliseconds += payload.total_ms
                    tokens += len(payload.committed_ids)
                yield kind, method, payload
        except gr.Error as error:
            raise ValueError(sentence_for(error)) from error
        finally:
            if tokens:
                self._ms_per_token = _MEMORY * self._ms_per_token + (1 - _MEMORY) * milliseconds / tokens

    def go_on_measuring(self) -> bool:
        return False

    def close(self) -> None:
        self._pair = None

    def _answer_on_gpu(self, asking: Asking, seconds: int, costs: dict | None) -> Iterator[Event]:
        """Runs in the forked process, whose copy of this object lasts as long as Spaces keeps the process."""
        until = time.monotonic() + seconds
        yield from with_failures(self._answer_until(until, asking, costs))

    def _answer_until(self, until: float, asking: Asking, costs: dict | None) -> Iterator[Event]:
        if self._generator is None:
            self._generator = self._start(costs)
            profile = self._generator.profile
            yield _FACTS, None, {"status": self._generator.status, "costs": profile.to_dict() if profile else None}
        over = False

        def is_over() -> bool:
            nonlocal over
            over = time.monotonic() > until
            return over

        yield from answer_events(self._generator, asking, is_over)
        if over:
            yield FAILED, None, words.ZERO_TIME_OVER

    def _start(self, costs: dict | None):
        import torch

        from jakiro.engine.costs import DeviceProfile
        from jakiro.generator import JakiroGenerator
        from jakiro.zoo.loading import start_pair

        # OpenMP's threads do not survive a fork; waiting for them would never end
        torch.set_num_threads(1)
        generator = JakiroGenerator.from_parts(start_pair(self._pair, torch.device(self._device)))
        if costs is not None:
            generator.profile = DeviceProfile.from_dict(costs)
        return generator


def seconds_for(asking: Asking, ms_per_token: float, measured: bool) -> int:
    """How long an answer may hold a GPU: its tokens at the speed so far and half as long again, capped.

    Args:
        ms_per_token: decode milliseconds a token took lately, over all methods.
        measured: whether the costs of this kind of GPU are known; otherwise they are measured first.
    """
    decoding = asking.params.max_new_tokens * len(asking.methods) * ms_per_token / 1000
    seconds = _SECONDS_TO_START + (0 if measured else _SECONDS_TO_MEASURE) + _MARGIN * decoding
    return min(math.ceil(seconds), SECONDS_MOST)


def sentence_for(error: gr.Error) -> str:
    """One sentence for what the GPU service says when it lends no GPU or takes it away; cases differ by their title."""
    title, message = error.title or "", str(error.message)
    if "quota" in title or "credits" in title:
        wait = re.search(r"Try again in ([\d:]+)", message)
        return words.ZERO_QUOTA_WAIT.format(wait=wait[1]) if wait else words.ZERO_QUOTA
    if "illegal duration" in title:
        return words.ZERO_TOO_LONG
    return words.ZERO_ABORTED if "worker" in title else words.ZERO_BUSY
