"""The page: question row and settings as Gradio components around one view that the browser draws itself."""

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
from app.page.drawn import drawn
from app.page.offered import offered_questions
from app.page.picker import LoaderOf, Picker
from app.serving import server as serving
from app.serving.connections import hang_up_on_silence
from app.serving.limits import Limits
from app.serving.runs import Runs
from app.serving.worker import ModelService
from app.words import page as words
from jakiro.drafters.registry import METHODS, Methods
from jakiro.progress import process_seconds

# Events of the view are named here in quotes, as Gradio wants them
VIEW = """mountView(element, props, watch, server, { askInstead: () => trigger("ask_instead"),
resume: () => trigger("resume"), openLink: () => trigger("open_link") })"""


def build(
    device: Device,
    limits: Limits | None = None,
    loader_of: LoaderOf | None = None,
    pairs_folder: Path | None = None,
    given: tuple[str | None, str | None] = (None, None),
    numerics: str | None = None,
    methods: Methods = METHODS,
    preferred: str | None = None,
) -> gr.Blocks:
    """Builds the page around a device; `launch` starts loading it.

    Reports of Gradio and the Hub are switched off for this process before its first component exists.

    Args:
        loader_of, pairs_folder, given: how visitors choose another pair, and which; see `Picker`.
        numerics: what the settings start with.
        methods: the drafting methods that there are.
        preferred: a target whose pair is loaded as soon as its files lie here, unless somebody chooses before.
    """
    os.environ.setdefault("GRADIO_ANALYTICS_ENABLED", "False")
    # Else Gradio sums up all answers after each one, with pandas, for a dashboard that is switched off
    os.environ.setdefault("GRADIO_ANALYTICS_CACHE_FREQUENCY", str(sys.maxsize))
    # Read from the environment long before this line, when Gradio was imported
    constants.HF_HUB_DISABLE_TELEMETRY = True
    service = ModelService(device, limits, methods)
    runs = Runs(service.limits)
    picker = Picker(service, loader_of, pairs_folder, given)
    service.pair, service.size_of, service.choosable = picker.first_name, picker.size_of, loader_of is not None

    with gr.Blocks(title=words.TITLE, analytics_enabled=False, fill_width=True) as page:
        drawn("top", "mountTop(element)", {}, "top")
        with gr.Row(elem_id="question-row"):
            question = gr.Textbox(
                placeholder=words.QUESTION_PLACEHOLDER,
                show_label=False,
                label=words.QUESTION_PLACEHOLDER,
                container=False,
                lines=1,
                max_lines=4,
                elem_id="question",
                scale=1,
            )
            ask = gr.Button(words.ASK, variant="primary", elem_id="ask", scale=0, min_width=72)
            stop = gr.Button(words.STOP, elem_id="stop", scale=0, min_width=72)
            clear = gr.Button(words.CLEAR, elem_id="clear", scale=0, min_width=72)
            with gr.Row(elem_id="examples"):
                for number, example in enumerate(offered_questions()):
                    gr.Button(example, size="sm", elem_classes="jk-chip", elem_id=f"example-{number}", scale=0)
        view = drawn("view", VIEW, _server_functions(service, runs))
        lesson.component()
        benchmarks = benchmark.component(service, runs.pace)
        settings = form.build(picker, words.FAST if numerics == "fast" else words.EXACT, methods)
        history = gr.JSON(value=[], visible="hidden", label="History", elem_id="history")

        run_id = gr.Textbox(visible="hidden", label="Answer", elem_id="run-id")
        answer_prefix = gr.JSON(value=None, visible="hidden", label="Answer's beginning", elem_id="answer-prefix")
        asked = [question, *settings, history, answer_prefix, run_id]

        def generate(request: gr.Request, *values):
            yield from handlers.generate(service, runs, handlers.visitor_of(request), form.by_name(asked, values))

        def resume(request: gr.Request, run_id):
            yield from handlers.resume(service, runs, handlers.visitor_of(request), run_id)

        def stop_answer(request: gr.Request):
            runs.stop(handlers.visitor_of(request).session)

        for listen, answer, given, name, script in (
            (partial(gr.on, [ask.click, question.submit]), generate, asked, "ask", form.calling("beforeAsk", asked)),
            (view.ask_instead, generate, asked, "ask_instead", form.calling("beforeAskInstead", asked)),
            (view.resume, resume, [run_id], "resume", "() => Jakiro.resumed()"),
        ):
            listen(
                answer,
                given,
                view,
                js=script,
                # Else Gradio's page drops a question that comes during an answer, without a word
                trigger_mode="multiple",
                show_progress="hidden",
                # Else Gradio's page copies everything that a component knows, to tell it of each update
                show_progress_on=[],
                concurrency_limit=None,
                concurrency_id="answers",
                api_name=name,
                api_visibility="undocumented",
            )
        form_fields = [question, *settings]
        page.load(None, form_fields, form_fields, js=form.calling("keptForm", form_fields), api_visibility="private")
        view.open_link(
            None, form_fields, form_fields, js=form.calling("linkedForm", form_fields), api_visibility="private"
        )
        stop.click(stop_answer, queue=False, api_visibility="private")
        clear.click(stop_answer, queue=False, js="() => { Jakiro.clear(); return []; }", api_visibility="private")
        api.register(service, runs)
    page.queue(max_size=None, api_open=False)
    page.service, page.runs, page.benchmarks = service, runs, benchmarks
    if preferred is not None:
        threading.Thread(target=picker.prefer, args=(preferred,), name="prefer-model", daemon=True).start()
    return page


