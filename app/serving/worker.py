"""One thread per answer: it waits for its turn, runs on the device and hands its events on; models load beside it.

Gradio resumes a generator on changing threads and starts the next one before the last is closed. So each answer has one
thread of its own here, which waits for its turn (see `turns.py`). `app/devices/base.py` says what a device is.
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

# How long an answer waits for a reader who has gone, where it costs that visitor's quota no longer than a reload takes;
# and after how long others who wait get its place
RETURN_SECONDS, METERED_SECONDS, PATIENCE_SECONDS = 60.0, 6.0, 3.0

# What ends the reading of an answer that goes on: its tab is hidden, and takes it up again when it is seen
ASIDE = "aside"
_LAST = ("done", "error")

# Tokens an answer has where nobody says otherwise, and where a device writes one within `QUICK_MS`
USUAL_LENGTH, QUICK_LENGTH, QUICK_MS = 128, 256, 20.0


class ModelService:
    """Loads a device in a background thread and gives each of its places to one answer at a time.

    Args:
        methods: the drafting methods that there are, of which visitors choose.
    """

    def __init__(self, device: Device, limits: Limits | None = None, methods: Methods = METHODS) -> None:
        self.device, self.limits, self.methods = device, limits or Limits(), methods
        self.turns = Turns(self)
        # What each visitor's answers have read
        self.prefixes = PrefixStore(self.limits.prefix_megabytes * 2**20, 60 * self.limits.kept_minutes)
        self.start_id = uuid.uuid4().hex
        self.ready, self.closing = False, False
        self.failure: str | None = None
        # As `jakiro.progress` tells it: step, share, bytes of the whole
        self.stage: tuple[str, float | None, int | None] | None = None
        self._fetch: tuple[float, float] | None = None  # when its first share was told, and that share
        self._cancelled = threading.Event()
        # The pair that runs, and the one that is on its way; whether visitors may choose
        self.pair, self.coming, self.choosable, self.trouble = "", "", False, None
        # What loading a pair reads and takes, by its name, where there are pairs to choose from
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
        """Why loading failed, as visitors may read it; the whole sentence goes to stderr. None if it worked."""
        self._cancelled.clear()
        try:
            load()
        except Cancelled:
            return words.FETCH_CANCELLED
        except Exception as error:  # noqa: BLE001 - whatever stops loading must reach the page as a sentence
            reason = str(error) or type(error).__name__
            print(sentence.format(**about, reason=reason), file=sys.stderr)  # noqa: T201 - for who runs the page
            return for_visitors(reason)
        return None

    def _go_on(self) -> None:
        """Answers go on after loading."""
        self.size = self.size_of(self.pair)
        self.turns.wake()

    def swap(self, load: Callable[[], object], pair: str) -> bool:
        """Loads another pair for everybody once the running answers are done; new answers wait for it.

        If it cannot be loaded the old pair stays, and the chip says why.

        Returns:
            False while a pair is being loaded already.
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
        """Ends a download; what came is kept. False where nothing is being downloaded."""
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
        """How long the rest of a download takes at its speed so far; None where nothing says it yet."""
        began, first = self._fetch or (0.0, 0.0)
        if not began or share is None or share <= first:
            return None
        return (time.monotonic() - began) * (1 - share) / (share - first)

    @property
    def settled(self) -> bool:
        """Whether loading and measuring are over, well or badly."""
        return self.ready or self.failure is not None

    @property
    def can_answer(self) -> bool:
        """Whether a model is here and no other one is on its way."""
        return self.ready and self.stage is None

    @property
    def refusal(self) -> str | None:
        """Why no answer can be given any more, as a sentence; None while it can."""
        return words.SERVER_ENDING if self.closing else self.failure if self.stage is None else None

    def chip(self) -> dict:
        """What the status chip says: its state and its words."""
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
        # Compiled passes are exact whatever is asked
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
        """The length that the form opens with: longer where the target's pass over one token is quick."""
        one_token = dict((self.device.costs or {}).get("verify_ms", ())).get(1)
        length = QUICK_LENGTH if one_token is not None and one_token <= QUICK_MS else USUAL_LENGTH
        return min(length, self.limits.max_new_tokens)


