"""Logprobs and alternatives equal those of a stock model, and are computed only if requested."""

import pytest
import torch

from jakiro.config import ALTERNATIVES, Grammar, SamplingParams
from jakiro.drafters.registry import METHODS
from jakiro.trace import Ranked, Scored, Trace
from tests.support import DEVICE, head_for, prompt_ids, tiny_generator, tiny_model

QUESTION = "the cat sat on the mat; the cat sat on the mat; the cat sat"
COUNT = 5
# A method for each kind of head, and one without a head
WAYS = sorted({(head_for(name), bool(METHODS[name].needs.head)): name for name in reversed([*METHODS])}.values())


def scored_tokens(trace: Trace) -> list[tuple[Scored, ...]]:
    return [trace.header.first_logprobs, *(each for step in trace.steps for each in step.logprobs)]


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
    return [*trace.header.first_alternatives, *(each for step in trace.steps for each in step.alternatives)]


@pytest.mark.parametrize("temperature", [0, 0.7, 1])
@pytest.mark.parametrize("method", WAYS)
def test_logprobs_are_a_stock_models_own_and_alternatives_those_at_the_temperature_after_the_rules(
    both_passes, method, temperature
):
    bias = {65: 5.0, 70: -4.0}
    sampling = SamplingParams(
        temperature, 0.9, seed=5, max_new_tokens=24, logprobs=COUNT, logit_bias=bias, record_alternatives=True
    )
    for generator in both_passes[head_for(method)]:
        trace = generator.run(QUESTION, sampling, method=method)
        own = stock_logits(trace.token_ids, {}).log_softmax(-1)
        after = stock_logits(trace.token_ids, bias).div(temperature or 1).log_softmax(-1)
        scored, ranked = scored_tokens(trace), places(trace)
        for rows, found, count in ((own, scored, COUNT), (after, [each.tokens for each in ranked], ALTERNATIVES)):
            assert [each[0].token_id for each in found] == trace.token_ids
            for row, (chosen, *likeliest) in zip(rows, found, strict=True):
                assert chosen.logprob == pytest.approx(float(row[chosen.token_id]), abs=1e-3)
                assert [each.token_id for each in likeliest] == row.topk(count).indices.tolist()
                assert [each.logprob for each in likeliest] == pytest.approx(row.topk(count).values.tolist(), abs=1e-3)
        for row, place in zip(after, ranked, strict=True):
            assert place.rank == int((row > row[place.tokens[0].token_id]).sum()) + 1


def test_what_a_grammar_forbids_is_no_alternative():
    generator = tiny_generator()
    asked = SamplingParams(grammar=Grammar("choice", ("gut", "gar")), record_alternatives=True)
    trace = generator.run(QUESTION, asked)
    texts = [{each.piece for each in place.tokens[1:]} for place in places(trace)]
    assert texts[:2] == [{b"g"}, {b"u", b"a"}] and all(len(each) == 1 for each in texts[2:])


def test_those_of_tokens_after_a_stop_text_are_left_out():
    generator = tiny_generator()
    whole = generator.run(QUESTION, SamplingParams(1, seed=5, max_new_tokens=24))
    stop = next(text for text in map(chr, range(33, 127)) if text in whole.text[3:])
    asked = SamplingParams(1, seed=5, max_new_tokens=24, stop=(stop,), record_alternatives=True)
    cut = generator.run(QUESTION, asked)
    assert cut.end_reason == "stop" and [each.tokens[0].token_id for each in places(cut)] == cut.token_ids


def test_nothing_is_computed_where_nobody_asks_and_a_file_keeps_what_there_is(monkeypatch):
    generator = tiny_generator()
    trace = generator.run(QUESTION, SamplingParams(max_new_tokens=8, record_alternatives=True))
    read = Trace.from_json(trace.to_json())
    assert read == trace and len(places(read)) == 8
    for function in ("token_logprobs", "token_alternatives"):
        monkeypatch.setattr(f"jakiro.decode.recorder.{function}", None)
    bare = generator.run(QUESTION, SamplingParams(max_new_tokens=8))
    assert bare.token_ids == trace.token_ids and places(bare) == [] and bare.header.first_logprobs == ()
    assert "alternatives" not in str(bare.to_dict()["steps"]) and "logprobs" not in str(bare.to_dict()["steps"])
