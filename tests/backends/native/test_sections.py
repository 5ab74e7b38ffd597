"""Threads: numbers do not change if a thread loses its core during a pass or if the number of threads changes."""

import ctypes
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from jakiro.backends.native import building
from jakiro.backends.native.building import compilers
from jakiro.backends.native.library import give_threads
from jakiro.config import SamplingParams
from tests import needs
from tests.support import TREE, tiny_generator

pytestmark = needs.compiled_functions

ANSWERS = """
import ctypes, json
import torch
from jakiro.config import SamplingParams
from jakiro.backends.native import library
from tests.support import TREE, tiny_generator
library.usable_threads = lambda count: count
torch.set_num_threads(3)
ways = [(head, temperature) for head in ("summed", "decoupled") for temperature in (0.0, 1.0)]
samplings = [(head, SamplingParams(temperature, seed=3, max_new_tokens=8)) for head, temperature in ways]
steps = [step for head, sampling in samplings for step in tiny_generator(head).run("Late", sampling, tree=TREE).steps]
nodes = [node for step in steps for node in step.nodes]
late = getattr(ctypes.CDLL(None), "jakiro_late", None)
print(json.dumps({
    "of the target": [[step.committed_ids, [node.margin for node in step.nodes]] for step in steps],
    "of the head": [node.draft_prob for node in nodes if node.draft_prob is not None],
    "late": late and ctypes.c_int.in_dll(ctypes.CDLL(None), "jakiro_late").value,
}))
"""


def compile_library(source: str, result: Path, *options: str) -> Path:
    """Compile a C file of this folder into a shared library."""
    command = [*next(iter(compilers())), "-shared", "-fPIC", str(Path(__file__).with_name(source)), *options]
    subprocess.run([*command, "-o", str(result)], check=True)
    return result


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_chunk_of_a_stopped_thread_is_computed_by_another(threads, tmp_path):
    sources = building._FOLDER
    both = [str(sources / name) for name in ("sections.c", "threads.c")]
    late = ctypes.CDLL(str(compile_library("late_chunks.c", tmp_path / "late.so", f"-I{sources}", *both)))
    give_threads(late)
    assert late.published_chunks(threads) == 25


def answers(preloaded: Path | None) -> dict:
    """Return the output of `ANSWERS`: numbers of all steps, and how often a thread was late."""
    environment = os.environ | ({"LD_PRELOAD": str(preloaded)} if preloaded else {})
    command = [sys.executable, "-c", ANSWERS]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=600)
    return json.loads(run.stdout)


@pytest.mark.rare
def test_late_threads_change_no_number(tmp_path):
    late = compile_library("late_threads.c", tmp_path / "late.so", "-ldl")
    in_time, too_late = answers(None), answers(late)
    assert in_time["late"] is None and too_late["late"] > 100
    assert too_late["of the target"] == in_time["of the target"]
    # torch's softmax varies in the last bits between runs, with the addresses of its inputs
    assert too_late["of the head"] == pytest.approx(in_time["of the head"], rel=1e-5)


@pytest.mark.parametrize("method", ["autoregressive", "jakiro"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_do_not_depend_on_the_number_of_threads_in_each_step(method, temperature, monkeypatch):
    monkeypatch.setattr("jakiro.backends.native.library.usable_threads", lambda count: count)
    generator, before = tiny_generator(), torch.get_num_threads()
    assert generator.status["compiled"]
    sampling = SamplingParams(temperature=temperature, seed=4, max_new_tokens=24)
    texts = []
    try:
        for numbers in ((3,), (1,), (1, 3, 2)):
            stream = generator.stream("A tale of two threads", sampling, method=method, tree=TREE)
            for number in itertools.cycle(numbers):
                torch.set_num_threads(number)
                if next(stream, None) is None:
                    break
            steps = stream.trace.steps
            texts.append([(step.committed_ids, [node.margin for node in step.nodes]) for step in steps])
    finally:
        torch.set_num_threads(before)
    assert texts[0] == texts[1] == texts[2]
