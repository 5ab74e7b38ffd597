"""Training options, the clock of a time budget, and the schedules of learning rate and unrolling."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from jakiro.config import require, setting
from jakiro.training.losses import LossWeights

PRECISIONS = ("float32", "bfloat16")
CLOCKS = ("wall", "processor")
# The seed of a batch's noise is a million times this and the number of the batch, in 64 bits
MAX_SEED = 2**40
# Held-out texts too: calibration is fitted on them at the end of a run
_ABOVE_ZERO = (
    "batch_tokens", "accumulate", "learning_rate", "unroll", "time_budget", "max_steps", "sampled_rows",
    "num_validation", "checkpoint_minutes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Options of a training.

    Attributes:
        accumulate: a step learns from accumulate × processes batches.
        precision: of the head's passes; weights, the target's distribution and the losses are float32.
        weights: weights of the loss terms.
        feature_noise: width of the uniform noise on the features in single-step training.
        unroll_from: after this share of the run the number of steps grows evenly to `unroll`.
        time_budget: minutes; exactly one of this and `max_steps` is given.
        time_budget_clock: see `clock_named`.
        average_from: share of the run after which an exponential moving average starts; None uses no average.
    """

    seed: int = setting("Seed of the first weights, the order of data and the noise.", 0)
    batch_tokens: int = setting("Tokens of a batch, padding included.", 2048)
    accumulate: int = setting("Batches per step and process.", 1)
    precision: str = setting(
        "float32 or bfloat16 for the head's passes; on a CPU with bfloat16 units also for the target's features.",
        "float32",
    )
    learning_rate: float = setting("Peak of the cosine schedule, which ends at zero.", 1.2e-3)
    warmup_steps: int = setting("Steps of linear warm-up.", 20)
    weights: LossWeights = field(default_factory=LossWeights)
    feature_noise: float = setting("Noise on the features, in standard deviations.", 0.25, "--noise")
    unroll: int = setting("Successive steps on the head's own features; 1 never unrolls.", 2)
    unroll_from: float = setting("Share of the run before unrolling starts.", 0.45)
    frequent_rows: int = setting("Frequent tokens that every step computes.", 4096)
    sampled_rows: int = setting("Other tokens sampled in each step; a large number takes all.", 2048)
    num_validation: int = setting("Rows of the corpus held out.", 100, "--validation-rows")
    time_budget: float | None = setting("Minutes until the schedule ends, resumed parts included.", None)
    time_budget_clock: str = setting(
        "wall, or processor: minutes of processor time, for fair comparisons on a busy machine.", "wall"
    )
    max_steps: int | None = setting("Optimizer steps until it ends, instead of a time budget.", None)
    checkpoint_minutes: float = setting("Minutes between checkpoints.", 4.0)
    average_from: float | None = setting(
        "Share of the run after which weights are averaged; the average is the head.", None
    )

    def __post_init__(self) -> None:
        if (self.time_budget is None) == (self.max_steps is None):
            raise ValueError("Give either --time-budget, in minutes, or --max-steps.")
        for label, value, values in (
            ("Precision", self.precision, PRECISIONS),
            ("Time budget clock", self.time_budget_clock, CLOCKS),
        ):
            require(value in values, f"{label} must be one of {', '.join(values)}; got {value!r}.")
        for names, is_valid, expectation in (
            (_ABOVE_ZERO, lambda value: value > 0, "must be above 0"),
            (("warmup_steps", "feature_noise", "frequent_rows"), lambda value: value >= 0, "must be at least 0"),
            (("unroll_from", "average_from"), lambda value: 0 <= value <= 1, "must be from 0 to 1"),
            (("seed",), lambda value: 0 <= value <= MAX_SEED, f"must be from 0 to {MAX_SEED:,}"),
        ):
            for name in names:
                value = getattr(self, name)
                require(value is None or is_valid(value), f"Training option {name} {expectation}; got {value}.")


def clock_named(name: str) -> Callable[[], float]:
    """Return a clock in seconds: "wall" time, or "processor" time of this process divided by its threads.

    Processor time does not run while the process is stopped or other programs use its cores, so runs on a shared
    machine can get equal shares. With one thread on an idle machine both clocks agree; with several threads that wait
    for each other or for a GPU, processor time is slower.
    """
    if name == "wall":
        return time.monotonic
    return lambda: time.process_time() / torch.get_num_threads()


def learning_rate_at(progress: float, step: int, options: TrainingOptions) -> float:
    """Return the learning rate: linear warm-up by steps, cosine to zero by progress (0 … 1)."""
    warmup = min(1.0, (step + 1) / options.warmup_steps) if options.warmup_steps else 1.0
    return options.learning_rate * warmup * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def unroll_steps_at(progress: float, options: TrainingOptions) -> int:
    """Return the number of unrolled steps: 1 until `unroll_from`, then 2, …, `unroll` for equal parts of the rest."""
    if options.unroll == 1 or progress < options.unroll_from:
        return 1
    share = (progress - options.unroll_from) / max(1e-9, 1 - options.unroll_from)
    return min(options.unroll, 2 + int(share * (options.unroll - 1)))
