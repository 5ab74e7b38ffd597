"""One thread per answer: it waits for its turn, runs on the device and forwards events; models load in another thread.

Gradio resumes a generator on changing threads and starts the next one before the previous is closed. So each answer has
one thread here, which waits for its turn (see `turns.py`). `app/devices/base.py` defines devices.
"""

import contextvars
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from app.asking import Asking
from app.devices.base import LOADING, Device, keep
from app.serving.limits import Limits
from app.serving.packing import Packer
from app.serving.turns import Turns
from app.words import page as words
from app.words.errors import for_visitors, sentence_of, short_name, without_paths
from jakiro.bench.environment import weights_in_words
from jakiro.decode.prefix_cache import OwnPrefixes, PrefixStore
from jakiro.drafters.registry import METHODS, Methods
from jakiro.progress import FETCH, Cancelled, process_seconds
from jakiro.server.event_queue import EventQueue
from jakiro.trace import Trace

WAITING = "waiting"  # another model is loaded when the running answers are done

# Seconds that an answer waits for a reader who has left: if it uses that visitor's quota, no longer than a reload;
# and the seconds after which other waiting visitors get its place
RETURN_SECONDS, METERED_SECONDS, PATIENCE_SECONDS = 60.0, 6.0, 3.0

# Ends the stream of an answer that continues: its tab is hidden, and resumes it later
ASIDE = "aside"
_LAST = ("done", "error")

# Default length in tokens, and the longer one if the device needs at most `QUICK_MS` per token
USUAL_LENGTH, QUICK_LENGTH, QUICK_MS = 128, 256, 20.0


