"""training.html: every curve of a run as tensorboard's files hold it, those from before a resumption included."""

from pathlib import Path

from jakiro.plots import Look, write_report

NAME = "training.html"


def curves(logdir: Path) -> dict[str, tuple[list[int], list[float]]]:
    """Steps and values of each curve in a folder of tensorboard's files, by name."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(logdir), size_guidance={"scalars": 0}).Reload()
    found = {}
    for name in events.Tags()["scalars"]:
        values = {event.step: event.value for event in events.Scalars(name)}  # a step done again counts as it was last
        found[name] = (sorted(values), [values[step] for step in sorted(values)])
    return found


def write_curves(logdir: Path) -> Path:
    """Draws the curves of a run into its folder; returns the file.

    Raises:
        ModuleNotFoundError: tensorboard or plotly is not installed.
    """
    found = curves(logdir)

    def figures(look: Look) -> list:
        from plotly.graph_objects import Figure, Scatter

        return [
            Figure(
                Scatter(x=steps, y=values, mode="lines", line=look.line(0), hovertemplate="step %{x}: %{y:.4g}"),
                look.layout(name, "training steps", name.rpartition("/")[2], height=280, showlegend=False),
            )
            for name, (steps, values) in found.items()
        ]

    return write_report(logdir / NAME, "Training curves", (), figures)
