"""The measured part of `doctor --head`: causes of low acceptance, each with its remedy.

The target answers prompts greedily, and the answers are stored for later calls. The head is compared with the target's
choices along these texts, and in the trees that drafting grows along them. A corpus does not contain the shipped
prompts, so the head has not learned from the texts.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from jakiro.cli.finding import Finding
from jakiro.config import SamplingParams, TreeConfig, require
from jakiro.heads.base import DraftHead
from jakiro.heads.checkpoint import load_head
from jakiro.heads.kinds import kind_named
from jakiro.loading import registry
from jakiro.loading.loader import LoadOptions, device_and_dtype
from jakiro.prompts import load_questions
from jakiro.trace import acceptance_by_depth, pooled_tau
from jakiro.training.bound import BoundHead
from jakiro.training.corpus import Row, read_corpus, turn_ids
from jakiro.training.evaluate import EvaluateConfig, load_drafters
from jakiro.training.extract import target_dtype
from jakiro.training.features import Batch
from jakiro.training.losses import LossWeights, objective_for
from jakiro.training.replay import Answer, ReplayedStep, replay
from jakiro.training.validation import NUM_STEPS, agreement, with_choices

NUM_PROMPTS = 24
SAMPLING, TREE = SamplingParams(max_new_tokens=96), TreeConfig(nodes=8)
# Largest share of the target's choices outside the draft vocabulary; each of them ends a step
MAX_OUTSIDE = 0.05
# Below this share of correct first choices, drafting rarely pays off
MIN_AGREEMENT = 0.4
# A tree offers several candidates, so its first level is accepted more often than the first choice is correct, unless
# decoding and training read different features. Steps start after a rejected candidate, which is harder.
MAX_TREE_LOSS = 0.1
# Largest difference between expected and observed acceptance, of levels with enough steps
MAX_CALIBRATION_ERROR, MIN_STEPS = 0.15, 50
# Share of the answers' positions that may be beyond the corpus' longest text
MAX_BEYOND = 0.1


def head_findings(options: LoadOptions, corpus: str | None = None, prompts: str | None = None) -> Iterator[Finding]:
    """Measure a head that fits its target, and yield the findings.

    Args:
        options: the pair, device and dtype.
        corpus: text on which the head was trained, to compare its template and length; None skips this.
        prompts: file in Spec-Bench format; None takes the shipped prompts.

    Raises:
        ValueError, OSError: one sentence.
    """
    pair = registry.resolve(options.target, options.head)
    device, dtype = device_and_dtype(options)
    questions = load_questions(prompts and Path(prompts), NUM_PROMPTS)
    head = load_head(pair.head_folder(), device)
    rows = [] if corpus is None else read_corpus([Path(corpus)], head.config.vocab_size)
    bound = BoundHead.read(head, pair.target_name, device, dtype)
    answers = bound.answers(len(questions)).answers(questions, SAMPLING)
    num_tokens = sum(answer.end - answer.start for answer in answers)
    require(num_tokens > 0, "The target ends every answer after one token; give other prompts with --prompts.")
    yield Finding("measured on", f"{len(answers)} prompts, {num_tokens:,} tokens at temperature 0, 8 nodes")
    yield _check_features(pair, bound)
    yield from _check_template(bound.tokenizer, rows)
    yield from _check_length(head.config.max_position_embeddings, answers, rows)
    yield _check_vocabulary(head, answers)
    first_choices = _first_choices(bound, answers)
    if first_choices:
        yield _check_agreement(first_choices)
    # As in decoding: the target's dtype, and on a CPU rounded matrices
    head.to(dtype).bind(*bound.tables)
    (drafter,) = load_drafters(EvaluateConfig(), pair, bound, {}).values()
    replayed = [list(replay(drafter, answer, SAMPLING, TREE)) for answer in answers]
    steps = [step for answer_steps in replayed for step in answer_steps]
    yield _check_trees(steps, first_choices)
    yield _check_calibration(steps)
    yield _tau_by_category(replayed, answers)


def _check_features(pair: registry.Pair, bound: BoundHead) -> Finding:
    """Compare the hash of the target's weights with the one of the training, and report the dtypes of both."""
    trained_for = bound.head.config.target_sha256
    warning = registry.head_warning(pair.head_name, trained_for, pair.target_name, bound.sha256)
    if warning:
        advice = "Continue its training on this target (train --init), or give the target that it was trained for."
        return Finding("features", f"{warning} {advice}", ok=False)
    weights = "from the weights of the training" if trained_for else "the head does not record the target's weights"
    text = f"{weights}; computed in {bound.model.dtype}, by training in {target_dtype(bound.model.device)}"
    return Finding("features", text.replace("torch.", ""))


def _check_template(tokenizer, rows: Sequence[Row]) -> Iterator[Finding]:
    """Compare the ids around the messages of a corpus, BOS included, with the chat template."""
    if not rows:
        return
    before, after = turn_ids(tokenizer)
    for row in rows:
        start, end = row.ids[: len(before)], row.ids[: row.a0][-len(after) :]
        if (start, end) != (before, after):
            sentence = f"{row.place}: the ids around the message are {start} … {end}, in prompts {before} … {after}"
            yield Finding("template", f"{sentence}; write a corpus with this target and template.", ok=False)
            return
    yield Finding("template", f"the same in {len(rows):,} texts of the corpus and in prompts")