def _server_functions(service: ModelService, runs: Runs) -> dict[str, Callable]:
    def trace_text(run_id) -> str | None:
        """The answer's traces as one file, or None where the server no longer keeps them."""
        run = runs.find(str(run_id))
        return web.recording_text(dict(run.traces)) if run is not None and run.traces else None

    def missed(asked) -> list[str] | None:
        """What the browser did not get of an answer: {"run": its id, "first": the number of the first lost update}."""
        return handlers.missed_ticks(runs, asked.get("run"), asked.get("first")) if isinstance(asked, dict) else None

    return {
        "recording_names": web.recording_names,
        "recording": web.recording,
        "trace_text": trace_text,
        "missed": missed,
        "aside": lambda run_id: handlers.put_aside(runs, run_id),
        "link_trouble": partial(handlers.link_trouble, service),
    }


def _left(page: gr.Blocks) -> Route:
    """Where a closing tab posts its last answer's id; a stream held open for that would take one of a browser's six."""

    async def left(request: Request) -> Response:
        handlers.forget(page.service, page.runs, (await request.body()).decode("utf-8", "replace"))
        return Response(status_code=204)

    return Route("/left", left, methods=["POST"])


def launch(
    page: gr.Blocks, host: str | None = None, port: int | None = None, share: bool = False, wait: bool = True,
    logins: list[tuple[str, str]] | None = None, keys: tuple[str, ...] = (), **options,
) -> str:  # fmt: skip
    """Opens the page to visitors, without any call to the outside, and then loads the model in the background.

    Host and port fall back to Gradio's variables. With `wait` this call ends with the server; otherwise it returns the
    page's address at once.

    Args:
        logins: names and passwords that open the page. keys: that open /v1; it is open to all where there are neither.
    """
    serving.open_more_files()
    host = serving.listening_host(host or named_host)
    known = page.service.methods
    name, packed = benchmark.packed_script(known)
    files = {name: packed, web.PLOT_LIBRARY.name: web.PLOT_LIBRARY.read_bytes()}
    _, address, _ = page.launch(
        server_name=host,
        server_port=port,
        share=share,
        ssr_mode=False,
        # Gradio would give its page three seconds to answer it, and call a busy machine one that cannot be reached
        _frontend=False,
        run_history=False,
        footer_links=[],
        head=web.head(known) + lesson.head() + benchmark.head(known),
        theme=gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]),
        prevent_thread_lock=True,
        auth=logins,
        **serving.launch_options(
            page.service, files, [v1.mounted(page.service, page.runs, keys, bool(logins)), _left(page)]
        ),
        **options,
    )
    hang_up_on_silence(page.server)
    page.service.seconds["page"] = process_seconds()
    page.service.start()
    if wait:
        serving.serve_until_told(page)
    return address
