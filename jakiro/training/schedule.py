"""How a head is trained: the options, the clock of a budget, and learning rate and unrolling over a run."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from jakiro.config import require, setting
from jakiro.training.losses import LossWeights

PRECISIONS = ("float32", "bfloat16")
CLOCKS = ("wall", "processor")
# Noise is seeded with a million times as much and the number of the batch, in 64 bits
MAX_SEED = 2**40
# Held-out texts among them: calibration is fitted on them when the run ends
_ABOVE_ZERO = (
    "batch_tokens", "learning_rate", "unroll", "time_budget", "max_steps", "sampled_rows",
    "num_validation", "checkpoint_minutes",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """How a head is trained.

    Attributes:
        precision: weights, the target's distribution and the losses stay float32.
        weights: how the loss terms add up.
        feature_noise: uniform, on the features read in single-step training.
        unroll_from: the number of steps then grows evenly to `unroll`.
        time_budget, max_steps: exactly one of them is given. time_budget_clock: see `clock_named`.
        average_from: the average is an exponential moving one; None ends with the weights themselves.
    """

    seed: int = setting("The same seed gives the same first weights, order of data and noise.", 0)
    batch_tokens: int = setting("Tokens that a step learns from, padding included.", 2048)
    precision: str = setting(
        "float32 or bfloat16 for the head's passes; on a CPU that has it also for the target's features.", "float32"
    )
    learning_rate: float = setting("Peak of the cosine schedule, which ends at zero.", 1.2e-3)
    warmup_steps: int = setting("Steps of linear warm-up.", 20)
    weights: LossWeights = field(default_factory=LossWeights)
    feature_noise: float = setting("Noise on the features, in standard deviations.", 0.25, "--noise")
    unroll: int = setting("Successive steps on the head's own features; 1 never unrolls.", 2)
    unroll_from: float = setting("Share of the run before unrolling starts.", 0.45)
    frequent_rows: int = setting("Frequent tokens whose logits every step computes.", 4096)
    sampled_rows: int = setting("Further tokens sampled in each step; a large number takes all.", 2048)
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
        for label, value, known in (
            ("Precision", self.precision, PRECISIONS),
            ("The budget's clock", self.time_budget_clock, CLOCKS),
        ):
            require(value in known, f"{label} must be one of {', '.join(known)}; got {value!r}.")
        for names, fits, wanted in (
            (_ABOVE_ZERO, lambda value: value > 0, "must be above 0"),
            (("warmup_steps", "feature_noise", "frequent_rows"), lambda value: value >= 0, "must be at least 0"),
            (("unroll_from", "average_from"), lambda value: 0 <= value <= 1, "is a share of the run, from 0 to 1"),
            (("seed",), lambda value: 0 <= value <= MAX_SEED, f"must be from 0 to {MAX_SEED:,}"),
        ):
            for name in names:
                value = getattr(self, name)
                require(value is None or fits(value), f"Training option {name} {wanted}; got {value}.")


def clock_named(name: str) -> Callable[[], float]:
    """A clock in seconds: "wall" is what a person waits; "processor" is what this process computed, by thread.

    The second stands still while the process is stopped or other programs have its cores, so runs on a shared machine
    can be given equal shares. With one thread on a quiet machine both count the same; several threads that wait for
    each other, or for a GPU, make it slower than the wall's.
    """
    if name == "wall":
        return time.monotonic
    return lambda: time.process_time() / torch.get_num_threads()


def learning_rate_at(progress: float, step: int, options: TrainingOptions) -> float:
    """Linear warm-up by steps, cosine to zero by progress (0 … 1)."""
    warmup = min(1.0, (step + 1) / options.warmup_steps) if options.warmup_steps else 1.0
    return options.learning_rate * warmup * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))


def unroll_steps_at(progress: float, options: TrainingOptions) -> int:
    """1 until `unroll_from`, then 2, …, `unroll` for equal parts of the rest."""
    if options.unroll == 1 or progress < options.unroll_from:
        return 1
    share = (progress - options.unroll_from) / max(1e-9, 1 - options.unroll_from)
    return min(options.unroll, 2 + int(share * (options.unroll - 1)))
