"""Count the serial passes of a head in the mean step: `python -m lab.arena.passes NUMBERS --head HEAD`.

NUMBERS is the output of `evaluate --out` for that head. Its answers are replayed, and each score over all prompts gets
the field `passes`, which `lab.arena.trained --scores` reads.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import torch

from jakiro.cli.loading import set_up
from jakiro.cli.options import Prompts, Target, Threads, argument, option
from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.base import Proposal
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.tree_growth import TreeGrower
from jakiro.heads.checkpoint import load_head
from jakiro.loading import registry
from jakiro.prompts import load_questions
from jakiro.system import write_atomically
from jakiro.training.bound import BoundHead
from jakiro.training.evaluate import ALL
from jakiro.training.replay import Answer, replay
from lab import KNOWN
from lab.commands import run


def mean_passes(
    drafter: HeadDrafter, answers: Sequence[Answer], sampling: SamplingParams, tree: TreeConfig
) -> float | None:
    """Return the serial passes of the mean step along written answers; None without steps."""
    counts: list[int] = []

    def growing(*arguments) -> TreeGrower:
        grower = drafter.grower(*arguments)
        grow = grower.grow

        def counted() -> Proposal:
            proposal = grow()
            counts.append(len(grower.outputs))
            return proposal

        grower.grow = counted
        return grower

    watched = replace(drafter, grower=growing)
    for answer in answers:
        for _ in replay(watched, answer, sampling, tree):
            pass
    return sum(counts) / len(counts) if counts else None


def count(
    numbers: Annotated[Path, argument("File of evaluate --out; its scores over all prompts get passes.")],
    head: Annotated[str, option("The measured head: a known name, a folder, or a Hub id.")],
    target: Target = None,
    prompts: Prompts = None,
    answers: Annotated[str | None, option("Folder of written answers, as for evaluate.")] = None,
    threads: Threads = None,
) -> None:
    """Count a head's passes along the answers on which it was measured."""
    set_up(threads)
    results = json.loads(numbers.read_text(encoding="utf-8"))
    settings, names = results["settings"], registry.resolve(target, head)
    dtype = getattr(torch, settings["dtype"])
    draft_head = load_head(names.head_folder(), dtype=dtype, kinds=KNOWN.kinds)
    bound = BoundHead.read(draft_head, names.target_name, torch.device("cpu"), dtype)
    draft_head.pack(settings["draft_precision"])
    folder, drafter = bound.answers(16, answers), KNOWN.drafter_of(draft_head)
    questions = load_questions(prompts, settings["prompts"])
    shared = {name: settings[name] for name in ("seed", "max_new_tokens")}
    shape = {name: settings[name] for name in ("width", "depth", "contrastive")}
    for score in results["scores"]:
        if score["category"] == ALL:
            sampling = SamplingParams(score["temperature"], **shared)
            tree = TreeConfig(nodes=score["nodes"], **shape)
            score["passes"] = mean_passes(drafter, folder.answers(questions, sampling), sampling, tree)
    write_atomically(numbers, json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    run(count)
