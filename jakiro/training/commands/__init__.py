"""The training commands by name: `corpus`, `train`, `evaluate` and `trigrams`."""

from jakiro.training.commands.corpus import corpus
from jakiro.training.commands.evaluate import evaluate
from jakiro.training.commands.train import train
from jakiro.training.commands.trigrams import trigrams

__all__ = ["corpus", "evaluate", "train", "trigrams"]
