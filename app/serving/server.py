"""The server around the page: logins, `/status`, and a shutdown that sends every visitor a sentence."""

import importlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import gradio as gr
from gradio import routes
from jinja2 import BaseLoader
from starlette.middleware import Middleware
from starlette.routing import BaseRoute
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from app.proxies import ask_directly
from app.serving.benchmark_run import MOST_SESSIONS, Benchmarks
from app.serving.compressed import CompressedUpdates
from app.serving.guard import Guard
from app.serving.runs import Runs
from app.serving.worker import ModelService
from app.words import page as words
from app.words.errors import for_visitors
from jakiro.progress import most_memory
from jakiro.system import package_versions, reason_of

ENDING_SECONDS = 3.0
# Time for the last sentences to arrive after the answers have ended: two rounds of the page's updates
_LAST_WORDS_SECONDS = 0.4
_HANDLER_THREADS = 48
# A Space is only reachable through the Hub's proxies, whose networks no visitor has
_HUB_PROXIES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.1")
# A connection holds a file before its first complete request, and no other limit counts it
_MOST_FILES = 2**16
_PREVIEW = (
    "<title>{{ config['title'] }}</title><meta property=\"og:title\" content=\"{{ config['title'] }}\">"
    f'<meta property="og:description" content="{words.TAGLINE}"><meta property="og:type" content="website">'
)
_HUB_FRAMES = "https://huggingface.co https://*.hf.space"


def launch_options(service: ModelService, files: dict[str, bytes], routes: Sequence[BaseRoute]) -> dict:
    """Return arguments of Gradio's `launch`: middleware for headers and closed addresses, routes and limits.

    Args:
        service: its limits are applied, and `/status` reports on it.
        files: the page's own files by name, as gzip; each is served at "/NAME".
        routes: routes in addition to Gradio's.
    """
    limits = service.limits
    on_a_space = bool(os.environ.get("SPACE_ID"))
    guard = Middleware(
        Guard,
        status=lambda: status_of(service),
        files={f"/{name}": packed for name, packed in files.items()},
        max_body_bytes=limits.max_request_kilobytes * 1024,
        requests_per_minute=limits.requests_per_minute_address,
        tabs=limits.sessions,
        frame_ancestors=frame_ancestors(),
        behind_proxy=on_a_space or bool(os.environ.get("FORWARDED_ALLOW_IPS")),
    )
    forwarded = [Middleware(ProxyHeadersMiddleware, trusted_hosts=list(_HUB_PROXIES))] if on_a_space else []
    return {
        # Outermost first: the guard reads and changes uncompressed responses
        "app_kwargs": {"middleware": [Middleware(CompressedUpdates), *forwarded, guard], "routes": [*routes]},
        "max_file_size": 1,
        "show_error": False,
        "enable_monitoring": False,
        "state_session_capacity": limits.sessions,
        "max_threads": limits.queue_length + MOST_SESSIONS + _HANDLER_THREADS,
    }


class _OwnPreview(BaseLoader):
    """Gradio's page template with one set of preview tags, the page's own, in place of its two."""

    _TAG = re.compile(r'<meta\s+(?:property="og:|name="twitter:)[^>]*>\s*')

    def __init__(self, inner: BaseLoader) -> None:
        self._inner = inner

    def get_source(self, environment, template: str):
        source, *more = self._inner.get_source(environment, template)
        return self._TAG.sub("", source).replace("<head>", f"<head>{_PREVIEW}", 1), *more


def describe_page() -> None:
    """Let Gradio's page have the title and description of ours from its first byte on."""
    environment = routes.templates.env
    if not isinstance(environment.loader, _OwnPreview):
        environment.loader = _OwnPreview(environment.loader)


def open_more_files() -> None:
    """Raise the limit of open files as far as the system allows; the usual one is 1,024."""
    with suppress(ImportError, ValueError, OSError):  # Windows has no such limit, some systems fix it
        resource = importlib.import_module("resource")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


def listening_host(host: str | None) -> str | None:
    """Return the listen address in Gradio's form, connected to without a proxy; None stays None.

    Raises:
        ValueError: it is no address of this machine.
    """
    if host is None:
        return None
    try:
        family, kind, _, _, place = socket.getaddrinfo(host.strip("[]"), 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
    except (OSError, UnicodeError) as error:
        raise ValueError(words.HOST_NOT_HERE.format(value=host, reason=reason_of(error))) from None
    ask_directly(host)
    return f"[{place[0]}]" if family == socket.AF_INET6 else host


def frame_ancestors() -> str:
    """Return the allowed frame ancestors: JAKIRO_FRAME_ANCESTORS, the Hub on a Space, or the page's own origin."""
    return os.environ.get("JAKIRO_FRAME_ANCESTORS") or (
        f"'self' {_HUB_FRAMES}" if os.environ.get("SPACE_ID") else "'self'"
    )


def read_logins(value: str | None) -> list[tuple[str, str]] | None:
    """Return logins from `name:password` or from a file with one of them a line; None for an empty value.

    Raises:
        ValueError: a line without a colon, an empty name or password, or no such file.
    """
    if not value:
        return None
    is_file = Path(value).is_file()
    if not is_file and ":" not in value:
        raise ValueError(words.LOGINS_NOT_FOUND.format(value=value))
    # Windows' editors begin a file with a mark, which would be part of the first name
    lines = Path(value).read_text(encoding="utf-8-sig").splitlines() if is_file else [value]
    logins = [tuple(line.strip().split(":", 1)) for line in lines if line.strip()]
    if not logins or any(len(login) != 2 or not all(login) for login in logins):
        raise ValueError(words.LOGINS_MALFORMED)
    return logins


def status_of(service: ModelService) -> dict:
    """Return state, queue, limits, versions, startup times and start id; no data of visitors, no folders."""
    state = "ending" if service.closing else "failed" if service.failure else "ready" if service.ready else "loading"
    model = service.device.status if service.ready else {}
    seconds = model.get("seconds", {}) | service.seconds
    model_values = {name: model.get(name) for name in ("target", "head", "device", "dtype", "numerics") if model}
    return {
        "state": state,
        "start": service.start_id,
        "chip": service.chip(),
        "model": {name: for_visitors(str(value)) if value else None for name, value in model_values.items()},
        "queue": service.turns.numbers() | {"places": service.device.places},
        "limits": {name: getattr(service.limits, name) for name in service.limits.__dataclass_fields__},
        # Until the page answered and the model was ready, and the model's own steps
        "seconds": {name: value and round(value, 2) for name, value in seconds.items()},
        "most_memory": most_memory(),
        "versions": package_versions("jakiro", "torch", "transformers", "gradio"),
    }


def serve_until_signal(page: gr.Blocks) -> None:
    """Block the main thread until SIGTERM or Ctrl-C, then shut down within seconds; `page` is from `page.build`."""
    signalled = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: signalled.set())
    signalled.wait()
    end(page, page.service, page.runs, page.benchmarks)


def end(page: gr.Blocks, service: ModelService, runs: Runs, benchmarks: Benchmarks) -> None:
    """Refuse new answers, stop the running ones with a sentence and close the page."""
    service.closing = True
    service.turns.wake()
    runs.stop_all(words.SERVER_ENDING)
    benchmarks.stop_all(words.SERVER_ENDING)
    runs.wait_until_finished(ENDING_SECONDS)
    time.sleep(_LAST_WORDS_SECONDS)
    page.close(verbose=False)
    service.prefixes.clear()
    if service.ready:
        service.device.close()
