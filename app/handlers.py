"""What happens when a visitor asks, stops or leaves: library events become small updates for the browser's view.

An update carries the last few ticks, keyed by number, so that a late browser repairs a lost one; the browser keeps the
history. Questions and answers are never logged.
"""

import uuid
from collections.abc import Iterator

import gradio as gr

from app.asking import Asking, read_asking
from app.packing import pack_header, pack_step, to_json
from app.runs import Runs, Visitor
from app.sentences import sentence_of
from app.worker import ModelService, Run, batches

UPDATE_SECONDS = 0.085
KEPT_TICKS = 8


def begin(service: ModelService, runs: Runs, visitor: Visitor, asking: Asking, replace: bool = True) -> Run:
    """Checks the limits, takes a place in the queue and starts the answer.

    Args:
        replace: whether the visitor's older unfinished answer makes room; otherwise it keeps its place.

    Raises:
        ValueError: one sentence about the limit that does not allow it.
    """
    asking = service.limits.check(asking)
    runs.admit(visitor, replace)
    run = Run(service, asking, group=visitor.address)
    runs.add(visitor, run)
    run.start()
    return run


def generate(service: ModelService, runs: Runs, visitor: Visitor, values: tuple) -> Iterator[dict]:
    """Answers one question: yields the view's value at most twelve times a second, at last with text and end.

    A value that does not fit, or an error while answering, becomes `{"run": …, "error": sentence}`.
    """
    try:
        run = begin(service, runs, visitor, read_asking(*values))
    except Exception as error:  # noqa: BLE001 - programs may send anything; each gets a sentence
        yield {"run": uuid.uuid4().hex, "error": sentence_of(error)}
        return
    try:
        yield from _updates(run)
    finally:
        run.stop()
        runs.drop_surplus()


def visitor_of(request: gr.Request) -> Visitor:
    """The tab or program behind a request, and its network address, or its user name where there are logins."""
    address = request.username or (request.client.host if request.client else "")
    return Visitor(str(request.session_hash or address), str(address))


def _updates(run: Run) -> Iterator[dict]:
    ticks: dict[str, str] = {}
    for number, batch in enumerate(batches(run.events, UPDATE_SECONDS)):
        ticks[str(number)] = to_json([_pack(event) for event in batch])
        ticks.pop(str(number - KEPT_TICKS), None)
        value = {"run": run.id, "ticks": dict(ticks)}
        kind, _, payload = batch[-1]
        if kind == "error":
            value["error"] = payload
        if kind == "done":
            value["answers"] = {
                method: {"text": trace.text, "end_reason": trace.end_reason or "stopped"}
                for method, trace in run.traces.items()
            }
        yield value


def _pack(event: tuple) -> list:
    kind, method, payload = event
    if kind == "step":
        return [kind, method, pack_step(payload)]
    if kind == "header":
        return [kind, method, pack_header(payload)]
    return [kind, method, payload]


def trace_of(runs: Runs, run_id: str) -> dict:
    """The full traces of one answer by method, as `Trace.to_dict` writes them.

    Raises:
        gr.Error: the answer is not kept.
    """
    try:
        traces = runs.traces(str(run_id))
    except ValueError as error:
        raise gr.Error(str(error), print_exception=False) from error
    return {method: trace.to_dict() for method, trace in traces.items()}
