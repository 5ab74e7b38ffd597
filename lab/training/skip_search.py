"""Search for layers of a target that draft best for it: `python -m lab.training.skip_search CORPUS`.

Leaves out one layer after another on some text, measures every subset on other text, times drafts and passes on this
machine, and saves the subset with the fastest predicted chains.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
import typer

from jakiro.backends.torch_backend import TorchBackend
from jakiro.cli.loading import set_up
from jakiro.cli.options import CorpusPaths, Target, Threads, option
from jakiro.config import require
from jakiro.decode.device_profile import time_drafts, time_passes
from jakiro.drafters.head import HeadDrafter
from jakiro.loading import registry, weights
from jakiro.models.target import TargetModel
from jakiro.ops.linear import packs_bfloat16
from jakiro.training.calibrate import fit_weights
from jakiro.training.corpus import Row, read_corpus
from jakiro.training.split import in_order_of_content
from lab.commands import run
from lab.figures import markdown
from lab.layers.plan import LayerPlan, plan_path
from lab.methods.skip import DRAFT_VOCABULARY, SkippingHead
from lab.training.layer_search import LayerStack, Subset, best_speed, break_even, leave_out

# Tokens of each text; the first ones are part of the chat template, which is easy to predict
LENGTH, TEMPLATE = 160, 32
LONGEST_CHAIN = 4


def skip_search(
    corpora: CorpusPaths,
    target: Target = None,
    out: Annotated[Path | None, option("Output file; default: where the method skip finds it.")] = None,
    texts: Annotated[int, option("Number of texts for the search.")] = 5,
    measured: Annotated[int, option("Number of other texts for the measurement.")] = 16,
    fewest: Annotated[int, option("Layers of the smallest subset.", min=2)] = 6,
    threads: Threads = None,
) -> None:
    """Search for layers that a target can leave out to draft for itself."""
    set_up(threads)
    name = target or registry.DEFAULT_TARGET
    rows = [row for row in in_order_of_content(read_corpus(corpora)) if len(row.ids) >= LENGTH]
    enough = len(rows) >= texts + measured
    require(enough, f"{texts + measured} texts of {LENGTH} tokens are needed; the corpus has {len(rows)}.")
    model, tokenizer, sha256 = weights.load_target(target, "cpu", "float32")
    half = packs_bfloat16(model.device, torch.bfloat16)
    with torch.inference_mode():
        searched = LayerStack(model, _ids(rows[:texts]), TEMPLATE, DRAFT_VOCABULARY, half)
        held_out = LayerStack(model, _ids(rows[texts : texts + measured]), TEMPLATE, DRAFT_VOCABULARY, half)
        subsets = []
        for subset in leave_out(searched, fewest):
            subsets.append(held_out.compared(held_out.run(held_out.first, subset.layers), subset.layers))
            typer.echo(
                f"{len(subset.layers)} layers: agreement {subsets[-1].agreement:.3f}, left {list(subset.layers)}"
            )
    costs = timed(TargetModel(model, tokenizer, name, sha256), subsets)
    table, best = _table(subsets, *costs)
    typer.echo(table)
    manifest = {"target": name, "sha256": sha256, "agreement": best.agreement, "searched_texts": texts}
    plan = LayerPlan(best.layers, _calibration(held_out, best), manifest)
    path = out or plan_path(name)
    plan.save(path)
    typer.echo(f"Selected {len(best.layers)} layers; wrote {path}.")


def _ids(rows: Sequence[Row]) -> torch.Tensor:
    return torch.tensor([row.ids[:LENGTH] for row in rows])


@torch.inference_mode()
def _calibration(stack: LayerStack, subset: Subset) -> dict[str, float]:
    """Return the weights of log q and of the noise for all levels; see `jakiro.training.calibrate`."""
    log_q = stack.log_probs(stack.run(stack.first, subset.layers))
    generator = torch.Generator().manual_seed(0)
    noise = -torch.empty(log_q.shape).exponential_(generator=generator).log_()
    (greedy,) = fit_weights((log_q,), stack.choices)
    sampled, of_noise = fit_weights((log_q, noise), (stack.wanted + noise).argmax(-1))
    fitted = {"greedy": greedy, "sampled": sampled, "noise": of_noise}
    return {f"main/{depth}/{kind}": round(value, 4) for depth in range(1, 7) for kind, value in fitted.items()}


def timed(target: TargetModel, subsets: Sequence[Subset]) -> tuple[list[float], list[float]]:
    """Return the median milliseconds of a drafted token per subset and of target passes over 1, 2, … rows."""
    backend = TorchBackend(target)
    heads = [SkippingHead(target, LayerPlan(subset.layers)).pack() for subset in subsets]
    drafters = [HeadDrafter(head, has_evidence=False) for head in heads]
    passes = time_passes(backend, drafters[0], range(1, LONGEST_CHAIN + 2))
    chains = [time_drafts(backend, drafter, [LONGEST_CHAIN]) for drafter in drafters]
    drafts = [milliseconds / length for ((length, milliseconds),) in chains]
    return drafts, [milliseconds for _, milliseconds in passes]


def _table(subsets: Sequence[Subset], drafts: Sequence[float], passes: Sequence[float]) -> tuple[str, Subset]:
    """Return a Markdown table of all subsets, and the subset with the fastest predicted chains."""
    rows, speeds = [], []
    for subset, draft in zip(subsets, drafts, strict=True):
        speed, length = best_speed(subset.agreement, draft, passes)
        speeds.append(speed)
        numbers = (subset.agreement, subset.total_variation, draft, break_even(draft, passes[0], passes[1]), speed)
        rows.append([str(len(subset.layers)), *(f"{number:.2f}" for number in numbers), str(length)])
    columns = ["layers", "agreement", "total variation", "draft, ms", "break-even", "best speed", "chain"]
    note = f"Passes over 1, 2, … rows: {', '.join(f'{milliseconds:.2f}' for milliseconds in passes)} ms."
    return f"{markdown(columns, rows)}\n{note}", subsets[speeds.index(max(speeds))]


if __name__ == "__main__":
    run(skip_search)