class ModelService:
    """Loads a device in a background thread and assigns each of its places to one answer at a time.

    Args:
        methods: available drafting methods.
    """

    def __init__(self, device: Device, limits: Limits | None = None, methods: Methods = METHODS) -> None:
        self.device, self.limits, self.methods = device, limits or Limits(), methods
        self.turns = Turns(self)
        # Prefix caches of visitors
        self.prefixes = PrefixStore(self.limits.prefix_megabytes * 2**20, 60 * self.limits.kept_minutes)
        self.start_id = uuid.uuid4().hex
        self.ready, self.closing = False, False
        self.failure: str | None = None
        # As `jakiro.progress` tells it: step, share, bytes of the whole
        self.stage: tuple[str, float | None, int | None] | None = None
        self._fetch: tuple[float, float] | None = None  # time of its first report, and that share
        self._cancelled = threading.Event()
        # The pair that runs, and the one that is on its way; whether visitors may choose
        self.pair, self.coming, self.choosable, self.trouble = "", "", False, None
        # Returns the size of a pair in words, by its name, if visitors can choose pairs
        self.size_of: Callable[[str], str] = lambda pair: ""
        self.size = ""
        # Since the process began, until the page answered and until the model was ready
        self.seconds: dict[str, float | None] = {"page": None, "ready": None}

    def start(self) -> None:
        self.stage, self.coming = (LOADING, None, None), self.pair
        threading.Thread(target=self._load_now, name="load-model", daemon=True).start()

    def _load_now(self) -> None:
        reason = self._tried(lambda: self.device.load(self._tell_stage), words.LOAD_FAILED)
        failure = reason and words.LOAD_FAILED.format(reason=reason)
        self.failure, self.stage, self.ready = failure, None, reason is None
        self.seconds["ready"] = process_seconds()
        self._go_on()

    def _tried(self, load: Callable[[], None], sentence: str, **about: str) -> str | None:
        """Return why loading failed, for visitors; stderr has the complete sentence. None if it worked."""
        self._cancelled.clear()
        try:
            load()
        except Cancelled:
            return words.FETCH_CANCELLED
        except Exception as error:  # noqa: BLE001 - any error while loading must become a sentence on the page
            reason = str(error) or type(error).__name__
            print(sentence.format(**about, reason=reason), file=sys.stderr)  # noqa: T201 - for the host
            return for_visitors(reason)
        return None

    def _go_on(self) -> None:
        """Continue with answers after loading."""
        self.size = self.size_of(self.pair)
        self.turns.wake()

    def swap(self, load: Callable[[], object], pair: str) -> bool:
        """Load another pair for all visitors after the running answers; new answers wait for it.

        If loading fails, the old pair stays and the chip has the reason.

        Returns:
            False while another pair is being loaded.
        """
        if self.stage is not None:
            return False
        self.stage, self.coming, self.trouble = (WAITING, None, None), pair, None
        threading.Thread(target=self._swap_now, args=(load, pair), name="swap-model", daemon=True).start()
        return True

    def _swap_now(self, load: Callable[[], object], pair: str) -> None:
        def swap() -> None:
            self.turns.wait_for(lambda: not self.turns.numbers()["running"], threading.TIMEOUT_MAX)
            self.prefixes.clear()
            self.device.swap(load, self._tell_stage)

        reason = self._tried(swap, words.SWAP_FAILED, pair=pair)
        if reason is None:
            self.pair, self.ready, self.failure = pair, True, None
        sentence = words.SWAP_FAILED if self.ready else words.LOAD_FAILED
        self.stage, self.trouble = None, reason and sentence.format(pair=pair, reason=reason)
        self._go_on()

    def cancel(self) -> bool:
        """Cancel a download and keep the bytes so far; return False if nothing is being downloaded."""
        if not _is_counted(self.stage):
            return False
        self._cancelled.set()
        return True

    def _tell_stage(self, stage: str, share: float | None, total_bytes: int | None = None) -> None:
        self.stage = (stage, share, total_bytes)
        if not _is_counted(self.stage):
            self._fetch = None
            return
        if self._cancelled.is_set():
            self._cancelled.clear()
            raise Cancelled
        self._fetch = self._fetch or (time.monotonic(), share)

    def _seconds_left(self, share: float | None) -> float | None:
        """Return the estimated seconds of the rest of a download; None if they are unknown."""
        began, first = self._fetch or (0.0, 0.0)
        if not began or share is None or share <= first:
            return None
        return (time.monotonic() - began) * (1 - share) / (share - first)

    @property
    def settled(self) -> bool:
        """Return whether loading and measuring have ended, successfully or not."""
        return self.ready or self.failure is not None

    @property
    def can_answer(self) -> bool:
        """Return whether a model is loaded and no other one is being loaded."""
        return self.ready and self.stage is None

    @property
    def refusal(self) -> str | None:
        """Return why no answer will be possible again; None while answers are possible."""
        return words.SERVER_ENDING if self.closing else self.failure if self.stage is None else None

    def chip(self) -> dict:
        """Return the state and text of the status chip."""
        if self.stage is not None or not (self.ready or self.failure):
            stage = self.stage or (LOADING, None, None)
            text = stage_words(*stage, self._seconds_left(stage[1]))
            coming = {"coming": self.coming, "cancellable": _is_counted(stage)}
            return {"state": "loading", "text": text, "title": ""} | coming
        if self.failure:
            return {"state": "failed", "text": words.CHIP_FAILED, "title": self.trouble or self.failure}
        status = self.device.status
        target, head = (status[name] and short_name(str(status[name])) for name in ("target", "head"))
        place = {"target": target, "device": str(status["device"]).upper()}
        text = words.CHIP_READY.format(**place, numerics=status["numerics"])
        # Compiled passes are always exact
        fast = None if status.get("compiled") else words.CHIP_READY.format(**place, numerics="fast")
        title = f"{words.CHIP_READY_TITLE} · {head or words.NO_HEAD} · {weights_in_words(status)}"
        notices = [*status.get("notices", ()), *(() if status["bit_identical"] else (words.ROUNDING,))]
        return {
            "state": "ready", "text": text, "fast": fast, "title": title,
            "notice": without_paths(" ".join(notices)), "recommended": status.get("makers_settings") or {},
            "pair": self.pair,
            "size": self.size, "choosable": self.choosable, "target": target, "dtype": status["dtype"],
            "trouble": self.trouble or "",
            "numerics": status["numerics"], "length": self.usual_length,
            "context": self.limits.max_prompt_tokens,
        }  # fmt: skip

    @property
    def usual_length(self) -> int:
        """Initial length in the form, longer for a target with fast passes over one token."""
        one_token = dict((self.device.costs or {}).get("verify_ms", ())).get(1)
        length = QUICK_LENGTH if one_token is not None and one_token <= QUICK_MS else USUAL_LENGTH
        return min(length, self.limits.max_new_tokens)


def _is_counted(stage: tuple[str, float | None, int | None] | None) -> bool:
    """Return whether a counted download is in progress, which can be cancelled."""
    return stage is not None and stage[0] == FETCH and stage[2] is not None


def stage_words(stage: str, share: float | None, total_bytes: int | None, seconds_left: float | None) -> str:
    """Return the chip's text while a model is being loaded."""
    if total_bytes is not None:
        text = words.CHIP_FETCHED.format(done=share * total_bytes / 1e6, total=total_bytes / 1e6)
        return text if seconds_left is None else words.CHIP_LEFT.format(text=text, seconds=round(seconds_left))
    text = words.CHIP_STEPS.get(stage, words.CHIP_WAITING if stage == WAITING else words.CHIP_LOADING)
    return text if share is None else words.CHIP_SHARE.format(text=text, percent=int(100 * share))


