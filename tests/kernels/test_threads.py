"""Texts do not depend on the number of threads, whenever it changes."""

import itertools

import pytest
import torch

from jakiro.config import SamplingParams
from tests import needs
from tests.support import TREE, tiny_generator

pytestmark = needs.compiled_functions


@pytest.mark.parametrize("method", ["autoregressive", "jakiro"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_texts_do_not_depend_on_threads_that_change_from_step_to_step(method, temperature, monkeypatch):
    monkeypatch.setattr("jakiro.kernels.compiled.library.usable_threads", lambda wanted: wanted)
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
