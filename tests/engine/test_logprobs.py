"""Logprobs of committed tokens: a stock model's over the same text, whatever drafted it; none unless asked for."""

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.methods import METHODS
from jakiro.trace import Scored, Trace
from tests.graphs.static import static_generator
from tests.support import DEVICE, heads_of, prompt_ids, tiny_generator, tiny_model

QUESTION = "the cat sat on the mat; the cat sat on the mat; the cat sat"
COUNT = 5


def scored_tokens(trace: Trace) -> list[tuple[Scored, ...]]:
    return [trace.header.first_logprobs, *(each for step in trace.steps for each in step.logprobs)]


@torch.no_grad()
def stock_logprobs(token_ids: list[int]) -> torch.Tensor:
    """(tokens, V), a stock float32 model's at every token of an answer."""
    prompt = prompt_ids(QUESTION)
    ids = torch.tensor([[*prompt, *token_ids]], device=DEVICE)
    return tiny_model()(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1].log_softmax(-1)


@pytest.fixture(scope="module")
def generators():
    """Passes that grow with the text, compiled where they can be, and passes at fixed addresses."""
    made = (tiny_generator, static_generator)
    return {head: [make(head) for make in made] for head in ("summed", "eagle3", "dflash")}


@pytest.mark.parametrize("temperature", [0, 1])
@pytest.mark.parametrize("method", METHODS)
def test_logprobs_are_a_stock_models_own_before_temperature_filters_and_rules(generators, method, temperature):
    rules = {"repetition_penalty": 1.3, "logit_bias": {65: 5.0}}
    sampling = SamplingParams(temperature, top_p=0.9, seed=5, max_new_tokens=24, logprobs=COUNT, **rules)
    for generator in generators[heads_of(METHODS[method])[0]]:
        trace = generator.run(QUESTION, sampling, method=method)
        assert [each[0].token_id for each in scored_tokens(trace)] == trace.token_ids
        expected, tokens = stock_logprobs(trace.token_ids), scored_tokens(trace)
        for row, (chosen, *likeliest) in zip(expected, tokens, strict=True):
            assert chosen.logprob == pytest.approx(float(row[chosen.token_id]), abs=1e-3)
            assert [each.logprob for each in likeliest] == pytest.approx(row.topk(COUNT).values.tolist(), abs=1e-3)
            assert [each.logprob for each in likeliest] == pytest.approx(
                [float(row[each.token_id]) for each in likeliest], abs=1e-3
            )
            assert len({each.token_id for each in likeliest}) == COUNT
            assert sum(torch.tensor([each.logprob for each in likeliest]).exp()) <= 1 + 1e-5


def test_nothing_is_computed_where_nothing_is_asked_for(monkeypatch):
    for module in ("prepare", "stream"):
        monkeypatch.setattr(f"jakiro.engine.{module}.scored", None)
    trace = tiny_generator().run(QUESTION, SamplingParams(max_new_tokens=8))
    assert len(trace.token_ids) == 8 and trace.header.first_logprobs == ()
    assert all(step.logprobs == () for step in trace.steps) and "logprobs" not in str(trace.to_dict()["steps"])


@pytest.mark.parametrize("logprobs", [-1, 21, True, 1.5, "5"])
def test_other_numbers_are_refused(logprobs):
    with pytest.raises(ValueError, match=r"^Logprobs must be a whole number from 0 to 20; you gave "):
        SamplingParams(logprobs=logprobs)
