"""What sets the arena's methods apart, measured on written answers: `python -m lab.training.family`.

Prints the figures of *Methods* in lab/README.md: acceptance rules, GSD's saved rows, ADED over an answer's length and
by source, and the texts that several beginnings of the target's would change; with a Gumiho head those that shared
nodes would change.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from jakiro.cli.loading import set_up
from jakiro.cli.options import Target, Threads, option
from jakiro.config import About, SamplingParams, TreeConfig
from jakiro.drafters.base import Drafter
from jakiro.heads.checkpoint import load_head
from jakiro.heads.layer_head import LayerHead
from jakiro.loading import registry, weights
from jakiro.models.target import TargetModel
from jakiro.prompts import load_questions
from jakiro.system import cache_folder, errors_as_one_sentence
from jakiro.trace import pooled_tau
from jakiro.training.answers import AnswerFolder
from jakiro.training.replay import Answer, replay
from lab import KNOWN
from lab.methods.gsd import graph_drafter
from lab.published.aded import TrigramDrafter
from lab.published.gumiho.drafting import SERIAL, staged_drafter
from lab.published.gumiho.network import GumihoHead
from lab.published.mcsd import static_drafter
from lab.published.trigrams import TrigramTable, find_table
from lab.training.acceptance import COUNTS, accepted_shares, pair, write_chart
from lab.training.hits import hits_by_source
from lab.training.shared_nodes import SharedCounts, shared_nodes
from lab.training.what_if import what_if

# By the distance of q from p: sharpness of p, spread of q's logits around p's
PAIRS = {"near": (3.0, 0.55), "far": (3.0, 1.2), "far and flat": (1.0, 1.2)}
TREE = TreeConfig(width=8, depth=5, nodes=24, contrastive=False)
BELOW = TreeConfig(width=8, depth=3, nodes=11)
BINS = ((0, 32), (32, 64), (64, 128))


def rule_tables() -> dict[str, dict[str, list[float]]]:
    """Acceptance by rule for each pair, titled with its total variation distance."""
    found = {}
    for name, (sharpness, distance) in PAIRS.items():
        p, q = pair(200, sharpness, distance)
        found[f"{name}: TV {float((p - q).abs().sum() / 2):.2f}"] = accepted_shares(p, q)
    return found


def graph_rows(head: LayerHead, answers: Sequence[Answer], sampling: SamplingParams) -> list[str]:
    """A line for each number of shared tokens: τ and rows drafted a step."""
    lines = []
    for shared in (0, 2, 1):
        drafter, rows = graph_drafter(head, shared=shared), []
        watch = head.register_forward_hook(lambda _, inputs, __, rows=rows: rows.append(inputs[0].shape[1]))
        steps = _steps(drafter, answers, sampling, TREE)
        watch.remove()
        read = sum(answer.end - 1 for answer in answers)
        rows_a_step = (sum(rows) - read) / len(steps)
        label = "nothing" if shared == 0 else f"{shared} token{'s' if shared > 1 else ''}"
        lines.append(f"| {sampling.temperature:g} | {label} | {rows_a_step:.2f} | {pooled_tau(steps):.3f} |")
    return lines


def over_length(answers: Sequence[Answer], sampling: SamplingParams, table: TrigramTable) -> list[str]:
    """A line for live and frozen trigrams: τ by the place in the answer where a step begins."""
    lines = []
    for live in (True, False):
        drafter, parts = TrigramDrafter(table, live=live), [[] for _ in BINS]
        for answer in answers:
            place = 0
            for step in _steps(drafter, [answer], sampling, TREE):
                for part, (first, last) in zip(parts, BINS, strict=True):
                    if first <= place < last:
                        part.append(step)
                place += len(step.accepted_path) + 1
        cells = " | ".join(f"{pooled_tau(part):.2f}" if part else "–" for part in parts)
        lines.append(f"| {sampling.temperature:g} | {'live' if live else 'frozen'} | {cells} |")
    return lines


def by_source(answers: Sequence[Answer], sampling: SamplingParams, table: TrigramTable) -> list[str]:
    """A line for each source of trigrams: where it knows two tokens, where the next one, and where no other does."""
    num_places, found = hits_by_source(answers, table)
    return [
        f"| {sampling.temperature:g} | {source} | {hits.known / num_places:.0%} | {hits.hit / max(1, hits.known):.0%} "
        f"| {hits.hit / num_places:.0%} | {hits.alone / num_places:.0%} |"
        for source, hits in found.items()
    ]


def shared_line(head: GumihoHead, target: TargetModel, answers: Sequence[Answer], sampling: SamplingParams) -> str:
    """What sharing the parallel levels' nodes would have changed."""
    counts = [shared_nodes(target, staged_drafter(head), each, sampling, TREE, SERIAL) for each in answers]
    steps, changed, leaves, other, accepted, shared = (
        sum(getattr(each, name) for each in counts) for name in SharedCounts.__dataclass_fields__
    )
    texts = sum(each.num_changed > 0 for each in counts)
    return (
        f"| {sampling.temperature:g} | {changed} of {steps} steps | {texts} of {len(counts)} texts "
        f"| {other} of {leaves} leaves | {accepted / steps + 1:.2f} | {shared / steps + 1:.2f} |"
    )


