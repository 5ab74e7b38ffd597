"""The tab "Benchmark": a small set measured live through the same queue as answers, recorded results, the leaderboard.

The browser draws the form and the results; requests are checked here, and all numbers come from `jakiro.bench.report`.
"""

import functools
import gzip
import hashlib
import json
from collections.abc import Iterator

import gradio as gr

from app.asking import whole
from app.page import web
from app.page.drawn import drawn
from app.page.handlers import visitor_of
from app.page.offered import offered_methods, trained_methods
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


def head(known: Methods = METHODS) -> str:
    """Return the block for the page's <head> after the lesson's: the tab before its code is loaded."""
    name, _ = packed_script(known)
    given = (
        f"Object.assign(Jakiro.words, {web.for_script(words.FIRST)}); Jakiro.benchmarkFile = {web.for_script(name)};"
    )
    return f"<style>\n{style()}</style>\n<script>\n{given}\n</script>"


def style() -> str:
    return web.bundle("benchmark.css")


def packed_script(known: Methods = METHODS) -> tuple[str, bytes]:
    """The tab's code as the browser fetches it after the first paint: a name that changes with it, and gzip bytes."""
    packed = gzip.compress(script(known).encode(), mtime=0)
    return f"benchmark-{hashlib.sha256(packed).hexdigest()[:12]}.js.gz", packed


def script(known: Methods = METHODS) -> str:
    """The tab's modules, its words and choices first."""
    questions = load_questions()
    form = DEFAULTS | {"known_temperatures": TEMPERATURES, "known_methods": _drafting(known), "tokens": MOST_TOKENS}
    titles = {method.name: method.title for method in offered_methods(known)}
    form |= {"titles": titles, "minutes": trained_methods(known)}
    form |= {"most": len(questions), "categories": len({question.category for question in questions})}
    values = f"Object.assign(Jakiro.words, {web.for_script(words.FIRST | words.BROWSER)});"
    return f"{values} Jakiro.benchmarkForm = {web.for_script(form)};\n{web.bundle('benchmark.js')}"


def component(service: ModelService, pace: Pace) -> Benchmarks:
    """The tab's place on the page and its endpoints; returns the benchmarks it runs."""
    benchmarks = Benchmarks()

    def recorded() -> str | None:
        return RECORDED.read_text(encoding="utf-8") if RECORDED.is_file() else None

    def benchmark_results(run_id: str) -> str:
        """A run's results as `python -m jakiro bench` writes them."""
        text = benchmarks.results(str(run_id))
        if text is None:
            raise gr.Error(words.UNKNOWN_RESULTS)
        return text

    functions = {
        "benchmark_recorded": recorded,
        "benchmark_board": lambda: leaderboard(service.methods),
        "benchmark_saved": lambda run_id: benchmarks.results(str(run_id)),
    }
    view = drawn("benchmark", VIEW, functions, tab="benchmark")
    wanted = gr.JSON(value={}, visible="hidden", label="Benchmark", elem_id="benchmark-request")

    def benchmark(wanted, request: gr.Request):
        yield from measure(service, benchmarks, pace, visitor_of(request), wanted)

    def stop_benchmark(request: gr.Request):
        benchmarks.stop(visitor_of(request).session)

    view.run_benchmark(
        benchmark,
        wanted,
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
def leaderboard(known: Methods = METHODS) -> str:
    """Return the leaderboard of these methods as JSON, each with its best tree size; "null" if there is none."""
    path = web.ASSETS / "benchmark" / "leaderboard.json"
    board = json.loads(path.read_text(encoding="utf-8"))["own_size"] if path.is_file() else None
    if board:
        board["rows"] = [row for row in board["rows"] if row["method"] in known]
    return json.dumps(board, ensure_ascii=False)


def read_request(wanted, most_tokens: int = MOST_TOKENS, known: Methods = METHODS) -> tuple[BenchSettings, list]:
    """Check the requested benchmark.

    Args:
        wanted: {"count": prompts, "temperatures": [...], "methods": [...]}; missing values have defaults.
        most_tokens: the limit of one answer here; the benchmark's own may be lower.
        known: available drafting methods.

    Returns:
        The library's settings and the questions.

    Raises:
        ValueError: the first invalid value, in one sentence.
    """
    if not isinstance(wanted, dict):
        raise ValueError(words.NOT_A_REQUEST.format(value=shortened(wanted)))
    wanted = DEFAULTS | wanted
    most, count = len(load_questions()), whole(wanted["count"])
    if not is_count(count, 1) or count > most:
        raise ValueError(words.COUNT_NOT_WHOLE.format(most=most, value=shortened(count)))
    temperatures = _chosen(
        wanted["temperatures"], TEMPERATURES, words.CHOOSE_TEMPERATURE, words.UNKNOWN_TEMPERATURE, "{:g}".format
    )
    named = _named(wanted["methods"], known)
    methods = _chosen(named, _drafting(known), words.CHOOSE_METHOD, words.UNKNOWN_METHOD, str)
    settings = BenchSettings(
        methods=(PLAIN.name, *methods),
        temperatures=temperatures,
        nodes=(AUTO,),
        max_new_tokens=min(MOST_TOKENS, most_tokens),
        known=known,
    )
    return settings, load_questions(limit=count)


def _drafting(known: Methods) -> tuple[str, ...]:
    """The methods that plain decoding is set against."""
    return tuple(method.name for method in offered_methods(known))


def _named(values, known: Methods) -> list:
    """Replace aliases by method names; `_chosen` rejects unknown names later."""
    aliases = {alias: name for name, method in known.items() for alias in method.aliases}
    values = values if isinstance(values, list) else [values]
    return [aliases.get(value, value) if isinstance(value, str) else value for value in values]


def _chosen(values, known: tuple, none_chosen: str, unknown: str, name) -> tuple:
    """The known values that were chosen, each once, in the order in which they are known."""
    values = values if isinstance(values, list) else [values]
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float | str) or value not in known:
            raise ValueError(unknown.format(known=", ".join(map(name, known)), value=shortened(value)))
    if not values:
        raise ValueError(none_chosen)
    return tuple(one for one in known if one in values)


def measure(service: ModelService, benchmarks: Benchmarks, pace: Pace, visitor: Visitor, wanted) -> Iterator[dict]:
    """Run a benchmark: yield the tab's data a few times a second, or {"error": sentence}."""
    limits = service.limits
    try:
        request = read_request(wanted, limits.max_new_tokens, service.methods)
        run = BenchmarkRun(service, *request, group=visitor.address)
        pace.admit(paces_of(visitor, limits))
        benchmarks.start(visitor.session, run, limits.benchmarks_address)
    except ValueError as error:
        yield {"error": str(error)}
        return
    try:
        for batch in batches(run.events, _UPDATE_SECONDS):
            values = [value for kind, _, value in batch if kind == "state"]
            if values:
                yield values[-1]
    finally:
        run.stop()
