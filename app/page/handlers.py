"""What happens when a visitor asks, stops or leaves: library events become small updates for the browser's view.

An update carries the last few ticks by number, so that a slow browser can make up for a lost one; it asks for any other
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
    """Checks the limits, takes a place in the queue and starts the answer.

    Args:
        replace: whether the visitor's older unfinished answer makes room; otherwise it keeps its place.
        run_id: the new answer's; a page chooses it, and so knows which question an answer belongs to.
        prefixes: where they are others than the visitor's own. events: see `AnswerRun`.

    Raises:
        ValueError: one sentence about the limit that does not allow it, or the id.
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
    """Answers one question: yields the view's value, at most twelve times a second.

    A value that does not fit, or an error while answering, becomes `{"run": …, "error": sentence}`.

    Args:
        values: the form's, by name, see `read_asking`, and under `run_id` the answer's own.
    """
    run_id = str(values.pop("run_id", None) or uuid.uuid4().hex)
    try:
        run = begin(service, runs, visitor, read_asking(**values, known=service.methods), run_id=run_id)
    except Exception as error:  # noqa: BLE001 - programs may send anything; each gets a sentence
        yield {"run": run_id, "error": sentence_of(error)}
        return
    yield from _read(service, runs, run)


def resume(service: ModelService, runs: Runs, visitor: Visitor, run_id: str) -> Iterator[dict]:
    """Goes on with an answer whose connection broke, or whose page was loaded anew: first what there is.

    Where it is not kept any more, `{"run": …, "gone": true}`.
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
    """What this visitor's earlier answers have read; None for programs without a session or that ask once."""
    own = service.limits.prefix_megabytes and visitor.stays and visitor.session != visitor.address
    return service.prefixes.of(visitor) if own else None


def visitor_of(request: gr.Request) -> Visitor:
    """The tab or program that sent a request, and its network address, or its user name where there are logins."""
    address = request.username or (request.client.host if request.client else "")
    # What comes by Gradio's simple route is one question, whose session ends unheard
    stays = "/gradio_api/call/" not in request.url.path
    return Visitor(str(request.session_hash or address), str(address), stays)


def put_aside(runs: Runs, run_id: str) -> bool:
    """Ends the stream of an answer that goes on, as hidden tabs want it; False where nobody reads it."""
    run = runs.find(str(run_id))
    return run is not None and run.put_aside()


def forget(service: ModelService, runs: Runs, run_id: str) -> None:
    """The visitor has left: drops the prompt cache, and after a while the answers."""
    visitor = runs.visitor(run_id)
    if visitor is not None:
        runs.leave(visitor.session)
        service.prefixes.drop(visitor)


def update_seconds(service: ModelService) -> float:
    """The shortest time between two updates of an answer."""
    beside_model = service.ready and service.device.status["device"] == "cpu"
    return UPDATE_SECONDS_BESIDE_MODEL if beside_model else UPDATE_SECONDS


def _updates(run: AnswerRun, seconds: float, reader: int) -> Iterator[dict]:
    """The view's values: the last ticks by number; the last value, which Gradio sends twice, has one tick."""
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
    kept = 1 if kind in ("done", "error") else KEPT_TICKS
    if kept == 1:
        run.events.put(events[-1])  # for a reader who comes back
    first = max(0, number + 1 - kept)
    value = {"run": run.id, "ticks": {str(first + i): tick for i, tick in enumerate(run.ticks[first:])}}
    return value | {"error": payload} if kind == "error" else value


def missed_ticks(runs: Runs, run_id: str, first: int) -> list[str] | None:
    """All ticks of an answer from number `first` on, for a browser that was too busy; None for an unknown answer."""
    run = runs.find(str(run_id))
    whole = isinstance(first, int) and not isinstance(first, bool) and first >= 0
    return None if run is None or not whole else run.ticks[first:]


def link_trouble(service: ModelService, values: dict) -> str | None:
    """One sentence on what asking a link's question would be refused for; None where nothing stands against it.

    Args:
        values: the form's as the link fills it, by field.
    """
    try:
        asked = {name.replace("-", "_"): value for name, value in values.items()}
        asking = service.limits.check(read_asking(**asked, history=[], known=service.methods))
        known = [method.name for method in offered_methods(service.methods)]
        for name in asking.methods:
            if name not in known and name != PLAIN.name:
                raise ValueError(words.UNKNOWN_METHOD.format(known=", ".join(known), came=shortened(name)))
    except Exception as error:  # noqa: BLE001 - a link may hold anything; each gets a sentence
        return sentence_of(error)
    return None
