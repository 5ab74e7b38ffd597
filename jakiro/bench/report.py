"""Statistics of a benchmark: speed, tau, acceptance by depth, speedup with interval and prediction, equal texts.

Pure arithmetic over `Run` records. Definitions: tau = accepted draft tokens per step + 1, pooled over steps, before any
cut; speedup = plain seconds per token ÷ a lane's seconds per token over the same prompts, temperatures and seeds (the
same as seconds ÷ seconds where the texts are equal); prediction = tau · T₁ ÷ (T_draft + T_verify + T_other), T₁ = plain
decoding's mean step. Speeds count the tokens after the first; prefill belongs to no lane. The end-to-end speedup adds
each lane's own prefill to its seconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from jakiro.bench.runner import PLAIN_FAST, Lane, Run
from jakiro.drafters.registry import PLAIN

OVERALL = "overall"
NUM_RESAMPLES = 2000
FEWEST_PROMPTS = 8


@dataclass(frozen=True, slots=True)
class Group:
    """Statistics of one lane at one temperature over one category, or over all of them.

    Attributes:
        speed: tokens of all runs ÷ their seconds; speedups are ratios of these where texts are equal.
        tokens_per_second: 25 %, 50 % and 75 % of the runs' speeds. Both None where no run decoded anything.
        acceptance_by_depth: (kept, tested) steps for depth 1, 2, …
        draft_ms, verify_ms, other_ms: means over steps.
        speedup, speedup_interval: against the plain lane named `baseline`, with a 95 % bootstrap interval over prompts;
            None for fewer than `FEWEST_PROMPTS`.
        end_to_end: the speedup including the prefill; None if the prefill was not measured.
        predicted: the speedup predicted by tau and the parts of a step; None for lanes without recorded steps.
        prompt_speedups: the speedup of each prompt, in the order of the runs.
        identical: share of runs with plain decoding's token ids; None if they may differ.
    """

    lane: str
    temperature: float
    category: str
    baseline: str
    num_runs: int
    num_tokens: int
    speed: float | None
    tokens_per_second: tuple[float, float, float] | None
    tau: float | None
    acceptance_by_depth: tuple[tuple[int, int], ...]
    draft_ms: float | None
    verify_ms: float | None
    other_ms: float | None
    speedup: float | None
    speedup_interval: tuple[float, float] | None
    end_to_end: float | None
    predicted: float | None
    identical: float | None
    prompt_speedups: tuple[float, ...]


def summarise(runs: Sequence[Run]) -> list[Group]:
    """Return a group for every temperature, category and lane, the overall groups first."""
    groups = []
    for temperature in dict.fromkeys(run.temperature for run in runs):
        at_temperature = [run for run in runs if run.temperature == temperature]
        baseline = fastest_plain(at_temperature)
        for category in (OVERALL, *dict.fromkeys(run.category for run in at_temperature)):
            members = [run for run in at_temperature if category in (OVERALL, run.category)]
            lanes = dict.fromkeys(run.lane for run in members)
            groups += [_group(lane, temperature, category, members, baseline) for lane in lanes]
    return groups


def fastest_plain(runs: Sequence[Run]) -> Lane | None:
    """Return the plain lane with more tokens per second over these runs; it is the baseline of speedups."""
    lanes = [lane for lane in dict.fromkeys(run.lane for run in runs) if lane.method in (PLAIN.name, PLAIN_FAST)]
    return min(lanes, key=lambda lane: _seconds_per_token(_of(runs, lane)) or float("inf"), default=None)


def bootstrap_interval(pairs: Sequence[tuple[float, float, float, float]]) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of the pooled speedup over prompts; None for fewer than `FEWEST_PROMPTS`.

    With few prompts the interval is too narrow: it can exclude the speedup of every prompt.

    Args:
        pairs: per prompt (plain seconds, plain tokens, seconds, tokens).
    """
    return resampled_interval(pairs, _ratio)


def resampled_interval(
    values: Sequence[Sequence[float]], statistic: Callable[..., np.ndarray]
) -> tuple[float, float] | None:
    """Return the 95 % bootstrap interval of a statistic of sums over prompts; None for fewer than `FEWEST_PROMPTS`.

    Args:
        values: (num_prompts, num_values).
        statistic: function of the sums over prompts, one array of (num_resamples,) per value.
    """
    if len(values) < FEWEST_PROMPTS:
        return None
    table = np.array(values, dtype=float)
    chosen = np.random.default_rng(0).integers(len(table), size=(NUM_RESAMPLES, len(table)))
    low, high = np.quantile(statistic(*table[chosen].sum(axis=1).T), [0.025, 0.975])
    return float(low), float(high)


