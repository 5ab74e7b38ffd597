"""Handlers of the page's events (ask, stop, resume, leave): library events become small updates for the view.

An update has the last few ticks by number, so that a slow browser can replace a lost one; it requests any other tick
that it missed. The browser keeps the history. Questions and answers are never logged.
"""

import re
import uuid
from collections.abc import Iterator

import gradio as gr

from app.asking import Asking, read_asking
from app.page.offered import offered_methods
from app.serving.packing import to_json
from app.serving.runs import Runs, Visitor
from app.serving.worker import ASIDE, AnswerRun, ModelService, batches
from app.words import page as words
from app.words.errors import sentence_of
from jakiro.config import shortened
from jakiro.decode.prefix_cache import OwnPrefixes
from jakiro.drafters.registry import PLAIN
from jakiro.server.event_queue import EventQueue

UPDATE_SECONDS = 0.085
# Where the model computes on a processor, server and browser mostly run on the same one: fewer updates, quicker answers
UPDATE_SECONDS_BESIDE_MODEL = 0.24
# Gradio's page copies the whole value and compares it as text a few times with each update
KEPT_TICKS = 3
_RUN_ID = re.compile("[0-9a-f]{32}")


def begin(
    service: ModelService, runs: Runs, visitor: Visitor, asking: Asking, replace: bool = True,
    run_id: str | None = None, prefixes: OwnPrefixes | None = None, events: EventQueue | None = None,
) -> AnswerRun:  # fmt: skip
    """Check the limits, take a place in the queue and start the answer.

    Args:
        replace: stop the visitor's older unfinished answer; otherwise the new one is rejected.
        run_id: id of the new answer. A page chooses it, so that it can match updates with questions.
        prefixes: prefix cache; the visitor's own by default.
        events: see `AnswerRun`.

    Raises:
        ValueError: a limit is exceeded, or the id is invalid or in use.
    """
    if run_id and (not _RUN_ID.fullmatch(run_id) or runs.find(run_id)):
        raise ValueError(words.BAD_RUN_ID)
    asking = service.limits.check(asking)
    with runs.entrance:
        runs.admit(visitor, replace, asking.num_answers)
        prefixes = prefixes or prefixes_of(service, visitor)
        run = AnswerRun(service, asking, visitor.address, prefixes, run_id, events)
        runs.add(visitor, run)
    run.start()
    return run


def generate(service: ModelService, runs: Runs, visitor: Visitor, values: dict) -> Iterator[dict]:
    """Answer one question: yield the view's value, at most twelve times a second.

    An invalid value, or an error while answering, becomes `{"run": …, "error": sentence}`.

    Args:
        values: arguments of `read_asking` by name, and `run_id`, the id of the answer.
    """
    run_id = str(values.pop("run_id", None) or uuid.uuid4().hex)
    try:
        run = begin(service, runs, visitor, read_asking(**values, methods=service.methods), run_id=run_id)
    except Exception as error:  # noqa: BLE001 - programs may send anything; each gets a sentence
        yield {"run": run_id, "error": sentence_of(error)}
        return
    yield from _read(service, runs, run)


def resume(service: ModelService, runs: Runs, visitor: Visitor, run_id: str) -> Iterator[dict]:
    """Continue an answer whose connection broke or whose page was reloaded, from its first tick.

    If the server no longer keeps it, yield `{"run": …, "gone": true}`.
    """
    run = runs.take_over(str(run_id), visitor)
    if run is None:
        yield {"run": str(run_id), "gone": True}
        return
    yield {"run": run.id, "ticks": {str(number): tick for number, tick in enumerate(run.ticks)}}
    yield from _read(service, runs, run)


def _read(service: ModelService, runs: Runs, run: AnswerRun) -> Iterator[dict]:
    try:
        with run.reading() as reader:
            yield from _updates(run, update_seconds(service), reader)
    finally:
        runs.drop_surplus()


