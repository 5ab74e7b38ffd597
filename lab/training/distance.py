"""How far heads are from their target on the same rows: `python -m lab.training.distance FEATURES HEAD…`.

FEATURES is a folder that `train` filled; its first rows are those that a training on it holds out. DistillSpec's drafts
are compared here, since each training's own report is about the text that it learned from.
"""

from pathlib import Path
from typing import Annotated

import typer

from jakiro.cli.loading import set_up
from jakiro.cli.options import Target, Threads, argument, option
from jakiro.heads.checkpoint import load_head
from jakiro.system import errors_as_one_sentence
from jakiro.training.features import FeatureCache
from jakiro.training.validation import agreement, distances, held_out
from jakiro.zoo import table as zoo
from jakiro.zoo import weights
from lab import KNOWN


def distance(
    features: Annotated[Path, argument("Folder of features with the layers that the heads read.")],
    heads: Annotated[list[str], argument("Heads for one target: folders or Hub ids.")],
    target: Target = None,
    rows: Annotated[int, option("Rows to compare on, from the first one.")] = 100,
    threads: Threads = None,
) -> None:
    """Print total variation at temperature 1 and right first guesses of each head, by level or exit."""
    set_up(threads)
    model, _, _ = weights.load_target(target, "cpu", "float32")
    embedding, output = model.get_input_embeddings().weight, model.get_output_embeddings().weight
    for name in heads:
        head = load_head(zoo.resolve(target, name).head_folder(), networks=KNOWN.networks)
        head.bind(embedding, output)
        data = held_out(FeatureCache(features, head.config.read_layers), range(rows), output)
        guesses = agreement(head, data)
        for level, found in distances(head, data).items():
            right = guesses[f"main_{level}/top1"]
            typer.echo(f"{name}, {level}: total variation {found:.3f}, first guess right {right:.3f}")


if __name__ == "__main__":
    with errors_as_one_sentence():
        typer.run(distance)
