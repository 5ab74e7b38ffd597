"""The command `train`: presets for the loss and the optimizer; all else stands in the config."""

from dataclasses import replace
from typing import Annotated

from jakiro.cli.fields import filled, options_from
from jakiro.cli.loading import set_up
from jakiro.cli.options import Threads, option
from jakiro.training import train as library
from jakiro.training.losses import LossWeights
from jakiro.training.schedule import LOSSES, OFFICIAL_OPTIMIZER, TrainingOptions
from jakiro.training.train import TrainConfig


@options_from(TrainConfig, TrainingOptions)
def train(
    loss: Annotated[str, option("ours or official: the defaults of the next three weights.")] = "ours",
    token_weight: Annotated[float | None, option("Weight of the cross-entropy.")] = None,
    feature_weight: Annotated[float | None, option("Weight of the feature regression.")] = None,
    contrastive_weight: Annotated[float | None, option("Weight of the contrastive branch.")] = None,
    optimizer: Annotated[str, option("muon, adamw, or official (adamw as in the paper's code).")] = "muon",
    learning_rate: Annotated[float | None, option("Peak of the cosine schedule.")] = None,
    warmup_steps: Annotated[int | None, option("Steps of linear warm-up.")] = None,
    threads: Threads = None,
    **given,
) -> None:
    """Train a draft head for a target: features, training, calibration, report."""
    set_up(threads)
    weights = _weights(loss, token_weight, feature_weight, contrastive_weight)
    preset = _optimizer(optimizer, learning_rate, warmup_steps)
    options = filled(TrainingOptions, given, weights=weights, **preset)
    library.train(filled(TrainConfig, given, options=options))


def _weights(loss: str, token: float | None, feature: float | None, contrastive: float | None) -> LossWeights:
    if loss not in LOSSES:
        raise ValueError(f"Loss must be one of {', '.join(LOSSES)}; you gave {loss!r}.")
    return replace(LOSSES[loss], **_given(token=token, feature=feature, contrastive=contrastive))


def _optimizer(name: str, learning_rate: float | None, warmup_steps: int | None) -> dict:
    preset = OFFICIAL_OPTIMIZER if name == "official" else {"optimizer": name}
    return preset | _given(learning_rate=learning_rate, warmup_steps=warmup_steps)


def _given(**values) -> dict:
    return {name: value for name, value in values.items() if value is not None}
