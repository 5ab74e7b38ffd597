"""The tab "Benchmark": a small set measured live through the same queue as answers, recorded results, the leaderboard.

The browser draws the form and the results; requests are checked here, and all numbers come from `jakiro.bench.report`.
"""

import functools
import gzip
import hashlib
import json
from collections.abc import Iterator

import gradio as gr

from app.asking import as_integer
from app.page import web
from app.page.handlers import visitor_of
from app.page.offered import offered_methods, trained_methods
from app.page.view import build_view
from app.serving.benchmark_run import BenchmarkRun, Benchmarks
from app.serving.pace import Pace
from app.serving.runs import Visitor, paces_of
from app.serving.worker import ModelService, batches
from app.words import benchmark as words
from jakiro.bench.runner import AUTO, BenchSettings
from jakiro.config import is_count, shortened
from jakiro.drafters.registry import DEFAULT, METHODS, PLAIN, Methods
from jakiro.prompts import load_questions

RECORDED = web.ASSETS / "benchmark" / "bench.json"
TEMPERATURES = (0.0, 0.7, 1.0)
DEFAULTS = {"count": 16, "temperatures": [0.0], "methods": [DEFAULT.name]}
MOST_TOKENS = 64
_UPDATE_SECONDS = 0.25
# Events of the view are named here in quotes, as Gradio wants them
VIEW = """loadBenchmark(element, props, watch, server, { run: () => trigger("run_benchmark"),
stop: () => trigger("stop_benchmark") })"""


def head(methods: Methods = METHODS) -> str:
    """Return the block for the page's <head> after the lesson's: the tab before its code is loaded."""
    name, _ = packed_script(methods)
    data = f"Object.assign(Jakiro.words, {web.for_script(words.FIRST)}); Jakiro.benchmarkFile = {web.for_script(name)};"
    return f"<style>\n{style()}</style>\n<script>\n{data}\n</script>"


def style() -> str:
    return web.bundle("benchmark.css")


def packed_script(methods: Methods = METHODS) -> tuple[str, bytes]:
    """Return a file name that changes with the content, and the gzip bytes; loaded after the first paint."""
    packed = gzip.compress(script(methods).encode(), mtime=0)
    return f"benchmark-{hashlib.sha256(packed).hexdigest()[:12]}.js.gz", packed


def script(methods: Methods = METHODS) -> str:
    """Return the tab's modules, after its words and choices."""
    questions = load_questions()
    form = DEFAULTS | {"known_temperatures": TEMPERATURES, "known_methods": _drafting(methods), "tokens": MOST_TOKENS}
    titles = {method.name: method.title for method in offered_methods(methods)}
    form |= {"titles": titles, "minutes": trained_methods(methods)}
    form |= {"most": len(questions), "categories": len({question.category for question in questions})}
    values = f"Object.assign(Jakiro.words, {web.for_script(words.FIRST | words.BROWSER)});"
    return f"{values} Jakiro.benchmarkForm = {web.for_script(form)};\n{web.bundle('benchmark.js')}"


def component(service: ModelService, pace: Pace) -> Benchmarks:
    """Add the tab and its endpoints to the page; return the benchmarks that it runs."""
    benchmarks = Benchmarks()

    def recorded() -> str | None:
        return RECORDED.read_text(encoding="utf-8") if RECORDED.is_file() else None

    def benchmark_results(run_id: str) -> str:
        """Return a run's results in the format of `python -m jakiro bench`."""
        text = benchmarks.results(str(run_id))
        if text is None:
            raise gr.Error(words.UNKNOWN_RESULTS)
        return text

    functions = {
        "benchmark_recorded": recorded,
        "benchmark_board": lambda: leaderboard(service.methods),
        "benchmark_saved": lambda run_id: benchmarks.results(str(run_id)),
    }
    view = build_view("benchmark", VIEW, functions, tab="benchmark")
    form_data = gr.JSON(value={}, visible="hidden", label="Benchmark", elem_id="benchmark-request")

    def benchmark(values, request: gr.Request):
        yield from measure(service, benchmarks, pace, visitor_of(request), values)

    def stop_benchmark(request: gr.Request):
        benchmarks.stop(visitor_of(request).session)

    view.run_benchmark(
        benchmark,
        form_data,
        view,
        js="() => Jakiro.benchmarkRequest()",
        show_progress="hidden",
        # `Benchmarks.start` refuses too many of one address with a sentence; a limit here would make others wait
        concurrency_limit=None,
        concurrency_id="benchmarks",
        api_name="benchmark",
    )
    view.stop_benchmark(stop_benchmark, queue=False, api_name="benchmark_stop")
    gr.api(benchmark_results, api_name="benchmark_results", queue=False)
    return benchmarks


