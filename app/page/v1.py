"""The OpenAI-compatible API of the page: its answers wait in the page's queue and have the page's limits."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.routing import Mount

from app.asking import Asking
from app.page import handlers
from app.serving.pace import Busy
from app.serving.runs import Runs, Visitor
from app.serving.worker import ModelService
from app.words import page as words
from app.words.errors import sentence_of
from jakiro.config import AUTOMATIC_TREE
from jakiro.drafters.registry import DEFAULT, Methods
from jakiro.server.application import Caller, application
from jakiro.server.errors import Refusal, prompt_error
from jakiro.server.event_queue import Event, EventQueue
from jakiro.server.request import CompletionRequest

AT = "/v1"
# A load takes several seconds
_LOADING_SECONDS = 5


class PageBackend:
    """Backend of the page, see `jakiro.server.application.Backend`."""

    def __init__(self, service: ModelService, runs: Runs) -> None:
        self._service, self._runs, self.default_tokens = service, runs, service.limits.max_new_tokens

    @property
    def model(self) -> str:
        service = self._service
        if service.device.metered:
            raise Refusal(403, words.V1_NOT_ON_ZERO_GPU)
        if service.refusal:
            raise Refusal(503, service.refusal)
        if not service.can_answer:
            raise Refusal(503, words.V1_LOADING, seconds=_LOADING_SECONDS)
        return Path(service.device.status["target"]).name

    @property
    def methods(self) -> Methods:
        return self._service.methods

    async def answer(self, request: CompletionRequest, caller: Caller) -> AsyncIterator[Event]:
        service, events = self._service, EventQueue()
        # Each answer is a visitor of its own: a program may send several requests at once, and all wait in one queue
        visitor = Visitor(uuid.uuid4().hex, caller.key or caller.address, stays=False)
        cache_key = (caller.key, request.body.prompt_cache_key)
        prefixes = service.prefixes.of(cache_key) if caller.key else None
        try:
            asking = _asking(request)
            run = handlers.begin(service, self._runs, visitor, asking, False, prefixes=prefixes, events=events)
        except Busy as error:
            raise Refusal(429, str(error), code="rate_limit_exceeded", seconds=error.seconds) from error
        except ValueError as error:
            raise prompt_error(sentence_of(error), request) from error
        try:
            async for event in events:
                if event[0] == "error":
                    if isinstance(run.failure, ValueError) and not service.refusal:
                        raise prompt_error(event[2], request)
                    raise Refusal(503 if service.refusal else 500, event[2])
                if event[0] not in ("wait", "done"):
                    yield event
        finally:
            run.stop()
            self._runs.forget(run.id)


def _asking(request: CompletionRequest) -> Asking:
    """Return a request in the page's terms."""
    return Asking(
        ({"role": "user", "content": request.prompt},) if request.raw else request.prompt,
        request.sampling,
        AUTOMATIC_TREE,
        (request.method or DEFAULT.name,),
        raw=request.raw,
        template_arguments=request.body.chat_template_kwargs,
        answer_prefix_ids=tuple(request.extension.answer_prefix_ids),
        prediction=request.prediction,
        echo=request.body.echo,
        generates=request.generates,
    )


def mounted(service: ModelService, runs: Runs, keys: tuple[str, ...], has_logins: bool) -> Mount:
    """Return the API, mounted at /v1.

    Args:
        service: the page's model.
        runs: the page's answers.
        keys: see `application`.
        has_logins: whether the page requires a login; then the API requires a key.
    """
    closed = words.V1_CLOSED if has_logins and not keys else None
    interface = application(PageBackend(service, runs), keys, closed, service.limits.max_request_kilobytes * 1024)

    async def serve(scope, receive, send) -> None:
        # A proxy may have removed the root path, and then Starlette would find no route below a mount
        if not scope["path"].startswith(scope["root_path"]):
            scope = scope | {"root_path": AT}
        await interface(scope, receive, send)

    return Mount(AT, serve)