class Stoppable:
    """Work in its own thread that ends soon after a request to stop, once, with the first reason.

    Args:
        name: kind of work.
        run_id: id of this work; a new one by default.
    """

    def __init__(self, service: ModelService, name: str, run_id: str | None = None) -> None:
        self._service, self.id = service, run_id or uuid.uuid4().hex
        self._halt, self._reason = threading.Event(), None
        # In the visitor's context, where ZeroGPU looks up the quota
        work = contextvars.copy_context().run
        self._thread = threading.Thread(target=work, args=(self._work,), name=f"{name}-{self.id[:8]}", daemon=True)

    def stop(self, reason: str | None = None) -> None:
        """Request the thread to end after its current step; results so far stay.

        Args:
            reason: a sentence for the reader, unless the visitor stopped it.
        """
        if not self._halt.is_set():
            self._reason = reason
            self._halt.set()
            self._service.turns.wake()


class AnswerRun(Stoppable):
    """One answer in its own thread: events wait in `events`, traces grow in `traces`, `ticks` has been sent.

    In addition to the device's events there are ("wait", None, sentence), and ("error", None, sentence) or ("done",
    None, None) as the last event.

    Args:
        events: queue of events; a new one by default.

    Attributes:
        failure: the exception behind an "error" event, if it was no stop.
    """

    def __init__(
        self,
        service: ModelService,
        asking: Asking,
        group: str = "",
        prefixes: OwnPrefixes | None = None,
        run_id: str | None = None,
        events: queue.SimpleQueue | EventQueue | None = None,
    ) -> None:
        super().__init__(service, "answer", run_id)
        self.events = queue.SimpleQueue() if events is None else events
        self.failure: Exception | None = None
        self.traces: dict[str, Trace] = {}
        self.num_nodes = 0
        self.ticks: list[str] = []
        self.packer = Packer()
        self.finished = threading.Event()
        self._entrance, self._readers, self._left = threading.Lock(), 0, None
        self._latest, self._aside = 0, False
        self.asking, self._prefixes, self._asked = asking, prefixes, time.monotonic()
        self._turn = service.turns.take(
            self._halt, lambda sentence: self.events.put(("wait", None, sentence)), group, self.look_for_reader
        )

    @contextmanager
    def reading(self) -> Iterator[int]:
        """Mark the answer as read; after the last reader it continues for a while unless others wait for its place.

        Yields the reader's number, which an `ASIDE` event contains.
        """
        with self._entrance:
            self._readers += 1
            self._latest += 1
            self._aside, number = False, self._latest
        try:
            yield number
        finally:
            with self._entrance:
                self._readers -= 1
                self._left = time.monotonic()

    def put_aside(self) -> bool:
        """End the stream of the latest reader, who will return; return whether there was a reader."""
        with self._entrance:
            if self._readers and not self._aside:
                self._aside = True
                self.events.put((ASIDE, None, self._latest))
            return self._aside

    def leave(self) -> None:
        """Note that the reader who put it aside will not return."""
        with self._entrance:
            if self._aside:
                self._aside, self._left = False, time.monotonic()

    @property
    def seconds_alone(self) -> float:
        """Return the seconds without a reader; 0 while it is read or put aside."""
        with self._entrance:
            return 0.0 if self._readers or self._aside or self._left is None else time.monotonic() - self._left

    def look_for_reader(self, is_wanted: bool) -> None:
        """Stop the answer if its reader does not return.

        Args:
            is_wanted: whether another visitor waits for its place.
        """
        patience = METERED_SECONDS if self._service.device.metered else RETURN_SECONDS
        if self.seconds_alone > (PATIENCE_SECONDS if is_wanted else patience):
            self._halt.set()

    def start(self) -> None:
        """Start the thread.

        Raises:
            RuntimeError: the system cannot start another thread; the place in the queue is free again.
        """
        try:
            self._thread.start()
        except RuntimeError:
            self._turn.leave()
            self.finished.set()
            raise

    def _work(self) -> None:
        last = ("done", None, None)
        try:
            with self._turn as device:
                if device is not None:
                    self._read(device)
            if self._reason:
                last = ("error", None, self._reason)
        except Exception as error:  # noqa: BLE001 - a thread has no caller; the page shows a sentence
            self.failure, last = error, ("error", None, sentence_of(error))
        finally:
            self.finished.set()
            self.events.put(last)

    def _read(self, device: Device) -> None:
        queue_ms = 1000 * (time.monotonic() - self._asked)
        for event in device.answer(self.asking, self._halt, self._prefixes):
            self.look_for_reader(is_wanted=False)
            if event[0] == "header":
                event = (*event[:2], replace(event[2], queue_ms=queue_ms))
            keep(event, self.traces)
            if event[0] == "step":
                self.num_nodes += len(event[2].nodes)
            self.events.put(event)


def batches(events: queue.SimpleQueue, seconds: float) -> Iterator[list]:
    """Yield events in batches up to the last event: without delay, but at most once in `seconds`."""
    free = time.monotonic()
    while True:
        batch = [events.get()]
        while batch[-1][0] not in (*_LAST, ASIDE):
            try:
                batch.append(events.get(timeout=max(0.0, free - time.monotonic())))
            except queue.Empty:
                break
        free = time.monotonic() + seconds
        yield batch
        if batch[-1][0] in _LAST:
            return
