"""Makes the recordings behind "How it works", as one compact file that holds nothing but what was measured.

    python -m app.tools.record_lesson [--target … --head … --device … --dtype …]

Greedy pairs with a large and a small tree, the same text with a shallow one, and pairs at temperature 1 for two
seeds, drafted with and without the target's noise. Each step is kept as columns with everything the stops compute from.
A question whose answer leaves a stop without anything to show (`app/tools/lesson_rules.py`) gives way to the next one.
"""

import platform
import sys
import time

from app.page.lesson import RECORDINGS
from app.serving.packing import pack_header, to_json
from app.tools import lesson_rules
from app.tools.record_options import load_generator, read_options
from jakiro.config import SamplingParams, TreeConfig
from jakiro.engine.costs import DeviceProfile
from jakiro.engine.profile import measure_drafts, measure_passes
from jakiro.methods import DEFAULT, PLAIN
from jakiro.trace import Node, Step, Trace

QUESTIONS = (
    "What is the capital of France, and why is it famous?",
    "Why do leaves change color in autumn?",
    "Name three planets and say one thing about each of them.",
    "How does a bicycle stay upright?",
)
SEEDS = (1, 2)
LARGE_TREE, SMALL_TREE = TreeConfig(nodes=64, depth=6), TreeConfig(nodes=6, depth=3)
SHALLOW_TREE = TreeConfig(nodes=48, depth=3)
SAMPLED_TREE, OWN_RANKING = TreeConfig(nodes=24, depth=5), TreeConfig(nodes=24, depth=5, shared_noise=False)
BOTH = (PLAIN.name, DEFAULT.name)
_COPIED_MEGABYTES, _ROUNDS = 256, 4


def record(generator) -> dict:
    """Runs the first question whose answers give every stop something to show.

    Returns:
        The file's content: the device, and traces by recording and method.

    Raises:
        ValueError: no question does; the sentence names what each one lacks.
    """
    lacking = []
    for question in QUESTIONS:
        recordings = record_question(generator, question)
        problems = lesson_rules.unmet(recordings)
        if not problems:
            return {"device": _device(generator, recordings["greedy"]), "recordings": recordings}
        lacking.append(f"“{question}”: {' '.join(problems)}")
    raise ValueError(
        "The lesson could not be recorded with this pair. Add a question to QUESTIONS in app/tools/record_lesson.py, "
        "or train the head further. " + " ".join(lacking)
    )


def record_question(generator, question: str) -> dict[str, dict]:
    """All traces of one question by recording and method.

    The draft's noise does not concern plain decoding, so it stands once for each seed.
    """
    greedy = SamplingParams(max_new_tokens=48)
    recordings = {
        "greedy": _run(generator, question, greedy, LARGE_TREE, BOTH),
        "small": _run(generator, question, greedy, SMALL_TREE, BOTH),
        "shallow": _run(generator, question, greedy, SHALLOW_TREE, (DEFAULT.name,)),
    }
    for seed in SEEDS:
        params = SamplingParams(temperature=1.0, seed=seed, max_new_tokens=64)
        recordings[f"seed-{seed}-shared"] = _run(generator, question, params, SAMPLED_TREE, BOTH)
        recordings[f"seed-{seed}-own"] = _run(generator, question, params, OWN_RANKING, (DEFAULT.name,))
    return recordings


def _run(generator, question: str, params: SamplingParams, tree: TreeConfig, methods: tuple[str, ...]) -> dict:
    race = generator.race([{"role": "user", "content": question}], params, methods=methods, tree=tree)
    for _ in race:
        pass
    return {method: pack_trace(trace) for method, trace in race.traces.items()}


def pack_trace(trace: Trace) -> dict:
    """A trace as columns; `assets/web/lesson/data.js` holds the reverse."""
    return {
        "header": pack_header(trace.header),
        "steps": [_pack_step(step) for step in trace.steps],
        "end_reason": trace.end_reason,
    }


