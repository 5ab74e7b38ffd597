"""ZeroGPU on Spaces: each answer runs in a process that Spaces forks from this one, with a GPU for some seconds.

The weights are read here, without a GPU; a forked process inherits them, moves them to its GPU and probes there. CUDA
graphs belong to the process that captured them: a forked process captures the passes that its answers use often enough,
for trees of one size, and measures nothing. Everything Spaces pickles is plain data. The requested seconds depend on
the request, because short requests wait less.
"""

import importlib.util
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator

import gradio as gr
import httpx

from app.asking import Asking
from app.devices.base import LOADING, Event
from app.devices.local import answer_events
from app.devices.remote import FAILED, follow, with_failures
from app.words import page as words
from jakiro.bench.environment import environment

PLACES = 4
DTYPE = "bfloat16"
SECONDS_MOST = 120
# `spaces.GPU` requests this by default, so every account may
_SECONDS_FOR_EVERY_ACCOUNT = 60
# A shorter remaining quota is not worth a request
_SECONDS_LEAST = 15
# Of these, a fresh process takes some to find its GPU and to move the pair there
_SECONDS_TO_START = 10
# Spaces counts from before our first line, and ends a process without a word
_SPARE_SECONDS = 2.0
_MS_PER_TOKEN_AT_FIRST = 30.0
_MARGIN = 1.5
_MEMORY = 0.7
# ("found", None, (status, environment)): of a forked process's generator on its GPU
_FOUND = "found"


def is_here() -> bool:
    """Return whether this process runs in a Space on ZeroGPU."""
    asked_for = os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")
    return asked_for and importlib.util.find_spec("spaces") is not None


class ZeroDevice:
    """Runs answers in processes with a borrowed GPU.

    Args:
        read_pair: reads a pair without a GPU; returns the argument of `jakiro.loading.loader.start_pair`.
        gpu: the decorator `spaces.GPU`.
        device: device to which a forked process moves the pair.
    """

    places, metered = PLACES, True
    costs = None

    def __init__(self, read_pair: Callable[[], object], gpu: Callable, device: str = "cuda") -> None:
        self._read_pair, self._device = read_pair, device
        self._pair = self._generator = None
        self._known_status: dict | None = None
        self.environment: dict = {}
        self._ms_per_token = _MS_PER_TOKEN_AT_FIRST
        # When this copy's process was forked; the clock is the machine's
        self._forked: float | None = None
        os.register_at_fork(after_in_child=self._note_fork)
        # Spaces looks for a decorated function when the page is launched, which is before the pair is read
        self._on_gpu = gpu(duration=lambda asking, seconds: seconds)(self._answer_on_gpu)

    @property
    def status(self) -> dict:
        """Return the status of the latest answer's GPU; before the first one, the status without a GPU."""
        return self._known_status or {
            "target": self._pair.names.target_name,
            "head": self._pair.names.head_name,
            "device": words.ZERO_GPU,
            "dtype": str(self._pair.model.dtype).removeprefix("torch."),
            # Its cards compute float64 at a 64th of float32's rate, see `choose_numerics`
            "numerics": self._pair.options.numerics or "fast",
            "bit_identical": False,
            "notices": [],
        }

    def load(self, report: Callable[[str, float | None], None]) -> None:
        report(LOADING, None)
        self._pair = self._read_pair()

    def answer(self, asking: Asking, halt: threading.Event, prefixes: object = None) -> Iterator[Event]:
        seconds = seconds_for(asking, self._ms_per_token)
        milliseconds = tokens = 0
        try:
            for kind, method, payload in self._request_gpu(asking, halt, seconds):
                if kind == _FOUND:
                    self._known_status, self.environment = payload
                    continue
                if kind == "step":
                    milliseconds += payload.total_ms
                    tokens += len(payload.committed_ids)
                yield kind, method, payload
        except gr.Error as error:
            raise ValueError(sentence_for(error)) from error
        except (httpx.HTTPError, RuntimeError) as error:
            # The GPU service cannot be reached, or its response is unknown to its package
            raise ValueError(words.ZERO_BUSY) from error
        finally:
            if tokens:
                self._ms_per_token = _MEMORY * self._ms_per_token + (1 - _MEMORY) * milliseconds / tokens

    def _request_gpu(self, asking: Asking, halt: threading.Event, seconds: int) -> Iterator[Event]:
        """Yield the events of an answer; if the request is refused as too long, repeat it once with what is allowed."""
        has_started = False
        try:
            for event in follow(lambda _: self._on_gpu(asking, seconds), halt):
                has_started = True
                yield event
        except gr.Error as error:
            allowed = allowed_seconds(error, seconds)
            if has_started or allowed is None:
                raise
            yield from follow(lambda _: self._on_gpu(asking, allowed), halt)

    def close(self) -> None:
        self._pair = None

    def _answer_on_gpu(self, asking: Asking, seconds: int) -> Iterator[Event]:
        """Run in the forked process; its copy of this object exists as long as Spaces keeps the process."""
        since = time.monotonic() if self._generator is not None else self._forked or time.monotonic()
        yield from with_failures(self._answer_until(since + seconds - _SPARE_SECONDS, asking))

    def _answer_until(self, until: float, asking: Asking) -> Iterator[Event]:
        if self._generator is None:
            self._generator = self._start()
        yield _FOUND, None, (self._generator.status, environment(self._generator.status))
        over = False

        def is_over() -> bool:
            nonlocal over
            over = time.monotonic() > until
            return over

        yield from answer_events(self._generator, asking, is_over)
        if over:
            yield FAILED, None, words.ZERO_TIME_OVER

    def _note_fork(self) -> None:
        self._forked = time.monotonic()

    def _start(self):
        import torch

        from jakiro.generator import JakiroGenerator
        from jakiro.loading.loader import start_pair

        # OpenMP's threads do not survive a fork; waiting for them would never end
        torch.set_num_threads(1)
        return JakiroGenerator.from_parts(start_pair(self._pair, torch.device(self._device)))


def seconds_for(asking: Asking, ms_per_token: float) -> int:
    """Return the seconds to request for an answer: its tokens at the speed so far, plus half, capped.

    Args:
        ms_per_token: recent decode milliseconds per token, over all methods.
    """
    decoding = asking.params.max_new_tokens * len(asking.methods) * ms_per_token / 1000
    return min(math.ceil(_SECONDS_TO_START + _MARGIN * decoding), SECONDS_MOST)


def allowed_seconds(error: gr.Error, requested: int) -> int | None:
    """Return how many seconds the GPU service would allow, if it refused more; None if another request is of no use."""
    title, message = error.title or "", str(error.message)
    seconds_left = re.search(r"requested vs\. (\d+)s left", message)
    if "illegal duration" in title:
        allowed = _SECONDS_FOR_EVERY_ACCOUNT
    elif seconds_left:
        allowed = int(seconds_left[1])
    else:
        return None
    return allowed if _SECONDS_LEAST <= allowed < requested else None


def sentence_for(error: gr.Error) -> str:
    """Return one sentence for an error of the GPU service; its title identifies the case."""
    title, message = error.title or "", str(error.message)
    if "quota" in title or "credits" in title:
        wait = re.search(r"Try again in ([\d:]+)", message)
        return words.ZERO_QUOTA_WAIT.format(wait=wait[1]) if wait else words.ZERO_QUOTA
    if "illegal duration" in title:
        return words.ZERO_TOO_LONG
    return words.ZERO_ABORTED if "worker" in title else words.ZERO_BUSY