def _steps(drafter: Drafter, answers: Sequence[Answer], sampling: SamplingParams, tree: TreeConfig) -> list:
    return [step for answer in answers for step in replay(drafter, answer, sampling, tree)]


def family(
    target: Target = None,
    head: Annotated[str | None, option("Draft head: a known name, a folder, or a Hub id.")] = None,
    limit: Annotated[int, option(About.LIMIT)] = 40,
    max_new_tokens: Annotated[int, option("Longest answer.")] = 96,
    chart: Annotated[Path | None, option("Draw the acceptance rules to this html file.")] = None,
    threads: Threads = None,
) -> None:
    """Print the figures of *Methods* in lab/README.md."""
    set_up(threads)
    _print_rules(chart)
    names = registry.resolve(target, head)
    draft_head = load_head(names.head_folder(), "cpu", kinds=KNOWN.kinds)
    model, tokenizer, sha256 = weights.load_target(names.target_name, "cpu", "float32")
    layers = draft_head.config.feature_layers
    folder = AnswerFolder(
        model, tokenizer, sha256 or names.target_name, cache_folder() / "answers", feature_layers=layers
    )
    questions = load_questions(limit=limit)
    samplings = [SamplingParams(temperature, max_new_tokens=max_new_tokens) for temperature in (0.0, 1.0)]
    written = [folder.answers(questions, sampling) for sampling in samplings]
    draft_head.bind(model.get_input_embeddings().weight, model.get_output_embeddings().weight)
    draft_head.pack()
    scoring = TargetModel(model, tokenizer, names.target_name, sha256)
    if isinstance(draft_head, GumihoHead):
        for answers, sampling in zip(written, samplings, strict=True):
            typer.echo(shared_line(draft_head, scoring, answers, sampling))
        return
    path = find_table(names.target_name)
    table = TrigramTable.empty(len(tokenizer)) if path is None else TrigramTable.load(path)
    for answers, sampling in zip(written, samplings, strict=True):
        typer.echo("\n".join(graph_rows(draft_head, answers, sampling)))
        typer.echo("\n".join([*over_length(answers, sampling, table), *by_source(answers, sampling, table)]))
    for answers, sampling in zip(written, samplings, strict=True):
        counts = [what_if(scoring, static_drafter(draft_head), each, sampling, 4, BELOW) for each in answers]
        steps, changed = sum(each.num_steps for each in counts), sum(each.num_changed for each in counts)
        texts = sum(each.num_changed > 0 for each in counts)
        own, longest = (sum(getattr(each, name) for each in counts) / steps for name in ("accepted", "longest"))
        typer.echo(
            f"| {sampling.temperature:g} | {changed} of {steps} steps | {texts} of {len(counts)} texts "
            f"| {own + 1:.2f} | {longest + 1:.2f} |"
        )


def _print_rules(chart: Path | None) -> None:
    tables = rule_tables()
    typer.echo(f"| | rule | {' | '.join(f'k = {count}' for count in COUNTS)} |")
    for title, shares in tables.items():
        for rule, values in shares.items():
            typer.echo(f"| {title} | {rule} | {' | '.join(f'{value:.2f}' for value in values)} |")
    if chart is not None:
        write_chart(chart, tables)


if __name__ == "__main__":
    with errors_as_one_sentence():
        typer.run(family)
