"""Is the text really the same? Token ids of plain decoding against drafted ones, for as many runs as wanted.

Every comparison is one line in a json-lines file, so that a run of hours can be stopped and resumed.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, count
from pathlib import Path

from jakiro.bench.runner import BenchSettings
from jakiro.methods import PLAIN
from jakiro.prompts import Question
from jakiro.system import write_atomically
from jakiro.trace import Trace, first_difference


@dataclass(frozen=True, slots=True)
class Comparison:
    """One prompt decoded both ways.

    Attributes:
        setup: what else decides the ids and rounding: target, head, device, dtype, numerics, length, tree.
        position: index of the first differing token of the answer, None when all are equal.
        margin: gap between plain decoding's first and second choice there; None for the prefill's token.
        num_accepted: draft tokens accepted, so that it shows whether drafting took part.
    """

    setup: str
    question_id: str
    category: str
    temperature: float
    seed: int
    nodes: int | str
    num_tokens: int
    num_steps: int
    num_accepted: int
    position: int | None
    margin: float | None

    @property
    def key(self) -> tuple:
        return (self.setup, self.question_id, self.category, self.temperature, self.seed, self.nodes)


def read_log(path: Path) -> list[Comparison]:
    """Comparisons done so far; a last line cut off by an interruption is dropped.

    Raises:
        ValueError: the file is something else.
    """
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    if text and not text.endswith("\n"):
        lines.pop()
        write_atomically(path, "".join(f"{line}\n" for line in lines))
    try:
        return [Comparison(**json.loads(line)) for line in lines]
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path} is not a log of comparisons ({error}).") from error


def check_identical(
    generator, questions: Sequence[Question], settings: BenchSettings, log: Path, target_tokens: int | None = None
) -> Iterator[Comparison]:
    """Compares first turns that the log doesn't hold yet; yields each comparison and appends it to the log.

    Args:
        target_tokens: stops once the log holds so many compared tokens of this setup, and until then goes on with
            further seeds after the given ones; None compares what the settings name.
    """
    setup = setup_of(generator.status, settings)
    logged = [comparison for comparison in read_log(log) if comparison.setup == setup]
    done, num_tokens = {comparison.key for comparison in logged}, sum(each.num_tokens for each in logged)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        for seed, temperature, question in _combinations(questions, settings, target_tokens is not None):
            if target_tokens is not None and num_tokens >= target_tokens:
                return
            wanted = [
                nodes
                for nodes in settings.nodes
                if (setup, question.question_id, question.category, temperature, seed, nodes) not in done
            ]
            for comparison in _compare(generator, question, settings, temperature, seed, wanted, setup):
                file.write(json.dumps(asdict(comparison)) + "\n")
                file.flush()
                num_tokens += comparison.num_tokens
                yield comparison


def _combinations(
    questions: Sequence[Question], settings: BenchSettings, further_seeds: bool
) -> Iterator[tuple[int, float, Question]]:
    """Seed, temperature and question in turn; further seeds only where they matter, at temperatures above 0."""
    warm = [temperature for temperature in settings.temperatures if temperature > 0]
    seeds = chain(settings.seeds, count(max(settings.seeds) + 1)) if further_seeds and warm else settings.seeds
    for seed in seeds:
        for temperature in settings.temperatures if seed in settings.seeds else warm:
            for question in questions:
                yield seed, temperature, question


def setup_of(status: dict, settings: BenchSettings) -> str:
    """What must be equal for comparisons to add up, besides question, temperature, seed and nodes; as one line."""
    parts = [f"{name}={status.get(name)}" for name in ("target", "head", "device", "dtype", "numerics", "compiled")]
    tree = settings.tree
    parts += [f"tokens={settings.max_new_tokens}", f"top_p={settings.top_p}", f"top_k={settings.top_k}"]
    parts += [f"repetition_penalty={settings.repetition_penalty}"] if settings.repetition_penalty != 1 else []
    parts += [f"width={tree.width}", f"depth={tree.depth}"]
    return " ".join(parts)


def _compare(generator, question, settings, temperature, seed, wanted, setup) -> Iterator[Comparison]:
    if not wanted:
        return
    sampling = settings.sampling(temperature, seed)
    plain = generator.run(question.turns[0], sampling, method=PLAIN.name)
    for nodes in wanted:
        drafted = generator.run(question.turns[0], sampling, tree=settings.tree_for(nodes))
        position = first_difference(plain.token_ids, drafted.token_ids)
        yield Comparison(
            setup=setup,
            question_id=question.question_id,
            category=question.category,
            temperature=temperature,
            seed=seed,
            nodes=nodes,
            num_tokens=len(drafted.token_ids),
            num_steps=len(drafted.steps),
            num_accepted=sum(len(step.accepted_path) for step in drafted.steps),
            position=position,
            margin=margin_at(plain, position),
        )


def margin_at(plain: Trace, position: int | None) -> float | None:
    """How close plain decoding's choice was at a position; None at the prefill's token or past the end."""
    if position is None or not 1 <= position <= len(plain.steps):
        return None
    return plain.steps[position - 1].nodes[0].margin
