"""A race in the terminal: the answers as they grow, then a table of times. Drawing is on no method's clock."""

import time

from rich import box
from rich.columns import Columns
from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from jakiro.methods import METHODS, Methods
from jakiro.trace import Trace, first_difference
from jakiro.zoo.table import unequal_training

REDRAW_SECONDS = 0.15


class RaceView:
    """Draws the lanes of a race.

    Args:
        traces: by method, growing while the race runs.
        known: the drafting methods that there are.
    """

    def __init__(self, traces: dict[str, Trace], known: Methods = METHODS):
        self._traces, self._known, self._console = traces, known, Console()

    def show(self, race) -> None:
        """Runs a race to its end, or until it is interrupted, and prints the table and what makes it unfair."""
        drawn = 0.0
        with Live(self._lanes(), console=self._console, auto_refresh=False, vertical_overflow="crop") as live:
            try:
                for _ in race:
                    if time.monotonic() - drawn > REDRAW_SECONDS:
                        live.update(self._lanes(), refresh=True)
                        drawn = time.monotonic()
            except KeyboardInterrupt:
                race.close()
            live.update(self._lanes(whole=True), refresh=True)
        if not self._console.is_terminal:
            # There Live leaves the last line open, and the table would go on in it
            self._console.line()
        self._console.print(race_table(self._traces, self._known))
        drafters = {method: trace.header.drafter or {} for method, trace in self._traces.items()}
        heads = {self._known.named(method).title: drafter.get("name") for method, drafter in drafters.items()}
        unequal = unequal_training(heads)
        if unequal is not None:
            self._console.print(unequal, style="yellow", highlight=False, soft_wrap=True)

    def _lanes(self, whole: bool = False) -> Columns:
        width = max(24, self._console.width // len(self._traces) - 1)
        panels = []
        for method, trace in self._traces.items():
            text = trace.text
            if not whole:
                # The end of a long answer is what moves; the terminal shows no more than a screen of it.
                text = text[-(width - 4) * max(4, self._console.height - 6) :]
            speed = trace.tokens_per_second
            subtitle = f"{speed:.1f} tokens/s · τ {trace.tau:.2f}" if speed else "…"
            panels.append(Panel(Text(text), title=self._known.named(method).title, subtitle=subtitle, width=width))
        return Columns(panels, padding=(0, 1))


def race_table(traces: dict[str, Trace], known: Methods = METHODS) -> Table:
    """Speed, tau, a step's parts, the speedup of each lane over the first, and whether the texts are equal."""
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
            known.named(method).title,
            str(len(trace.token_ids)),
            f"{trace.tokens_per_second:.1f}" if steps else "–",
            f"{trace.tau:.2f}" if steps else "–",
            *([f"{part:.1f}" for part in trace.step_ms] if steps else ["–"] * 3),
            f"{speedup:.2f}×" if (speedup := _speedup(reference, trace)) else "–",
            _same_text(reference, trace),
        )
    return table


def _speedup(reference: Trace, trace: Trace) -> float | None:
    """Seconds per token against the first lane's; with equal texts the same as seconds against seconds."""
    if trace is reference or not reference.steps or not trace.steps:
        return None
    return trace.tokens_per_second / reference.tokens_per_second


def _same_text(reference: Trace, trace: Trace) -> str:
    if trace is reference:
        return ""
    if "stopped" in (reference.end_reason, trace.end_reason):
        return "stopped"
    position = first_difference(reference.token_ids, trace.token_ids)
    return "yes" if position is None else f"no, from token {position}"