def speed_ratio(runs: Sequence[Run], baseline_runs: Sequence[Run]) -> tuple[float | None, tuple[float, float] | None]:
    """Return the ratio of a lane's speed to another's over the prompts of both, and its 95 % interval."""
    pairs = _by_prompt(_matched(runs, baseline_runs))
    return _pooled_speedup(pairs), bootstrap_interval(pairs)


def _group(lane: Lane, temperature: float, category: str, members: Sequence[Run], baseline: Lane | None) -> Group:
    runs = _of(members, lane)
    plain = _of(members, baseline) if baseline else []
    matched = _matched(runs, plain)
    pairs = _by_prompt(matched)
    speedup = _pooled_speedup(pairs)
    steps = sum(run.num_steps for run in runs)
    draft, verify, other = (
        sum(getattr(run, name) for run in runs) / steps if steps else None
        for name in ("draft_ms", "verify_ms", "other_ms")
    )
    tau = sum(run.num_accepted for run in runs) / steps + 1 if steps else None
    plain_steps = sum(run.num_steps for run in plain)
    predicted = None
    if steps and plain_steps:
        plain_ms = 1000 * sum(run.seconds for run in plain) / plain_steps
        predicted = tau * plain_ms / (draft + verify + other)
    speeds = [run.tokens_per_second for run in runs if run.tokens_per_second is not None]
    seconds_per_token = _seconds_per_token(runs)
    read = [pair for pair in matched if all(run.prefill_ms is not None for run in pair)]
    compared = [plain_run.token_ids == run.token_ids for plain_run, run in matched if run.comparable]
    return Group(
        lane=lane.name,
        temperature=temperature,
        category=category,
        baseline=baseline.name if baseline else "",
        num_runs=len(runs),
        num_tokens=sum(run.decoded for run in runs),
        speed=1 / seconds_per_token if seconds_per_token else None,
        tokens_per_second=tuple(float(value) for value in np.quantile(speeds, [0.25, 0.5, 0.75])) if speeds else None,
        tau=tau,
        acceptance_by_depth=_by_depth(runs),
        draft_ms=draft,
        verify_ms=verify,
        other_ms=other,
        speedup=speedup,
        speedup_interval=bootstrap_interval(pairs) if lane != baseline else None,
        end_to_end=_pooled_speedup(_by_prompt(read, True)),
        predicted=predicted if lane != baseline else None,
        identical=sum(compared) / len(compared) if compared else None,
        prompt_speedups=tuple(_pooled_speedup([pair]) for pair in pairs) if lane != baseline else (),
    )


def _matched(runs: Sequence[Run], baseline_runs: Sequence[Run]) -> list[tuple[Run, Run]]:
    """Return (baseline run, run) for every prompt, turn and settings that both lanes have."""
    by_key = {run.key: run for run in baseline_runs}
    return [(by_key[run.key], run) for run in runs if run.key in by_key]


def _of(runs: Sequence[Run], lane: Lane) -> list[Run]:
    return [run for run in runs if run.lane == lane]


def _seconds_per_token(runs: Sequence[Run]) -> float | None:
    tokens = sum(run.decoded for run in runs)
    return sum(run.seconds for run in runs) / tokens if tokens else None


def _by_prompt(
    matched: Sequence[tuple[Run, Run]], with_prefill: bool = False
) -> list[tuple[float, float, float, float]]:
    """Return (plain seconds, plain tokens, seconds, tokens) per prompt, summed over its turns and seeds.

    Turns and seeds of a prompt are not independent, so they are resampled together. Prompts without decoded tokens are
    left out.
    """

    def seconds_of(run: Run) -> float:
        return run.seconds + (run.prefill_ms / 1000 if with_prefill else 0)

    sums: dict[str, list[float]] = {}
    for plain, run in matched:
        total = sums.setdefault(run.question_id, [0.0] * 4)
        for index, value in enumerate((seconds_of(plain), plain.decoded, seconds_of(run), run.decoded)):
            total[index] += value
    return [tuple(total) for total in sums.values() if min(total) > 0]


def _pooled_speedup(pairs: Sequence[tuple[float, float, float, float]]) -> float | None:
    return _ratio(*map(sum, zip(*pairs, strict=True))) if pairs else None


def _ratio(plain_seconds, plain_tokens, seconds, tokens):
    """Return plain decoding's seconds per token divided by a lane's; arguments are numbers or arrays."""
    return (plain_seconds / plain_tokens) / (seconds / tokens)


def _by_depth(runs: Sequence[Run]) -> tuple[tuple[int, int], ...]:
    kept = map(sum, zip_longest(*(run.kept for run in runs), fillvalue=0))
    tested = map(sum, zip_longest(*(run.tested for run in runs), fillvalue=0))
    return tuple(zip_longest(kept, tested, fillvalue=0))