def _check_length(num_positions: int, answers: Sequence[Answer], rows: Sequence[Row]) -> Iterator[Finding]:
    """Compare the positions of the answers with the head's maximum and with the longest text of a corpus."""
    last = max(answer.end for answer in answers) + 1
    text, ok = f"{last:,} of {num_positions:,} positions used", last <= num_positions
    if not ok:
        text += f"; decoding is plain after position {num_positions:,}. Train a head with more positions."
    elif rows:
        longest = max(len(row.ids) for row in rows)
        beyond = sum(answer.end - max(answer.start, longest - 1) for answer in answers if answer.end >= longest)
        share = beyond / sum(answer.end - answer.start for answer in answers)
        ok = share <= MAX_BEYOND
        text += f"; {share:.0%} of the answers are beyond the corpus' longest text, {longest:,} tokens"
        text += "" if ok else ". Train on longer texts."
    yield Finding("length", text, ok)


def _check_vocabulary(head: DraftHead, answers: Sequence[Answer]) -> Finding:
    """Count the target's choices outside the draft vocabulary."""
    choices = torch.cat([answer.ids[answer.start + 1 : answer.end + 1] for answer in answers])
    share = 1 - torch.isin(choices, head.draft_token_ids.cpu()).float().mean().item()
    text = f"{len(head.draft_token_ids):,} of {head.config.vocab_size:,} tokens; {share:.1%} of the choices are others"
    ok = share <= MAX_OUTSIDE
    return Finding("draft vocabulary", text if ok else f"{text}. Train with a larger --draft-vocab.", ok)


def _first_choices(bound: BoundHead, answers: Sequence[Answer]) -> list[tuple[float, float]]:
    """Return the shares of choices among the first one and three candidates by depth; empty for untrainable heads."""
    head = bound.head
    if head.config.only_drafts or kind_named(head.config.kind).start is None:
        return []
    batches = [
        Batch(
            answer.ids[None, : answer.end + 1],
            answer.features[None, : answer.end + 1].float(),
            torch.tensor([answer.end + 1]),
            torch.tensor([answer.start + 1]),
            head.config.target_hidden_size,
        )
        for answer in answers
    ]
    shares = agreement(objective_for(head, LossWeights()), with_choices(batches, bound.tables[1].float()))
    depths = [depth for depth in range(1, NUM_STEPS + 1) if f"main_{depth}/top1" in shares]
    return [(shares[f"main_{depth}/top1"], shares[f"main_{depth}/top3"]) for depth in depths]


def _check_agreement(first_choices: Sequence[tuple[float, float]]) -> Finding:
    """Report the agreement along the texts; a low one is a matter of training."""
    first, three = (_join(shares) for shares in zip(*first_choices, strict=True))
    text = f"the target's choice is first in {first} of the cases by depth, among the first three in {three}"
    ok = first_choices[0][0] >= MIN_AGREEMENT
    advice = f"; below {MIN_AGREEMENT} at depth 1. Train longer, or on more text like these prompts."
    return Finding("agreement", text if ok else text + advice, ok)


def _check_trees(steps: Sequence[ReplayedStep], first_choices: Sequence[tuple[float, float]]) -> Finding:
    """Compare the acceptance in trees with the agreement along the texts."""
    by_depth = [accepted / tested for accepted, tested in acceptance_by_depth(steps) if tested]
    if not by_depth:
        return Finding("trees", "the head proposed no candidates", ok=False)
    text = f"a candidate is accepted in {_join(by_depth)} of the steps by depth"
    ok = not first_choices or by_depth[0] >= first_choices[0][0] - MAX_TREE_LOSS
    advice = ", less than the agreement. Drafting and training read different inputs: check precision and cache."
    return Finding("trees", text if ok else text + advice, ok)


def _check_calibration(steps: Sequence[ReplayedStep]) -> Finding:
    """Compare the estimated acceptance of each level with the observed one."""
    errors, ok = [], True
    for level, (accepted, tested) in enumerate(acceptance_by_depth(steps)):
        expected = sum(step.chances[level] for step in steps if step.tested_depth > level)
        errors.append((expected - accepted) / tested)
        ok = ok and (tested < MIN_STEPS or abs(errors[-1]) <= MAX_CALIBRATION_ERROR)
    text = f"expected minus observed acceptance by depth: {_join(errors, '+.2f')}"
    return Finding("calibration", text if ok else f"{text}. Run calibrate.", ok)


def _tau_by_category(replayed: Sequence[Sequence[ReplayedStep]], answers: Sequence[Answer]) -> Finding:
    """Report τ over all prompts and by category, the lowest first."""
    by_category: dict[str, list[ReplayedStep]] = {}
    for answer_steps, answer in zip(replayed, answers, strict=True):
        by_category.setdefault(answer.question.category, []).extend(answer_steps)
    total = pooled_tau([step for steps in by_category.values() for step in steps])
    taus = sorted((pooled_tau(steps), name) for name, steps in by_category.items() if steps)
    listed = ", ".join(f"{name} {tau:.2f}" for tau, name in taus)
    return Finding("tau", f"{total:.2f}; by kind of prompt, lowest first: {listed}")


def _join(values: Sequence[float], form: str = ".2f") -> str:
    return " ".join(format(value, form) for value in values)
