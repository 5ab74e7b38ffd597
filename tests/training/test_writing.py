from collections import deque
from dataclasses import replace

import pytest
import torch
from transformers import LlamaForCausalLM, LlamaModel, MistralConfig, MistralForCausalLM

from jakiro.config import SamplingParams
from jakiro.kernels.linear import pack_linears, packing_works, packs_bfloat16
from jakiro.training import writing
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
def test_texts_written_together_are_those_of_the_plain_reference(model, batch_size):
    found = {request.number: ids for request, ids, _ in write_texts(model, deque(REQUESTS), batch_size, set())}
    assert found == {request.number: expected(model, request) for request in REQUESTS}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_features_are_those_of_what_was_written(dtype, monkeypatch):
    monkeypatch.setattr(writing, "_SPARE", 2)
    full, model = tiny_model(), tiny_model().to(dtype)
    if packing_works(model.device, dtype) or packs_bfloat16(model.device, dtype):
        pack_linears(model)
    queue = deque(replace(request, keep_features=request.number != 1) for request in REQUESTS)
    texts = sorted(write_texts(model, queue, 4, set()), key=lambda text: text.request.number)
    assert [text.request.number for text in texts] == list(range(len(REQUESTS)))
    for request, ids, features in texts:
        if dtype == torch.float32:
            assert ids == expected(full, request)
        if not request.keep_features:
            assert features is None
            continue
        with torch.inference_mode():
            stock = full.base_model(torch.tensor([request.ids + ids])).last_hidden_state[0]
        assert features.dtype == torch.float16 and features.shape == stock.shape
        assert (features - stock).norm() < (2e-3 if dtype == torch.float32 else 0.03) * stock.norm()


def test_a_place_that_gets_free_is_taken_at_once(model, monkeypatch):
    sizes = []
    forward = LlamaModel.forward

    def watched(self, input_ids, **inputs):
        sizes.append(tuple(input_ids.shape))
        return forward(self, input_ids=input_ids, **inputs)

    monkeypatch.setattr(LlamaModel, "forward", watched)
    same = [replace(REQUESTS[0], number=number, max_new_tokens=2 + 2 * number) for number in range(3)]
    done = [request.number for request, *_ in write_texts(model, deque(same), 2, set())]
    assert done == [0, 1, 2]
    assert sizes == [(2, 3), (2, 1), (1, 3), *[(2, 1)] * 2, *[(1, 1)] * 3]


def test_a_text_ends_with_its_stop_id_and_goes_on_for_its_overhang(model):
    free = expected(model, REQUESTS[0])
    request = replace(REQUESTS[0], max_new_tokens=8)
    stop = free[4]
    first = free.index(stop) + 1
    ((_, stopped, _),) = write_texts(model, deque([request]), 1, {stop})
    assert stopped == free[:first]
    ((_, longer, _),) = write_texts(model, deque([replace(request, overhang=3)]), 1, {stop})
    assert longer == free[: first + 3]
    ((_, longer, _),) = write_texts(model, deque([replace(request, overhang=4)]), 1, set())
    assert longer == free[:12]


def test_a_sliding_window_is_kept_in_a_shared_batch():
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=60, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, sliding_window=4, initializer_range=0.3, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    model = MistralForCausalLM(config).eval()
    found = {request.number: ids for request, ids, _ in write_texts(model, deque(REQUESTS), 3, set())}
    assert found == {request.number: expected(model, request) for request in REQUESTS}
