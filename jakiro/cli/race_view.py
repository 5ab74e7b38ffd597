"""A race in the terminal: the first method's answer while it is written, then a table of all methods."""

from rich import box
from rich.console import Console
from rich.table import Table

from jakiro.cli import loading
from jakiro.drafters.registry import METHODS, Methods
from jakiro.loading.registry import unequal_training
from jakiro.trace import Trace, first_difference


def show_race(race, methods: Methods = METHODS) -> None:
    """Print the first method's text until the race ends or is interrupted, then the table and a fairness notice.

    Args:
        race: a `Race`.
        methods: the registered drafting methods.
    """
    console, traces = Console(), race.traces
    first = next(iter(traces))
    try:
        for method, step in race:
            if method == first:
                loading.write(step.text)
    except KeyboardInterrupt:
        race.close()
    loading.write("\n" if traces[first].steps else f"{traces[first].text}\n")
    console.print(race_table(traces, methods))
    heads = {name: (trace.header.drafter or {}).get("name") for name, trace in traces.items()}
    unequal = unequal_training({methods.named(name).title: head for name, head in heads.items()})
    if unequal is not None:
        console.print(unequal, style="yellow", highlight=False, soft_wrap=True)


def race_table(traces: dict[str, Trace], methods: Methods = METHODS) -> Table:
    """Return a table of speed, tau, parts of a step, speedup over the first method, and whether the texts are equal."""
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        caption="τ: accepted draft tokens per step + 1. Draft, verify and other: mean milliseconds of a step.",
    )
    table.add_column("method", no_wrap=True)
    for name in ("tokens", "tokens/s", "τ", "draft", "verify", "other", "speedup", "same text"):
        table.add_column(name, justify="right", min_width=min(len(name), 8))
    reference = next(iter(traces.values()))
    for method, trace in traces.items():
        steps = len(trace.steps)
        table.add_row(
            methods.named(method).title,
            str(len(trace.token_ids)),
            f"{trace.tokens_per_second:.1f}" if steps else "–",
            f"{trace.tau:.2f}" if steps else "–",
            *([f"{part:.1f}" for part in trace.step_ms] if steps else ["–"] * 3),
            f"{speedup:.2f}×" if (speedup := _speedup(reference, trace)) else "–",
            _compare_texts(reference, trace),
        )
    return table


def _speedup(reference: Trace, trace: Trace) -> float | None:
    """Return the ratio of tokens per second to the first method's; None for the first method."""
    if trace is reference or not reference.tokens_per_second or not trace.steps:
        return None
    return trace.tokens_per_second / reference.tokens_per_second


def _compare_texts(reference: Trace, trace: Trace) -> str:
    if trace is reference:
        return ""
    if "stopped" in (reference.end_reason, trace.end_reason):
        return "stopped"
    position = first_difference(reference.token_ids, trace.token_ids)
    return "yes" if position is None else f"no, from token {position}"
