"""τ on prompts: stored answers are replayed with a drafter, for several temperatures and tree sizes.

`evaluate(config)` loads a pair and measures it; the target generates each answer only once, for all heads and trees.
`answers.py` generates and stores them, `replay.py` computes the steps.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jakiro.config import About, SamplingParams, TreeConfig, is_count, require, setting
from jakiro.drafters.base import Drafter, Method, Resources, why_not
from jakiro.drafters.registry import METHODS, Methods
from jakiro.drafters.registry import methods_from as methods_of
from jakiro.heads.base import known_precision
from jakiro.heads.checkpoint import head_sha256, load_head
from jakiro.loading import registry
from jakiro.loading.loader import choose_device, choose_dtype, further_heads
from jakiro.models.target import TargetModel
from jakiro.prompts import load_questions
from jakiro.trace import acceptance_by_depth, pooled_tau
from jakiro.training.bound import BoundHead
from jakiro.training.replay import Answer, replay

ALL = "all"


@dataclass(frozen=True, slots=True)
class EvaluateConfig:
    """Settings of an evaluation, as plain data."""

    head: str | None = setting(About.HEAD, None)
    target: str | None = setting(About.TARGET, None)
    methods: tuple[str, ...] | None = setting(
        "Comma list, see `methods`, or all (that can be replayed); if not given, the head's method.", None
    )
    methods_from: tuple[str, ...] = setting(About.METHODS_FROM, (), repeated=True)
    prompts: str | None = setting(About.PROMPTS, None)
    limit: int | None = setting(About.LIMIT, None)
    max_new_tokens: int = setting(About.MAX_NEW_TOKENS, 128)
    temperatures: tuple[float, ...] = setting(About.TEMPERATURES, (0.0, 1.0))
    nodes: tuple[int, ...] = setting("Comma list of tree sizes in nodes, root included.", (8, 16, 24))
    width: int = setting(About.WIDTH, 8)
    depth: int = setting("Depth of a tree's deepest node.", 5)
    contrastive: bool = setting("With --no-contrastive the last level costs one more pass instead.", True)
    seed: int = setting("The same seed gives the same answers and noise.", 0)
    answers: str | None = setting("Folder of stored answers, for any head; if not given, in the user's cache.", None)
    batch_size: int = setting("Answers generated at once.", 16)
    device: str | None = setting(About.DEVICE, None)
    dtype: str | None = setting(About.DTYPE, None)
    draft_precision: str = setting("On a CPU: int8, the default of decoding, or full.", "int8")
    template_arguments: str | None = setting(About.TEMPLATE_ARGUMENTS, None)

    def __post_init__(self) -> None:
        require(is_count(self.batch_size, 1), f"Batch size must be 1 or more; got {self.batch_size}.")


@dataclass(frozen=True, slots=True)
class Score:
    """Result of one tree size over the prompts of one category.

    Attributes:
        method: name of the method.
        temperature: of the answers.
        nodes: number of nodes of the trees.
        category: of the prompts, or "all".
        tau: accepted draft tokens per step + 1, pooled over steps, before any cut; None without steps.
        num_steps: number of steps in `tau`.
        num_prompts: number of prompts in `tau`.
        acceptance_by_depth: (accepted, tested) steps for depth 1, 2, …
        accepted_share: share of the accepted draft tokens by proposer.
        prompts: (steps, accepted draft tokens) of each prompt.
    """

    method: str
    temperature: float
    nodes: int
    category: str
    tau: float | None
    num_steps: int
    num_prompts: int
    acceptance_by_depth: tuple[tuple[int, int], ...]
    accepted_share: dict[str, float]
    prompts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of `evaluate`.

    Attributes:
        target: name, without the path of a folder, and hash.
        head: the same of the head.
        settings: settings on which the numbers depend.
        scores: by method, temperature, number of nodes and category.
    """

    target: dict
    head: dict
    settings: dict
    scores: tuple[Score, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"


def evaluate(config: EvaluateConfig) -> Evaluation:
    """Measure a head's τ on prompts.

    Raises:
        ValueError, OSError: one sentence.
    """
    methods = METHODS.with_further(methods_of(config.methods_from))
    for method in (methods.named(name) for name in config.methods or () if name != ALL):
        sentence = f"{method.name} learns from the target's logits, which stored answers do not have."
        require(not method.needs.logits, sentence)
    known_precision(config.draft_precision)
    shape = {"width": config.width, "depth": config.depth, "contrastive": config.contrastive}
    trees = [TreeConfig(nodes=count, **shape) for count in config.nodes]
    limits = {"seed": config.seed, "max_new_tokens": config.max_new_tokens}
    samplings = [SamplingParams(temperature, **limits) for temperature in config.temperatures]
    questions = load_questions(config.prompts and Path(config.prompts), config.limit)
    names = registry.resolve(config.target, config.head)
    device = choose_device(config.device)
    dtype = choose_dtype(config.dtype, device)
    # The head is small and is checked first
    head = load_head(names.head_folder(), device, dtype, methods.kinds)
    bound = BoundHead.read(head, names.target_name, device, dtype, config.template_arguments)
    answers = bound.answers(config.batch_size, config.answers)
    texts = [answers.answers(questions, sampling) for sampling in samplings]
    info = {"name": names.head_name, "sha256": head_sha256(names.head_path)}
    drafters = load_drafters(config, names, bound, info, methods)
    results = tuple(
        score
        for name, drafter in drafters.items()
        for replayed, sampling in zip(texts, samplings, strict=True)
        for score in scores(name, drafter, replayed, sampling, trees)
    )
    settings = {name: getattr(config, name) for name in ("max_new_tokens", "width", "depth", "contrastive", "seed")}
    settings = {"prompts": len(texts[0])} | settings | {"dtype": str(bound.model.dtype).removeprefix("torch.")}
    return Evaluation(
        target={"name": registry.short_name(names.target_name), "sha256": bound.sha256},
        head=info | {"name": registry.short_name(names.head_name)},
        settings=settings | {"draft_precision": bound.head.precision},
        scores=results,
    )


def load_drafters(
    config: EvaluateConfig, names: registry.Pair, bound: BoundHead, info: dict, methods: Methods = METHODS
) -> dict[str, Drafter]:
    """Pack a bound head and return the drafters of the requested methods by name."""
    bound.head.pack(config.draft_precision)
    target = TargetModel(bound.model, bound.tokenizer, bound.target, bound.sha256, "fast")
    target = target.with_feature_layers(bound.layers)
    other_heads = further_heads(names, target, config.draft_precision, methods.kinds)
    resources = Resources(target, bound.head, info, other_heads)
    return {method.name: method.load(resources) for method in _methods_to_evaluate(config, resources, methods)}


def _methods_to_evaluate(config: EvaluateConfig, resources: Resources, methods: Methods) -> list[Method]:
    """Return the requested methods, or all that can be replayed; by default the method of the head's kind.

    Raises:
        ValueError: a requested method has no head.
    """
    if config.methods is None:
        return [methods.drafting_with(resources.head.config.kind)]
    if config.methods == (ALL,):
        return [method for method in methods.values() if not method.needs.logits and why_not(method, resources) is None]
    requested = [methods.named(name) for name in config.methods]
    for method in requested:
        sentence = why_not(method, resources)
        require(sentence is None, f"{sentence}.")
    return requested


def scores(
    method: str, drafter: Drafter, answers: Sequence[Answer], sampling: SamplingParams, trees: Sequence[TreeConfig]
) -> Iterator[Score]:
    """Yield the result of every tree size over all prompts, then by category.

    Args:
        method: name of the method.
        drafter: of a method that needs no logits.
        answers: generated with `sampling`.
        sampling: sampling settings.
        trees: fixed trees.
    """
    for tree in trees:
        steps = [list(replay(drafter, answer, sampling, tree)) for answer in answers]
        categories = [answer.question.category for answer in answers]
        for category in (ALL, *dict.fromkeys(categories)):
            members = [answer for answer, name in zip(steps, categories, strict=True) if category in (ALL, name)]
            pooled = [step for answer in members for step in answer]
            accepted = [name for step in pooled for name in step.proposers]
            yield Score(
                method=method,
                temperature=sampling.temperature,
                nodes=tree.nodes,
                category=category,
                tau=pooled_tau(pooled),
                num_steps=len(pooled),
                num_prompts=len(members),
                acceptance_by_depth=tuple(acceptance_by_depth(pooled)),
                accepted_share={name: accepted.count(name) / len(accepted) for name in sorted(set(accepted))},
                prompts=tuple((len(answer), sum(len(step.accepted_path) for step in answer)) for answer in members),
            )
