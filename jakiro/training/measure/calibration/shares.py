"""What share of the chances that a head's trees promise is kept along answers that the target wrote.

Weights fitted at random positions promise too much where trees really stand: a step begins where the one before went
wrong, a tree keeps the candidates that look best, and a token outside the draft vocabulary is never found.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from jakiro.config import SamplingParams, TreeConfig
from jakiro.heads.base import DraftHead
from jakiro.methods.jakiro import HeadDrafter
from jakiro.training.data.answers import Answer
from jakiro.training.measure.calibration.weights import MAX_DEPTH, REGIMES
from jakiro.training.measure.replay import ReplayedStep, replay

TREE_NODES = 14
# So many candidates are taken as kept as expected before any is counted
PRIOR = 10.0


def kept_shares(
    head: DraftHead, drafter: HeadDrafter, answers: Mapping[float, Sequence[tuple[SamplingParams, Answer]]]
) -> dict[str, float]:
    """The numbers "…-kept" of a calibration, from trees with `TREE_NODES` nodes.

    Args:
        head: of the drafter, with its weights fitted; its calibration is left as it was.
        answers: by temperature, those of `REGIMES`.
    """
    before, found = head.config, {}
    head.config = replace(before, calibration=weights_alone(before.calibration))
    # A contrastive branch gives the deepest level alone, so trees of every depth are grown
    depths = range(2, MAX_DEPTH + 1) if before.contrastive else (MAX_DEPTH,)
    for temperature, written in answers.items():
        kind = REGIMES[temperature][0]
        for depth in depths:
            tree = TreeConfig(nodes=TREE_NODES, depth=depth)
            shares = shares_by_level(_steps(drafter, written, tree))
            for level, share in shares.items():
                branch = "contrastive" if before.contrastive and level == depth else "main"
                found[f"{branch}/{level}/{kind}-kept"] = round(share, 4)
    head.config = before
    return found


def weights_alone(calibration: Mapping[str, float]) -> dict[str, float]:
    """A calibration without the shares."""
    return {name: number for name, number in calibration.items() if not name.endswith("-kept")}


def shares_by_level(steps: Iterable[ReplayedStep]) -> dict[int, float]:
    """How often a level's candidates were kept over how often that was expected, where the level above was kept.

    At most 1, since a child never has a better score than its parent; near 1 where there is little to go on.
    """
    kept, expected = Counter(), Counter()
    for step in steps:
        for level, chance in enumerate(step.chances, start=1):
            kept[level] += level <= len(step.accepted_path)
            expected[level] += chance
    return {level: min((kept[level] + PRIOR) / (expected[level] + PRIOR), 1.0) for level in sorted(expected)}


def _steps(
    drafter: HeadDrafter, written: Sequence[tuple[SamplingParams, Answer]], tree: TreeConfig
) -> Iterable[ReplayedStep]:
    for sampling, answer in written:
        yield from replay(drafter, answer.ids, answer.features, answer.start, answer.end, sampling, tree)