def _pack_step(step: Step) -> dict:
    """Columns by node; tokens and router weights stand once, in tables, and columns hold their places there."""
    tokens, routers = {}, {}
    nodes = step.nodes

    def place(table: dict, value) -> int:
        return table.setdefault(value, len(table))

    packed = {
        "t": [place(tokens, (node.token_id, node.piece.hex())) for node in nodes],
        "c": [place(tokens, (node.target_choice, node.target_choice_piece.hex())) for node in nodes],
        "b": place(tokens, (step.bonus_token_id, step.bonus_piece.hex())),
        "p": [node.parent for node in nodes],
        "d": [node.draft_pass for node in nodes],
        "s": [round(node.score * 1000) for node in nodes],
        "q": [_rounded(node.draft_prob, 5) for node in nodes],
        "P": [_rounded(node.target_prob, 5) for node in nodes],
        "o": [node.proposer for node in nodes],
        "w": [place(routers, _row(node, "router_weights", 4) or ()) for node in nodes],
        "e": [_row(node, "expert_contributions", 3) for node in nodes],
        "r": [(_row(node, "residual_contribution", 3) or (None,))[0] for node in nodes],
        "g": [round(node.margin, 3) for node in nodes],
        "path": list(step.accepted_path),
        "n": len(step.committed_ids),
        "x": step.text,
        "ms": [round(step.draft_ms, 3), round(step.verify_ms, 3), round(step.other_ms, 3)],
    }
    return packed | {"T": list(tokens), "W": list(routers)}


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _row(node: Node, name: str, digits: int) -> tuple[float, ...] | None:
    """What the method told of a node under this name."""
    row = node.evidence.get(name)
    return None if row is None else tuple(round(part, digits) for part in row)


def _device(generator, pair: dict) -> dict:
    """What the passes cost here, how much a pass reads, and how fast this memory is."""
    header, profile = pair[DEFAULT.name]["header"], _profile(generator).to_dict()
    return {
        "name": profile["key"].get("device") or platform.processor() or header["device"],
        "threads": profile["key"].get("threads"),
        "date": header["created"][:10],
        "dtype": header["dtype"],
        "numerics": header["numerics"],
        "profile": {"verify_ms": profile["verify_ms"], "draft_ms": profile["draft_ms"]},
        "weight_bytes": _weight_bytes(generator.target),
        "memory_bytes_per_second": _memory_speed(generator.target.device),
    }


def _profile(generator) -> DeviceProfile:
    """Costs measured now, not the kept ones; of several rounds the least, as other programs only ever add time."""
    target, drafter, key = generator.target, generator.drafter(DEFAULT), generator.profile.key
    rounds = [(measure_passes(target, drafter, key), measure_drafts(target, drafter, key)) for _ in range(_ROUNDS)]

    def least(curves: list[tuple[tuple[int, float], ...]]) -> tuple[tuple[int, float], ...]:
        return tuple(min(points) for points in zip(*curves, strict=True))

    verify_ms, draft_ms = ([passes.verify_ms for passes, _ in rounds], [drafts.draft_ms for _, drafts in rounds])
    return DeviceProfile(least(verify_ms), least(draft_ms), rounds[0][1].width, key)


def _weight_bytes(target) -> int:
    """Bytes of the target's weights, each counted once."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(target.config)
    return sum(weight.numel() for weight in model.parameters()) * target.weight_itemsize


def _memory_speed(device) -> float:
    """Bytes a second that a large sum reads, the best of five."""
    import torch

    numbers = torch.ones(_COPIED_MEGABYTES * 2**18, device=device)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        float(numbers.sum())
        best = min(best, time.perf_counter() - start)
    return round(numbers.numel() * numbers.itemsize / best, -8)


def main() -> None:
    pair, path = read_options("Makes the recordings behind “How it works”.", RECORDINGS)
    try:
        content = record(load_generator(pair))
    except ValueError as error:
        sys.exit(str(error))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_json(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
