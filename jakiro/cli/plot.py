"""The command `plot`: figures of traces, recordings and benchmarks."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from jakiro.cli import loading
from jakiro.trace import Trace, TraceError

STATIC = (".png", ".svg", ".pdf")
WIDTH, HEIGHT = 760, 460


class FigureName(StrEnum):
    """Figures of one trace; a benchmark has one of its own."""

    speed = "speed"
    tree = "tree"
    accepted = "accepted"
    depth = "depth"
    experts = "experts"


def plot(
    file: Annotated[Path, typer.Argument(help="A trace, a recording, or bench.json.")],
    out: Annotated[Path, typer.Option(help="Picture to write: .html, .svg, .png or .pdf.")],
    figure: Annotated[FigureName, typer.Option(help="Which figure of a trace or recording.")] = FigureName.speed,
    step: Annotated[
        int | None, typer.Option(help="Step of the tree, from 1; default: the one that accepted most.")
    ] = None,
    dark: Annotated[bool, typer.Option("--dark", help="Use the dark palette.")] = False,
    width: Annotated[int | None, typer.Option(min=100, max=4000, help="Pixels; of a page, if not given, all.")] = None,
    height: Annotated[int | None, typer.Option(min=100, max=4000, help="Pixels.")] = None,
) -> None:
    """Draw a figure of a trace, a recording or a benchmark."""
    if out.suffix not in (".html", *STATIC):
        raise ValueError(f"--out must end in .html, {', '.join(STATIC[:-1])} or {STATIC[-1]}; got {out.name!r}.")
    loading.check_file(out, "the picture")
    picture = figure_of(file, figure, step, dark)
    picture.update_layout({name: value for name, value in (("width", width), ("height", height)) if value is not None})
    if out.suffix == ".html":
        picture.write_html(out, include_plotlyjs=True)
    else:
        write_picture(picture, out)
    loading.say(f"Written: {out}")


def figure_of(file: Path, name: FigureName, step: int | None, dark: bool):
    """Return the figure of a file.

    Raises:
        ValueError: the file is neither a trace nor a recording nor a benchmark, or it has no such step.
    """
    from jakiro import figures

    try:
        values = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is not JSON: {error}.") from error
    if isinstance(values, dict) and "groups" in values:
        try:
            return figures.bench(values, dark)
        except (KeyError, TypeError) as error:
            message = f"{file} is not a bench.json of this version ({error!r}); write it with `python -m jakiro bench`."
            raise ValueError(message) from error
    traces = read_traces(values)
    plain = next((trace for trace in traces if trace.header.drafter is None), None)
    trace = next((trace for trace in traces if trace is not plain), plain)
    if name is FigureName.tree:
        return figures.draft_tree(chosen_step(trace, step), trace.header.proposers, dark)
    if name is FigureName.accepted:
        return figures.accepted_per_step(trace, dark)
    if name is FigureName.depth:
        drafted = {figures.method_title(each.header.method): each for each in traces if each is not plain}
        return figures.acceptance_by_depth(drafted, dark)
    if name is FigureName.experts:
        return figures.experts(trace, dark)
    return figures.speed(trace, None if plain is trace else plain, dark)


def read_traces(values: object) -> list[Trace]:
    """Return the traces of a trace file or of a recording, which holds several by method."""
    recorded = values.get("traces") if isinstance(values, dict) else None
    if isinstance(recorded, dict) and recorded:
        return [Trace.from_dict(trace) for trace in recorded.values()]
    if not isinstance(values, dict) or "header" not in values:
        raise TraceError("This file is neither a trace nor a recording nor a bench.json.")
    return [Trace.from_dict(values)]


def chosen_step(trace: Trace, number: int | None):
    """Return the step with this number, counted from 1, or the one that accepted most."""
    if not trace.steps:
        raise ValueError("This answer has no steps, so there is no draft tree.")
    if number is None:
        return max(trace.steps, key=lambda step: len(step.accepted_path))
    if not 1 <= number <= len(trace.steps):
        raise ValueError(f"--step must be between 1 and {len(trace.steps)}; got {number}.")
    return trace.steps[number - 1]


def write_picture(figure, path: Path) -> None:
    """Write a static picture.

    Raises:
        ValueError: kaleido, or the browser that it uses, is missing.
    """
    size = {"width": figure.layout.width or WIDTH, "height": figure.layout.height or HEIGHT}
    try:
        figure.write_image(path, scale=2 if path.suffix == ".png" else 1, **size)
    except (ValueError, RuntimeError, ImportError) as error:
        raise ValueError(
            f"{path.suffix} pictures need the package kaleido and Chrome or Chromium: run `pip install kaleido`, or "
            f"write {path.with_suffix('.html').name} instead ({str(error).strip().splitlines()[0]})."
        ) from error
