"""The training commands by name: `corpus`, `train` and `evaluate`."""

from jakiro.training.commands.corpus import corpus
from jakiro.training.commands.evaluate import evaluate
from jakiro.training.commands.train import train

__all__ = ["corpus", "evaluate", "train"]
