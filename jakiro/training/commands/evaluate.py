"""The command `evaluate`: what methods reach on prompts in τ; the target writes each answer only once."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.table import Table

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafting.base import Method, Resources, why_not
from jakiro.heads.base import known_precision
from jakiro.heads.checkpoint import head_sha256, load_head
from jakiro.methods import METHODS, Methods
from jakiro.methods import methods_from as methods_of
from jakiro.prompts import load_questions
from jakiro.system import cache_folder, comma_list
from jakiro.target.model import TargetModel
from jakiro.training.answers import AnswerFolder
from jakiro.training.commands.options import Device, Dtype, MethodsFrom, Prompts, Target, Threads, option, set_up
from jakiro.training.evaluate import ALL, Score, experts_on, scores
from jakiro.zoo import table as zoo
from jakiro.zoo.loading import choose_device, choose_dtype, further_heads, read_target

DEFINITION = "τ = accepted draft tokens per step + 1 (the bonus token), pooled over steps, before any cut."


def evaluate(
    head: Annotated[str | None, option("Draft head: a known name, a folder, or a Hub id.")] = None,
    target: Target = None,
    methods: Annotated[
        str | None,
        option("Comma list, see `jakiro methods`, or all that can be replayed; if not given, the head's own."),
    ] = None,
    prompts: Prompts = None,
    limit: Annotated[int | None, option("At most this many prompts, from all categories in turn.")] = None,
    max_new_tokens: Annotated[int, option("Longest answer.")] = 128,
    temperatures: Annotated[str, option("Comma list.")] = "0,1",
    nodes: Annotated[str, option("Comma list of node budgets, root included.")] = "8,16,24",
    width: Annotated[int, option("Children tried per node and nodes expanded per level.")] = 8,
    depth: Annotated[int, option("Depth of a tree's deepest node.")] = 5,
    contrastive: Annotated[bool, option("With --no-contrastive the last level costs one more pass instead.")] = True,
    seed: Annotated[int, option("The same seed gives the same answers and noise.")] = 0,
    answers: Annotated[
        Path | None, option("Folder of written answers, for any head; else in the user's cache.")
    ] = None,
    batch_size: Annotated[int, option("Answers written at once.")] = 16,
    out: Annotated[Path | None, option("Write the numbers to this JSON file.")] = None,
    device: Device = None,
    dtype: Dtype = None,
    draft_precision: Annotated[str, option("On a CPU: int8, as heads run there, or full.")] = "int8",
    threads: Threads = None,
    methods_from: MethodsFrom = None,
) -> None:
    """Measure tau on prompts: the target writes each answer once, every head, method and tree replays it."""
    set_up(threads)
    known = METHODS.with_further(methods_of(methods_from or ()))
    replayed = [] if methods is None else _replayed(methods, known)
    if out is not None and not out.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {out.absolute().parent} for the numbers.")
    known_precision(draft_precision)
    budgets = comma_list("--nodes", nodes, int)
    trees = [TreeConfig(width=width, depth=depth, nodes=count, contrastive=contrastive) for count in budgets]
    samplings = [
        SamplingParams(temperature=temperature, seed=seed, max_new_tokens=max_new_tokens)
        for temperature in comma_list("--temperatures", temperatures, float)
    ]
    place = choose_device(device)
    precision = choose_dtype(dtype, place)
    questions = load_questions(prompts, limit)
    pair = zoo.resolve(target, head)
    draft_head = load_head(pair.head_folder(), place, precision, known.networks)
    model, tokenizer, sha256 = read_target(pair.target_name, place, precision)
    answers, layers = answers or cache_folder() / "answers", draft_head.config.feature_layers
    folder = AnswerFolder(model, tokenizer, sha256 or pair.target_name, answers, batch_size, layers)
    output_weight = model.get_output_embeddings().weight
    draft_head.bind(model.get_input_embeddings().weight, output_weight)
    written = [folder.answers(questions, sampling) for sampling in samplings]
    experts = {}
    if draft_head.config.network == "layers":
        experts = experts_on(draft_head, [answer for texts in written for answer in texts], output_weight)
    draft_head.pack(draft_precision)
    target_model = TargetModel(model, tokenizer, pair.target_name, sha256, "fast").with_feature_layers(layers)
    info = {"name": pair.head_name, "sha256": head_sha256(pair.head_path)}
    further = further_heads(pair, target_model, draft_precision, known.networks)
    resources = Resources(target_model, draft_head, info, further)
    drafters = {method.name: method.load(resources) for method in _suited(methods, replayed, resources, known)}
    found = [
        score
        for name, drafter in drafters.items()
        for texts, sampling in zip(written, samplings, strict=True)
        for score in scores(name, drafter, texts, sampling, trees)
    ]
    _show(found, experts)
    if out is not None:
        numbers = {
            "target": {"name": zoo.short_name(pair.target_name), "sha256": sha256},
            "head": info | {"name": zoo.short_name(pair.head_name)},
            "settings": {
                "prompts": len(questions), "max_new_tokens": max_new_tokens, "width": width, "depth": depth,
                "contrastive": contrastive, "seed": seed, "dtype": str(precision).removeprefix("torch."),
                "draft_precision": draft_head.precision,
            },
            "scores": [asdict(score) for score in found],
            "experts": experts,
        }  # fmt: skip
        out.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


def _replayed(names: str, known: Methods) -> list[Method]:
    """The methods of a comma list, or all that written answers can be replayed with.

    Raises:
        ValueError: an unknown method, or one that written answers do not suffice for.
    """
    if names == "all":
        return [method for method in known.values() if not method.needs.logits]
    found = [known.named(name) for name in comma_list("--methods", names, str)]
    for method in found:
        if method.needs.logits:
            raise ValueError(f"{method.name} learns from the target's logits, which written answers do not hold.")
    return found


def _suited(names: str | None, replayed: list[Method], resources: Resources, known: Methods) -> list[Method]:
    """Those of the methods that the heads at hand suit; where none is named, the one that the head is trained for.

    Raises:
        ValueError: a method is named that has no head here.
    """
    if names is None:
        kind = resources.head.config.kind
        return [method for method in known.values() if method.trains is not None and method.needs.head[0] == kind]
    refused = {method.name: why_not(method, resources) for method in replayed}
    for sentence in refused.values() if names != "all" else ():
        if sentence is not None:
            raise ValueError(f"{sentence}.")
    return [method for method in replayed if refused[method.name] is None]


def _show(found: Sequence[Score], experts: dict[str, float]) -> None:
    console = Console()
    console = console if console.is_terminal else Console(width=150)
    overall = [score for score in found if score.category == ALL]
    table = Table("method", "temperature", "nodes", "τ", "steps", "acceptance by depth", "accepted tokens by proposer")
    for score in overall:
        by_depth = " ".join(f"{kept / tested:.2f}" for kept, tested in score.acceptance_by_depth if tested)
        shares = ", ".join(f"{name} {share:.0%}" for name, share in score.accepted_share.items())
        table.add_row(
            *(score.method, f"{score.temperature:g}", str(score.nodes), _number(score.tau), str(score.num_steps)),
            *(by_depth, shares),
        )
    console.print(table)
    columns = list(dict.fromkeys((score.temperature, score.nodes) for score in overall))
    names = [f"T {temperature:g}, {nodes} nodes" for temperature, nodes in columns]
    table = Table("category", "prompts", "method", *names)
    by_key = {(score.category, score.method, score.temperature, score.nodes): score for score in found}
    for category, method in dict.fromkeys((score.category, score.method) for score in found):
        row = [by_key[category, method, *column] for column in columns]
        table.add_row(category, str(row[0].num_prompts), method, *(_number(score.tau) for score in row))
    console.print(table)
    if experts:
        _show_experts(console, experts)
    console.print(DEFINITION, style="dim")


def _show_experts(console: Console, experts: dict[str, float]) -> None:
    console.print(
        f"Experts: first guesses differ at {experts['differ']:.0%}; the better one is right at "
        f"{experts['best_expert_top1']:.1%}, one of them at {experts['union_top1']:.1%} "
        f"(gain {experts['gain']:.1%}); router entropy {experts['entropy']:.2f} bit, mean weight of the first "
        f"{experts['mean_weight_0']:.2f}."
    )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
