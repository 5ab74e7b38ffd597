"""The training commands by name: `corpus`, `train` and `evaluate`."""

from jakiro.training.corpus_command import corpus
from jakiro.training.evaluate_command import evaluate
from jakiro.training.train_command import train

__all__ = ["corpus", "evaluate", "train"]
