from collections import deque
from dataclasses import replace

import pytest
import torch
from transformers import LlamaForCausalLM, LlamaModel, MistralConfig, MistralForCausalLM

from jakiro.config import SamplingParams
from jakiro.training.writing import TextRequest, write_texts
from tests.support import reference_answer, tiny_model

REQUESTS = [
    TextRequest(0, [5, 6, 7], 11, 1.0, 12),
    TextRequest(1, [9], 12, 0.0, 3),
    TextRequest(2, [4, 4, 8, 20, 21, 22, 23], 13, 0.7, 9),
    TextRequest(3, [30, 31], 14, 1.0, 1),
    TextRequest(4, [3] * 12, 15, 1.0, 7),
    TextRequest(5, [2, 50], 16, 0.0, 12),
]


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return tiny_model()


def expected(model, request: TextRequest, stop_ids=()) -> list[int]:
    sampling = SamplingParams(request.temperature, seed=request.seed, max_new_tokens=request.max_new_tokens)
    return reference_answer(model, request.ids, sampling, stop_ids)


@pytest.mark.parametrize("batch_size", [1, 2, 4, 8])
def test_texts_of_a_batch_equal_the_reference(model, batch_size):
    texts = {request.number: ids for request, ids in write_texts(model, deque(REQUESTS), batch_size, set())}
    assert texts == {request.number: expected(model, request) for request in REQUESTS}


def test_free_place_in_a_batch_is_used_at_once(model, monkeypatch):
    sizes = []
    forward = LlamaModel.forward

    def record_size(self, input_ids, **inputs):
        sizes.append(tuple(input_ids.shape))
        return forward(self, input_ids=input_ids, **inputs)

    monkeypatch.setattr(LlamaModel, "forward", record_size)
    same = [replace(REQUESTS[0], number=number, max_new_tokens=2 + 2 * number) for number in range(3)]
    done = [request.number for request, *_ in write_texts(model, deque(same), 2, set())]
    assert done == [0, 1, 2]
    assert sizes == [(2, 3), (2, 1), (1, 3), *[(2, 1)] * 2, *[(1, 1)] * 3]


def test_text_ends_with_its_stop_id_and_continues_for_its_overhang(model):
    free = expected(model, REQUESTS[0])
    request = replace(REQUESTS[0], max_new_tokens=8)
    stop = free[4]
    first = free.index(stop) + 1
    ((_, stopped),) = write_texts(model, deque([request]), 1, {stop})
    assert stopped == free[:first]
    ((_, longer),) = write_texts(model, deque([replace(request, overhang=3)]), 1, {stop})
    assert longer == free[: first + 3]
    ((_, longer),) = write_texts(model, deque([replace(request, overhang=4)]), 1, set())
    assert longer == free[:12]


def test_sliding_window_is_applied_in_a_batch():
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=60, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=4, initializer_range=0.3, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    texts = {request.number: ids for request, ids in write_texts(model, deque(REQUESTS), 3, set())}
    assert texts == {request.number: expected(model, request) for request in REQUESTS}
