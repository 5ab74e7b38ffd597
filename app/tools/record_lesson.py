"""Make the recordings of "How it works", as one compact file of measurements.

    python -m app.tools.record_lesson --methods-from lab.published [--target … --head … --device … --dtype …]

Greedy pairs with a large and a small tree, the same text with a shallow one, pairs at temperature 1 for two seeds,
drafted with and without the target's noise, and one text by five methods. The browser chooses each stop's steps
(`assets/web/lesson/stops/`); `tests/app/browser/test_lesson.py` fails if the recordings have no suitable step for a
stop. In that case change the question (`QUESTION`), or train the head longer.
"""

import platform
import time

from app.page.lesson import RECORDINGS
from app.serving.packing import Packer, to_json
from app.tools.record_options import load_generator, read_options
from app.words.lesson import FAMILY
from jakiro.config import SamplingParams, TreeConfig
from jakiro.decode.device_profile import Line, time_drafts, time_passes
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.system import errors_as_one_sentence
from jakiro.trace import Header, Trace

QUESTION = "What is the capital of France, and why is it famous?"
CONTRASTING_HEAD = "smollm2-135m-instruct-summed"
SEEDS = (1, 2)
LARGE_TREE, SMALL_TREE = TreeConfig(nodes=64, depth=6), TreeConfig(nodes=6, depth=3)
SHALLOW_TREE = TreeConfig(nodes=48, depth=3)
SAMPLED_TREE, OWN_RANKING = TreeConfig(nodes=24, depth=5), TreeConfig(nodes=24, depth=5, shared_noise=False)
BOTH = (PLAIN.name, DEFAULT.name)
FAMILY_QUESTION = "Write a Python class Stack with push, pop and peek, then show how to use it."
FAMILY_TREE = TreeConfig(nodes=8, depth=4)
_COPIED_MEGABYTES = 256
# Timed for the lesson's plots: rows of the target's passes, levels of drafts
_ROWS, _LEVELS = (1, 2, 4, 6, 8, 10, 12, 14, 20, 24, 28, 42, 56, 64), range(1, 9)


def record(generator, contrasting) -> dict:
    """Return the file's content: the device, and the events of each recording in the form of a live answer.

    Args:
        generator: writes all recordings except one.
        contrasting: writes the recording of stop 4, with a head that has the contrastive branch.

    The draft's noise has no effect on plain decoding, so plain decoding is recorded once for each seed.
    """
    greedy = SamplingParams(max_new_tokens=48)
    traces = {
        "greedy": _run(generator, greedy, LARGE_TREE, BOTH),
        "small": _run(generator, greedy, SMALL_TREE, BOTH),
        "shallow": _run(contrasting, greedy, SHALLOW_TREE, (DEFAULT.name,)),
    }
    for seed in SEEDS:
        params = SamplingParams(temperature=1.0, seed=seed, max_new_tokens=64, record_alternatives=True)
        traces[f"seed-{seed}-shared"] = _run(generator, params, SAMPLED_TREE, BOTH)
        traces[f"seed-{seed}-own"] = _run(generator, params, OWN_RANKING, (DEFAULT.name,))
    greedy = SamplingParams(max_new_tokens=96)
    traces["family"] = _run(generator, greedy, FAMILY_TREE, FAMILY, FAMILY_QUESTION)
    recordings = {name: packed_events(by_method) for name, by_method in traces.items()}
    return {"device": _device(generator, traces["greedy"][DEFAULT.name].header), "recordings": recordings}


def _run(
    generator, params: SamplingParams, tree: TreeConfig, methods: tuple[str, ...], question: str = QUESTION
) -> dict:
    race = generator.race([{"role": "user", "content": question}], params, methods=methods, tree=tree)
    for _ in race:
        pass
    return race.traces


def packed_events(traces: dict[str, Trace]) -> list[list]:
    """Return traces by method as the packed events of one answer."""
    packer, events = Packer(to_compute_from=True), []
    for method, trace in traces.items():
        steps = [("step", method, step) for step in trace.steps]
        events += [("header", method, trace.header), *steps, ("end", method, trace.end_reason)]
    return [packer.pack(event) for event in events]


def _device(generator, header: Header) -> dict:
    """Return the costs of passes on this machine, the bytes that a pass reads, and the memory bandwidth."""
    key = generator.profile.key
    return {
        "name": key.get("device") or platform.processor() or header.device,
        "threads": key.get("threads"),
        "date": header.created[:10],
        "dtype": header.dtype,
        "numerics": header.numerics,
        "profile": _profile(generator),
        "weight_bytes": _weight_bytes(generator.target),
        "memory_bytes_per_second": _memory_speed(generator.target.device),
    }


def _profile(generator) -> dict[str, Line]:
    """Return the costs of passes by rows, and of drafts by levels."""
    backend, drafter = generator.backend, generator.drafter(DEFAULT)
    return {
        "verify_ms": time_passes(backend, drafter, _ROWS),
        "draft_ms": time_drafts(backend, drafter, _LEVELS, width=2),
    }


def _weight_bytes(target) -> int:
    """Return the bytes of the target's weights; tied weights count once."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(target.config)
    return sum(weight.numel() for weight in model.parameters()) * target.weight_itemsize


def _memory_speed(device) -> float:
    """Measure the memory bandwidth in bytes per second by a large sum, the best of five."""
    import torch

    numbers = torch.ones(_COPIED_MEGABYTES * 2**18, device=device)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        float(numbers.sum())
        best = min(best, time.perf_counter() - start)
    return round(numbers.numel() * numbers.itemsize / best, -8)


def main() -> None:
    pair, path = read_options("Makes the recordings of “How it works”.", RECORDINGS)
    with errors_as_one_sentence():
        generator = load_generator(pair)
        named = pair["target"] or pair["head"]
        content = record(generator, generator if named else load_generator(pair | {"head": CONTRASTING_HEAD}))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(to_json(content) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
