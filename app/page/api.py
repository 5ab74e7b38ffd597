"""Named Gradio endpoints for programs: `generate`, `chat`, `race`, `trace` and `stop`; docs/api.md describes them.

They share the queue, the limits and the checks of the page.
"""

from collections.abc import Iterator

import gradio as gr

from app.asking import Asking, read_messages, read_method, read_params
from app.page import handlers
from app.serving.runs import Runs
from app.serving.worker import AnswerRun, ModelService, batches
from app.words import page as words
from app.words.errors import sentence_of
from jakiro.config import AUTOMATIC_TREE
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN, Methods
from jakiro.trace import Trace

UPDATE_SECONDS = 0.25
API_CHAT = "Answer a message of a chat; history holds the earlier messages, as Gradio's chats pass them."


def register(service: ModelService, runs: Runs) -> None:
    """Add the endpoints to the Blocks that are being built."""

    def generate(
        request: gr.Request, question: str, max_new_tokens: int = 96, temperature: float = 0.0, top_p: float = 1.0,
        top_k: int = 0, seed: int = 0, method: str = DEFAULT.name, system_prompt: str = "", history: list | None = None,
    ) -> dict:  # fmt: skip
        def asking() -> Asking:
            messages = read_messages(question, system_prompt, history)
            params = read_params(max_new_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
            return Asking(messages, params, AUTOMATIC_TREE, (read_method(method, service.methods),))

        for run, state, message in _answer(service, runs, request, asking):
            trace = next(iter(run.traces.values()), None)
            yield {"run": run.id, "state": state, "message": message, **_lane(trace, state)}

    def chat(request: gr.Request, message: str, history: list | None = None) -> str:
        def asking() -> Asking:
            messages, params = read_messages(message, "", history), read_params(service.usual_length)
            return Asking(messages, params, AUTOMATIC_TREE, (DEFAULT.name,))

        for run, _, _ in _answer(service, runs, request, asking):
            trace = next(iter(run.traces.values()), None)
            yield "" if trace is None else trace.text

    def race(
        request: gr.Request, question: str, max_new_tokens: int = 96, temperature: float = 0.0, top_p: float = 1.0,
        top_k: int = 0, seed: int = 0, methods: list | None = None, system_prompt: str = "",
        history: list | None = None,
    ) -> dict:  # fmt: skip
        def asking() -> Asking:
            messages = read_messages(question, system_prompt, history)
            params = read_params(max_new_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
            requested = [PLAIN.name, DEFAULT.name] if methods is None else methods
            return Asking(messages, params, AUTOMATIC_TREE, _methods(requested, service.methods))

        for run, state, message in _answer(service, runs, request, asking):
            # At first a lane under every requested name; later the lanes that run
            named = run.traces or (run.asking.methods if state == "done" else ())
            lanes = {method: _lane(run.traces.get(method), state) for method in named}
            yield {"run": run.id, "state": state, "message": message, "lanes": lanes}

    def trace(run_id: str) -> dict:
        try:
            return {method: trace.to_dict() for method, trace in runs.traces(str(run_id)).items()}
        except ValueError as error:
            raise gr.Error(str(error), print_exception=False) from error

    def stop(request: gr.Request) -> dict:
        return {"stopped": runs.stop(handlers.visitor_of(request).session)}

    shared = {"concurrency_limit": None, "concurrency_id": "answers"}
    gr.api(generate, api_name="generate", api_description=words.API_GENERATE, **shared)
    gr.api(chat, api_name="chat", api_description=API_CHAT, **shared)
    gr.api(race, api_name="race", api_description=words.API_RACE, **shared)
    gr.api(trace, api_name="trace", api_description=words.API_TRACE, queue=False)
    gr.api(stop, api_name="stop", api_description=words.API_STOP, queue=False)


def _answer(service: ModelService, runs: Runs, request: gr.Request, asking) -> Iterator[tuple[AnswerRun, str, str]]:
    """Yield (run, state, message) a few times a second; the state is "waiting", "answering" and last "done".

    Raises:
        gr.Error: one sentence about an invalid value, or an error while answering.
    """
    try:
        run = handlers.begin(service, runs, handlers.visitor_of(request), asking(), replace=False)
    except Exception as error:
        raise gr.Error(sentence_of(error), print_exception=False) from error
    message = ""
    try:
        for batch in batches(run.events, UPDATE_SECONDS):
            kind, _, payload = batch[-1]
            if kind == "error":
                raise gr.Error(payload, print_exception=False)
            waits = [sentence for event, _, sentence in batch if event == "wait"]
            state = "done" if kind == "done" else "answering" if run.traces else "waiting"
            message = (waits or [message])[-1] if state == "waiting" else ""
            not_run = [name for name in run.asking.methods if name not in run.traces]
            if state == "done" and run.traces and not_run:
                message = words.OTHERS_RAN.format(missing=", ".join(not_run), ran=", ".join(run.traces))
            yield run, state, message
    finally:
        run.stop()
        runs.drop_surplus()


def _methods(names, methods: Methods = METHODS) -> tuple[str, ...]:
    """Return the method names as they were sent, so that answers are returned under them.

    Raises:
        ValueError: the value is no list or empty, a name is unknown, or two names mean one method.
    """
    try:
        canonical = [methods.named(name).name for name in names]
        if not isinstance(names, list) or not canonical or len(set(canonical)) < len(canonical):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(words.UNKNOWN_METHODS.format(known=", ".join(methods))) from None
    return tuple(names)


def _lane(trace: Trace | None, state: str) -> dict:
    """Return the state of one method's answer so far; `jakiro.trace` defines the numbers."""
    if trace is None:
        nothing = dict.fromkeys(("tau", "delivered_tau", "tokens_per_second"))
        reason = "stopped" if state == "done" else None
        return {"text": "", "num_tokens": 0, "num_steps": 0, **nothing, "end_reason": reason}
    return {
        "text": trace.text,
        "num_tokens": len(trace.token_ids),
        "num_steps": len(trace.steps),
        "tau": trace.tau,
        "delivered_tau": trace.delivered_tau,
        "tokens_per_second": trace.tokens_per_second,
        "end_reason": trace.end_reason,
    }
