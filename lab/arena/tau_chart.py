"""τ of methods side by side, from files of `evaluate`: `python -m lab.arena.tau_chart OUT FILE`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from jakiro.figures import marker_style, plain_text, role_of, styled
from jakiro.system import errors_as_one_sentence, write_atomically
from lab.charts import write_charts

# What `evaluate` calls all prompts together
ALL = "all"


def parts_of(given: str) -> list[dict]:
    """What a file holds, FILE or NAME=FILE: one or more outputs of `evaluate`, under this name if there is one.

    Raises:
        ValueError: the file holds no scores.
    """
    name, _, path = given.rpartition("=")
    found = json.loads(Path(path).read_text(encoding="utf-8"))
    parts = found if isinstance(found, list) else [found]
    if not all(isinstance(part, dict) and isinstance(part.get("scores"), list) for part in parts):
        raise ValueError(f"{path} holds no scores of evaluate; give what --out wrote.")
    return [part | {"name": name} for part in parts] if name else parts


def kept(parts: Sequence[dict], nodes: int) -> list[dict]:
    """What a plot needs of them: trees of so many nodes over all prompts; what comes first counts."""
    found: dict[str, dict] = {}
    for part in parts:
        own: dict[str, dict] = {}
        for score in part["scores"]:
            name = part.get("name") or score["method"]
            if score["category"] == ALL and score["nodes"] == nodes and name not in found:
                fields = ("method", "temperature", "nodes", "category", "tau", "num_steps", "num_prompts")
                named = own.setdefault(name, {"name": name, "scores": []})
                named["scores"].append({field: score.get(field) for field in fields})
        found |= own
    return list(found.values())


def taus(parts: Sequence[dict], nodes: int) -> dict[str, dict[float, float]]:
    """By name and temperature, of trees of so many nodes over all prompts."""
    return {
        part["name"]: {score["temperature"]: score["tau"] for score in part["scores"]} for part in kept(parts, nodes)
    }


def tau_chart(
    out: Annotated[Path, typer.Argument(help="The html file.")],
    files: Annotated[
        list[str], typer.Argument(help="What evaluate --out wrote, FILE or NAME=FILE; the first of a name counts.")
    ],
    nodes: Annotated[int, typer.Option(help="Nodes of the trees.")] = 14,
    keep: Annotated[Path | None, typer.Option(help="Write what is drawn to this JSON file, to draw it again.")] = None,
) -> None:
    """Draw τ by method, one mark for each temperature."""
    from plotly.graph_objects import Scatter

    parts = [part for each in files for part in parts_of(each)]
    if keep is not None:
        lines = ",\n".join(json.dumps(part, ensure_ascii=False) for part in kept(parts, nodes))
        write_atomically(keep, f"[{lines}]\n")
    found = taus(parts, nodes)
    first = {name: max(values.values()) for name, values in found.items()}
    names = sorted(found, key=first.get)
    temperatures = sorted({temperature for values in found.values() for temperature in values})

    marks = [
        Scatter(
            x=[found[name].get(temperature) for name in names], y=[plain_text(name) for name in names],
            mode="markers", name=f"temperature {temperature:g}", marker=marker_style(role_of(place)),
        )
        for place, temperature in enumerate(temperatures)
    ]  # fmt: skip
    figure = styled(marks, "Tokens a step", f"τ with {nodes} nodes", height=150 + 24 * len(names))
    write_charts(out, "What we tried", [figure.update_xaxes(range=[1, None])])


if __name__ == "__main__":
    with errors_as_one_sentence():
        typer.run(tau_chart)