def _is_counted(stage: tuple[str, float | None, int | None] | None) -> bool:
    """Whether bytes are on their way and counted, so that what is left can be told, and given up."""
    return stage is not None and stage[0] == FETCH and stage[2] is not None


def stage_words(stage: str, share: float | None, total_bytes: int | None, seconds_left: float | None) -> str:
    """What the chip says while a model is on its way."""
    if total_bytes is not None:
        text = words.CHIP_FETCHED.format(done=share * total_bytes / 1e6, total=total_bytes / 1e6)
        return text if seconds_left is None else words.CHIP_LEFT.format(text=text, seconds=round(seconds_left))
    text = words.CHIP_STEPS.get(stage, words.CHIP_WAITING if stage == WAITING else words.CHIP_LOADING)
    return text if share is None else words.CHIP_SHARE.format(text=text, percent=int(100 * share))


class Stoppable:
    """Work in a thread of its own that ends soon after it is asked to, once, with the first reason given.

    Args:
        name: of the kind of work. run_id: a new one if not given.
    """

    def __init__(self, service: ModelService, name: str, run_id: str | None = None) -> None:
        self._service, self.id = service, run_id or uuid.uuid4().hex
        self._halt, self._reason = threading.Event(), None
        # In the visitor's context, where a lender of GPUs looks up whose quota counts
        work = contextvars.copy_context().run
        self._thread = threading.Thread(target=work, args=(self._work,), name=f"{name}-{self.id[:8]}", daemon=True)

    def stop(self, reason: str | None = None) -> None:
        """Asks the thread to end after its present step; what was made stays.

        Args:
            reason: a sentence for the reader where the stop is not the visitor's own wish.
        """
        if not self._halt.is_set():
            self._reason = reason
            self._halt.set()
            self._service.turns.wake()


class AnswerRun(Stoppable):
    """One answer being made in its own thread: events wait in `events`, traces grow in `traces`, `ticks` has been sent.

    Beside the device's events there are ("wait", None, sentence), and ("error", None, sentence) or ("done", None, None)
    as the last one.

    Args:
        events: where they go; a queue of its own if not given.

    Attributes:
        failure: what the sentence of an "error" is about, where it is no stop.
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
        """Somebody reads the events; once nobody does, it goes on for a while unless others wait for its place.

        Yields the reader's number, which an `ASIDE` among the events names.
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
        """Ends its latest reader, who comes back for it; whether it is aside now, which takes a reader."""
        with self._entrance:
            if self._readers and not self._aside:
                self._aside = True
                self.events.put((ASIDE, None, self._latest))
            return self._aside

    def leave(self) -> None:
        """Nobody comes back who had put it aside."""
        with self._entrance:
            if self._aside:
                self._aside, self._left = False, time.monotonic()

    @property
    def seconds_alone(self) -> float:
        """How long nobody has read it; 0 while somebody does, or has put it aside."""
        with self._entrance:
            return 0.0 if self._readers or self._aside or self._left is None else time.monotonic() - self._left

    def look_for_reader(self, wanted: bool) -> None:
        """Stops it where its reader stays away.

        Args:
            wanted: whether somebody waits for its place.
        """
        patience = METERED_SECONDS if self._service.device.metered else RETURN_SECONDS
        if self.seconds_alone > (PATIENCE_SECONDS if wanted else patience):
            self._halt.set()

    def start(self) -> None:
        """Starts the thread.

        Raises:
            RuntimeError: the system gives no further thread; the place in the queue is free again.
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
            self.look_for_reader(wanted=False)
            if event[0] == "header":
                event = (*event[:2], replace(event[2], queue_ms=queue_ms))
            keep(event, self.traces)
            if event[0] == "step":
                self.num_nodes += len(event[2].nodes)
            self.events.put(event)


def batches(events: queue.SimpleQueue, seconds: float) -> Iterator[list]:
    """Events in batches until the last one has been given: at once, but at most every `seconds`."""
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