def prefixes_of(service: ModelService, visitor: Visitor) -> OwnPrefixes | None:
    """Return the visitor's prefix cache; None for programs without a session or that ask only once."""
    has_prefixes = service.limits.prefix_megabytes and visitor.stays and visitor.session != visitor.address
    return service.prefixes.of(visitor) if has_prefixes else None


def visitor_of(request: gr.Request) -> Visitor:
    """Return the tab or program that sent a request, with its network address, or its user name if there are logins."""
    address = request.username or (request.client.host if request.client else "")
    # A request by Gradio's simple route is one question, and its session ends without notice
    stays = "/gradio_api/call/" not in request.url.path
    return Visitor(str(request.session_hash or address), str(address), stays)


def put_aside(runs: Runs, run_id: str) -> bool:
    """End the stream of an answer that continues, for a hidden tab; return False if no tab reads it."""
    run = runs.find(str(run_id))
    return run is not None and run.put_aside()


def forget(service: ModelService, runs: Runs, run_id: str) -> None:
    """Drop the prefix cache of a visitor after leaving, and later the answers."""
    visitor = runs.visitor(run_id)
    if visitor is not None:
        runs.leave(visitor.session)
        service.prefixes.drop(visitor)


def update_seconds(service: ModelService) -> float:
    """Return the minimum time between two updates of an answer."""
    beside_model = service.ready and service.device.status["device"] == "cpu"
    return UPDATE_SECONDS_BESIDE_MODEL if beside_model else UPDATE_SECONDS


def _updates(run: AnswerRun, seconds: float, reader: int) -> Iterator[dict]:
    """Yield the view's values: the last ticks by number. The last value has one tick, since Gradio sends it twice."""
    for batch in batches(run.events, seconds):
        events = [event for event in batch if event[0] != ASIDE]
        if events:
            yield _update(run, events)
        if batch[-1] == (ASIDE, None, reader):
            return


def _update(run: AnswerRun, events: list[tuple]) -> dict:
    number = len(run.ticks)
    run.ticks.append(to_json([run.packer.pack(event) for event in events]))
    kind, _, payload = events[-1]
    num_ticks = 1 if kind in ("done", "error") else KEPT_TICKS
    if num_ticks == 1:
        run.events.put(events[-1])  # for a visitor who reconnects
    first = max(0, number + 1 - num_ticks)
    value = {"run": run.id, "ticks": {str(first + i): tick for i, tick in enumerate(run.ticks[first:])}}
    return value | {"error": payload} if kind == "error" else value


def missed_ticks(runs: Runs, run_id: str, first: int) -> list[str] | None:
    """Return all ticks of an answer from number `first`, for a browser that missed some; None for an unknown answer."""
    run = runs.find(str(run_id))
    is_index = isinstance(first, int) and not isinstance(first, bool) and first >= 0
    return None if run is None or not is_index else run.ticks[first:]


def data_of(event: gr.EventData) -> dict:
    """Return the data of a view's event, with dashes in names replaced; nothing for any other data."""
    data = event._data
    return {name.replace("-", "_"): value for name, value in data.items()} if isinstance(data, dict) else {}


def stop(runs: Runs, run_id: str) -> bool:
    """Stop an answer; return whether it is still kept."""
    run = runs.find(str(run_id))
    if run is not None:
        run.stop()
    return run is not None


def trouble(service: ModelService, values: dict) -> str | None:
    """Return why the form's values would be rejected, or None if they are valid.

    Args:
        values: the form's values by field, as the page or a link fills it in.
    """
    try:
        fields = {"history": []} | {name.replace("-", "_"): value for name, value in values.items()}
        asking = service.limits.check(read_asking(**fields, methods=service.methods))
        names = [method.name for method in offered_methods(service.methods)]
        for name in asking.methods:
            if name not in names and name != PLAIN.name:
                raise ValueError(words.UNKNOWN_METHOD.format(known=", ".join(names), value=shortened(name)))
    except Exception as error:  # noqa: BLE001 - a link may hold any value; each error becomes a sentence
        return sentence_of(error)
    return None
