"""OpenAI's interface on the page's own device: its answers wait in the page's queue and keep to its limits."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.routing import Mount

from app.asking import Asking, read_method
from app.page import handlers
from app.serving.pace import Busy
from app.serving.runs import Runs, Visitor
from app.serving.worker import ModelService
from app.words import page as words
from app.words.errors import sentence_of
from jakiro.config import AUTOMATIC_TREE
from jakiro.drafters.registry import DEFAULT
from jakiro.server.application import Caller, application
from jakiro.server.errors import Refusal
from jakiro.server.event_queue import Arriving, Event
from jakiro.server.request import Wish

AT = "/v1"
# Loading takes some seconds
_LOADING_SECONDS = 5


class PageBackend:
    """What answers under the page's address, see `jakiro.server.application.Backend`."""

    def __init__(self, service: ModelService, runs: Runs) -> None:
        self._service, self._runs, self.most_tokens = service, runs, service.limits.max_new_tokens

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

    async def answer(self, wish: Wish, caller: Caller) -> AsyncIterator[Event]:
        service, events = self._service, Arriving()
        # Each request is a visitor: many programs ask for several answers at once, and all wait in the one queue
        visitor = Visitor(uuid.uuid4().hex, caller.key or caller.address, stays=False)
        prefixes = service.prefixes.of((caller.key, wish.body.prompt_cache_key)) if caller.key else None
        try:
            method = read_method(wish.own.method or DEFAULT.name, service.methods)
            asking = Asking(
                wish.messages,
                wish.sampling,
                AUTOMATIC_TREE,
                (method,),
                raw=wish.raw,
                template_arguments=wish.body.chat_template_kwargs,
                answer_prefix_ids=tuple(wish.own.answer_prefix_ids),
            )
            run = handlers.begin(service, self._runs, visitor, asking, False, prefixes=prefixes, events=events)
        except Busy as error:
            raise Refusal(429, str(error), code="rate_limit_exceeded", seconds=error.seconds) from error
        except ValueError as error:
            raise Refusal(400, sentence_of(error)) from error
        try:
            async for event in events:
                if event[0] == "error":
                    status = 503 if service.refusal else 400 if isinstance(run.failure, ValueError) else 500
                    raise Refusal(status, event[2])
                if event[0] not in ("wait", "done"):
                    yield event
        finally:
            run.stop()
            self._runs.forget(run.id)


def mounted(service: ModelService, runs: Runs, keys: tuple[str, ...], has_logins: bool) -> Mount:
    """The interface at /v1.

    Args:
        has_logins: whether the page asks for a login; then only keys open the interface.
    """
    closed = words.V1_CLOSED if has_logins and not keys else None
    interface = application(PageBackend(service, runs), keys, closed, service.limits.max_request_kilobytes * 1024)

    async def served(scope, receive, send) -> None:
        # A proxy has cut the page's own path off, and then Starlette finds no route behind a mount's
        if not scope["path"].startswith(scope["root_path"]):
            scope = scope | {"root_path": AT}
        await interface(scope, receive, send)

    return Mount(AT, served)
