"""τ of methods side by side, from files of `evaluate`: `python -m jakiro.training.commands.tau_chart OUT FILE`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from jakiro.plots import Look, plain, write_report
from jakiro.training.measure.evaluation import ALL


def taus(paths: list[Path], nodes: int) -> dict[str, dict[float, float]]:
    """By method and temperature, of trees of so many nodes over all prompts; a method's first file counts.

    Raises:
        ValueError: a file holds no scores.
    """
    found: dict[str, dict[float, float]] = {}
    for path in paths:
        given = json.loads(path.read_text(encoding="utf-8"))
        own: dict[str, dict[float, float]] = {}
        try:
            for part in given if isinstance(given, list) else [given]:
                for score in part["scores"]:
                    if score["category"] == ALL and score["nodes"] == nodes:
                        own.setdefault(score["method"], {})[score["temperature"]] = score["tau"]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} holds no scores of evaluate ({error}); give what --out wrote.") from error
        found = own | found
    return found


def tau_chart(
    out: Annotated[Path, typer.Argument(help="The html file.")],
    files: Annotated[list[Path], typer.Argument(help="What evaluate --out wrote, the best known first.")],
    nodes: Annotated[int, typer.Option(help="Nodes of the trees.")] = 14,
) -> None:
    """Draw τ by method, one mark for each temperature."""
    from plotly.graph_objects import Figure, Scatter

    found = taus(files, nodes)
    first = {name: max(values.values()) for name, values in found.items()}
    names = sorted(found, key=first.get)
    temperatures = sorted({temperature for values in found.values() for temperature in values})

    def figures(look: Look) -> list[Figure]:
        return [
            Figure(
                [
                    Scatter(
                        x=[found[name].get(temperature) for name in names], y=[plain(name) for name in names],
                        mode="markers", name=f"temperature {temperature:g}", marker=look.marker(place),
                    )
                    for place, temperature in enumerate(temperatures)
                ],
                look.layout("Tokens a step", f"τ with {nodes} nodes", height=120 + 24 * len(names)),
            ).update_xaxes(range=[1, None])
        ]  # fmt: skip

    write_report(out, "What we tried", (), figures)


if __name__ == "__main__":
    typer.run(tau_chart)