@functools.cache
def leaderboard(methods: Methods = METHODS) -> str:
    """Return the leaderboard of these methods as JSON, each with its best tree size; "null" if there is none."""
    path = web.ASSETS / "benchmark" / "leaderboard.json"
    board = json.loads(path.read_text(encoding="utf-8"))["own_size"] if path.is_file() else None
    if board:
        board["rows"] = [row for row in board["rows"] if row["method"] in methods]
    return json.dumps(board, ensure_ascii=False)


def read_request(values, most_tokens: int = MOST_TOKENS, methods: Methods = METHODS) -> tuple[BenchSettings, list]:
    """Check the requested benchmark.

    Args:
        values: {"count": prompts, "temperatures": [...], "methods": [...]}; missing values have defaults.
        most_tokens: the limit of one answer here; the benchmark's own may be lower.
        methods: available drafting methods.

    Returns:
        The library's settings and the questions.

    Raises:
        ValueError: the first invalid value, in one sentence.
    """
    if not isinstance(values, dict):
        raise ValueError(words.NOT_A_REQUEST.format(value=shortened(values)))
    values = DEFAULTS | values
    most, count = len(load_questions()), as_integer(values["count"])
    if not is_count(count, 1) or count > most:
        raise ValueError(words.COUNT_NOT_WHOLE.format(most=most, value=shortened(count)))
    temperatures = _chosen(
        values["temperatures"], TEMPERATURES, words.CHOOSE_TEMPERATURE, words.UNKNOWN_TEMPERATURE, "{:g}".format
    )
    named = _named(values["methods"], methods)
    drafting = _chosen(named, _drafting(methods), words.CHOOSE_METHOD, words.UNKNOWN_METHOD, str)
    settings = BenchSettings(
        methods=(PLAIN.name, *drafting),
        temperatures=temperatures,
        nodes=(AUTO,),
        max_new_tokens=min(MOST_TOKENS, most_tokens),
        known=methods,
    )
    return settings, load_questions(limit=count)


def _drafting(methods: Methods) -> tuple[str, ...]:
    """Return the names of the methods that are compared with plain decoding."""
    return tuple(method.name for method in offered_methods(methods))


def _named(values, methods: Methods) -> list:
    """Replace aliases by method names; `_chosen` rejects unknown names later."""
    aliases = {alias: name for name, method in methods.items() for alias in method.aliases}
    values = values if isinstance(values, list) else [values]
    return [aliases.get(value, value) if isinstance(value, str) else value for value in values]


def _chosen(values, allowed: tuple, none_chosen: str, unknown: str, name) -> tuple:
    """Return the chosen values without duplicates, in the order of `allowed`."""
    values = values if isinstance(values, list) else [values]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | str) or value not in allowed:
            raise ValueError(unknown.format(known=", ".join(map(name, allowed)), value=shortened(value)))
    if not values:
        raise ValueError(none_chosen)
    return tuple(value for value in allowed if value in values)


def measure(service: ModelService, benchmarks: Benchmarks, pace: Pace, visitor: Visitor, values) -> Iterator[dict]:
    """Run a benchmark: yield the tab's data a few times a second, or {"error": sentence}."""
    limits = service.limits
    try:
        request = read_request(values, limits.max_new_tokens, service.methods)
        run = BenchmarkRun(service, *request, group=visitor.address)
        pace.admit(paces_of(visitor, limits))
        benchmarks.start(visitor.session, run, limits.benchmarks_address)
    except ValueError as error:
        yield {"error": str(error)}
        return
    try:
        for batch in batches(run.events, _UPDATE_SECONDS):
            states = [value for kind, _, value in batch if kind == "state"]
            if states:
                yield states[-1]
    finally:
        run.stop()
