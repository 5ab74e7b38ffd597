"""The page: the settings as Gradio components, around views that the browser draws by itself."""

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import gradio as gr
from huggingface_hub import constants
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app import named_host
from app.devices.base import Device
from app.page import api, benchmark, form, handlers, lesson, v1, web
from app.page.offered import Appearance
from app.page.picker import LoaderOf, Picker
from app.page.view import build_view
from app.serving import server as serving
from app.serving.connections import hang_up_on_silence
from app.serving.limits import Limits
from app.serving.runs import Runs
from app.serving.worker import ModelService
from app.words import page as words
from jakiro.drafters.registry import METHODS, Methods
from jakiro.progress import process_seconds

# Gradio requires the names of the view's events in quotes. `about` has the server's data for the view
VIEW = """mountView(element, props, watch, server, {{ ...{about}, ask: (data) => trigger("ask", data),
resume: (data) => trigger("resume", data), setForm: () => trigger("set_form") }})"""


def build(
    device: Device,
    limits: Limits | None = None,
    loader_of: LoaderOf | None = None,
    pairs_folder: Path | None = None,
    pair: tuple[str | None, str | None] = (None, None),
    numerics: str | None = None,
    methods: Methods = METHODS,
    preferred: str | None = None,
    store_chats: bool = True,
    appearance: Appearance | None = None,
) -> gr.Blocks:
    """Build the page around a device; `launch` starts loading it.

    Reports of Gradio and the Hub are switched off for this process before its first component exists.

    Args:
        loader_of, pairs_folder, pair: how visitors choose another pair, and which; see `Picker`.
        numerics: initial value of the setting.
        methods: the available drafting methods.
        preferred: a target whose pair is loaded as soon as its files are on this machine, unless a visitor chooses
            another one before.
        store_chats: whether browsers store chats on disk; otherwise a closed tab loses them.
        appearance: title, example questions and style sheet; the page's own by default.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    # Otherwise Gradio summarises all answers after each one, for a dashboard that is switched off
    os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(sys.maxsize))
    # The environment was read before, when Gradio was imported
    constants.HF_HUB_DISABLE_TELEMETRY = True
    service = ModelService(device, limits, methods)
    runs = Runs(service.limits)
    picker = Picker(service, loader_of, pairs_folder, pair)
    service.pair, service.size_of, service.choosable = picker.first_name, picker.size_of, loader_of is not None

    appearance = appearance or Appearance.read(None, None, None)
    with gr.Blocks(title=appearance.title, analytics_enabled=False, fill_width=True) as page:
        build_view("top", "mountTop(element)", {}, "top")
        about = web.for_script({"questions": appearance.questions, "storeChats": store_chats})
        view = build_view("view", VIEW.format(about=about), _server_functions(service, runs))
        lesson.component()
        benchmarks = benchmark.component(service, runs.pace)
        settings = form.build(picker, numerics or words.EXACT, methods)

        def generate(request: gr.Request, event: gr.EventData):
            yield from handlers.generate(service, runs, handlers.visitor_of(request), handlers.data_of(event))

        def resume(request: gr.Request, event: gr.EventData):
            run_id = handlers.data_of(event).get("run_id")
            yield from handlers.resume(service, runs, handlers.visitor_of(request), run_id)

        for listen, answer, name in ((view.ask, generate, "ask"), (view.resume, resume, "resume")):
            listen(
                answer,
                None,
                view,
                # Otherwise Gradio's page silently drops a question that is sent during an answer
                trigger_mode="multiple",
                show_progress="hidden",
                # Otherwise Gradio's page copies all data of a component to tell it of each update
                show_progress_on=[],
                concurrency_limit=None,
                concurrency_id="answers",
                api_name=name,
                api_visibility="undocumented",
            )
        for listen, script in ((page.load, "restoreForm"), (view.set_form, "formSet")):
            listen(None, settings, settings, js=form.calling(script, settings), api_visibility="private")
        api.register(service, runs)
    page.queue(max_size=None, api_open=False)
    page.service, page.runs, page.benchmarks, page.appearance = service, runs, benchmarks, appearance
    if preferred is not None:
        threading.Thread(target=picker.prefer, args=(preferred,), name="prefer-model", daemon=True).start()
    return page


def _server_functions(service: ModelService, runs: Runs) -> dict[str, Callable]:
    def trace_text(run_id) -> str | None:
        """Return the answer's traces as one file, or None if the server no longer keeps them."""
        run = runs.find(str(run_id))
        return web.recording_text(dict(run.traces)) if run is not None and run.traces else None

    def missed(data) -> list[str] | None:
        """Return the updates that a browser has missed: {"run": id, "first": number of the first one}."""
        return handlers.missed_ticks(runs, data.get("run"), data.get("first")) if isinstance(data, dict) else None

    return {
        "recording_names": web.recording_names,
        "recording": web.recording,
        "trace_text": trace_text,
        "missed": missed,
        "aside": lambda run_id: handlers.put_aside(runs, run_id),
        "stop": lambda run_id: handlers.stop(runs, run_id),
        "trouble": partial(handlers.trouble, service),
    }


def _leave_route(page: gr.Blocks) -> Route:
    """Return the route to which a closing tab posts its last answer's id; an open stream would use a connection."""

    async def leave(request: Request) -> Response:
        handlers.forget(page.service, page.runs, (await request.body()).decode("utf-8", "replace"))
        return Response(status_code=204)

    return Route("/left", leave, methods=["POST"])


def launch(
    page: gr.Blocks, host: str | None = None, port: int | None = None, share: bool = False, wait: bool = True,
    logins: list[tuple[str, str]] | None = None, keys: tuple[str, ...] = (), **options,
) -> str:  # fmt: skip
    """Open the page to visitors without a request to other machines, then load the model in the background.

    Host and port fall back to Gradio's variables. With `wait` this call ends with the server; otherwise it returns the
    page's address at once.

    Args:
        logins: names and passwords for the page.
        keys: API keys for /v1, which is open to all without logins and keys.
    """
    serving.open_more_files()
    serving.describe_page()
    host = serving.listening_host(host or named_host)
    methods = page.service.methods
    name, packed = benchmark.packed_script(methods)
    files = {name: packed, web.PLOT_LIBRARY.name: web.PLOT_LIBRARY.read_bytes()}
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        share=share,
        ssr_mode=False,
        # Gradio would give its page three seconds to answer it, and call a busy machine one that cannot be reached
        _frontend=False,
        run_history=False,
        footer_links=["api"],  # for the link in the menu; the footer itself is hidden
        head=web.head(methods, page.appearance.title, page.appearance.style) + lesson.head() + benchmark.head(methods),
        theme=gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
        prevent_thread_lock=True,
        auth=logins,
        **serving.launch_options(
            page.service, files, [v1.mounted(page.service, page.runs, keys, bool(logins)), _leave_route(page)]
        ),
        **options,
    )
    hang_up_on_silence(page.server)
    page.service.seconds["page"] = process_seconds()
    page.service.start()
    if wait:
        serving.serve_until_signal(page)
    return address
