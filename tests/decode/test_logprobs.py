"""Logprobs and alternatives equal the values of a stock model, and are computed only if requested."""

import pytest
import torch

from jakiro.config import ALTERNATIVES, Grammar, SamplingParams
from jakiro.drafters.registry import METHODS
from jakiro.trace import Ranked, Scored, Trace
from tests.support import DEVICE, head_for, prompt_ids, tiny_generator, tiny_model

QUESTION = "the cat sat on the mat; the cat sat on the mat; the cat sat"
COUNT = 5
# A method for each kind of head, and one without a head
METHOD_OF_EACH_HEAD = sorted(
    {(head_for(name), bool(METHODS[name].needs.head)): name for name in reversed([*METHODS])}.values()
)


def scored_tokens(trace: Trace) -> list[tuple[Scored, ...]]:
    return [trace.header.first_logprobs, *(item for step in trace.steps for item in step.logprobs)]


@torch.no_grad()
def stock_logits(token_ids: list[int], bias: dict[int, float]) -> torch.Tensor:
    """Return the logits of a stock float32 model at every token of an answer.

    Returns:
        (num_tokens, vocab_size) float32.
    """
    prompt = prompt_ids(QUESTION)
    ids = torch.tensor([[*prompt, *token_ids]], device=DEVICE)
    logits = tiny_model()(input_ids=ids, use_cache=False).logits[0, len(prompt) - 1 : -1]
    for token_id, value in bias.items():
        logits[:, token_id] += value
    return logits


def places(trace: Trace) -> list[Ranked]:
    return [*trace.header.first_alternatives, *(place for step in trace.steps for place in step.alternatives)]


@pytest.mark.parametrize("temperature", [0, 0.7, 1])
@pytest.mark.parametrize("method", METHOD_OF_EACH_HEAD)
def test_logprobs_and_alternatives_equal_those_of_a_stock_model(both_passes, method, temperature):
    bias = {65: 5.0, 70: -4.0}
    sampling = SamplingParams(
        temperature, 0.9, seed=5, max_new_tokens=24, logprobs=COUNT, logit_bias=bias, record_alternatives=True
    )
    for generator in both_passes[head_for(method)]:
        trace = generator.run(QUESTION, sampling, method=method)
        raw = stock_logits(trace.token_ids, {}).log_softmax(-1)
        processed = stock_logits(trace.token_ids, bias).div(temperature or 1).log_softmax(-1)
        scored, ranked = scored_tokens(trace), places(trace)
        for rows, results, count in (
            (raw, scored, COUNT),
            (processed, [place.tokens for place in ranked], ALTERNATIVES),
        ):
            assert [result[0].token_id for result in results] == trace.token_ids
            for row, (chosen, *best) in zip(rows, results, strict=True):
                assert chosen.logprob == pytest.approx(float(row[chosen.token_id]), abs=1e-3)
                assert [token.token_id for token in best] == row.topk(count).indices.tolist()
                assert [token.logprob for token in best] == pytest.approx(row.topk(count).values.tolist(), abs=1e-3)
        for row, place in zip(processed, ranked, strict=True):
            assert place.rank == int((row > row[place.tokens[0].token_id]).sum()) + 1


def test_tokens_that_a_grammar_forbids_are_no_alternatives():
    generator = tiny_generator()
    sampling = SamplingParams(grammar=Grammar("choice", ("gut", "gar")), record_alternatives=True)
    trace = generator.run(QUESTION, sampling)
    texts = [{token.piece for token in place.tokens[1:]} for place in places(trace)]
    assert texts[:2] == [{b"g"}, {b"u", b"a"}] and all(len(pieces) == 1 for pieces in texts[2:])


def test_alternatives_of_tokens_after_a_stop_string_are_omitted():
    generator = tiny_generator()
    full = generator.run(QUESTION, SamplingParams(1, seed=5, max_new_tokens=24))
    stop = next(text for text in map(chr, range(33, 127)) if text in full.text[3:])
    sampling = SamplingParams(1, seed=5, max_new_tokens=24, stop=(stop,), record_alternatives=True)
    cut = generator.run(QUESTION, sampling)
    assert cut.end_reason == "stop" and [place.tokens[0].token_id for place in places(cut)] == cut.token_ids


def test_alternatives_survive_a_file_and_are_not_computed_unless_requested(monkeypatch):
    generator = tiny_generator()
    trace = generator.run(QUESTION, SamplingParams(max_new_tokens=8, record_alternatives=True))
    read = Trace.from_json(trace.to_json())
    assert read == trace and len(places(read)) == 8
    for function in ("token_logprobs", "token_alternatives"):
        monkeypatch.setattr(f"jakiro.decode.recorder.{function}", None)
    without = generator.run(QUESTION, SamplingParams(max_new_tokens=8))
    assert without.token_ids == trace.token_ids and places(without) == [] and without.header.first_logprobs == ()
    assert "alternatives" not in str(without.to_dict()["steps"]) and "logprobs" not in str(without.to_dict()["steps"])
