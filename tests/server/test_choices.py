"""Several answers per request, predicted outputs and prompt log probabilities: values equal those of the library."""

import math
import os
import random

import httpx
import openai
import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.server.hints import unbounded_parts
from tests.server.served import ASKED, PATIENCE, PROMPT, served
from tests.support import tiny_generator, tiny_model


def text_of(generator, prompt=PROMPT, raw=False, **settings) -> str:
    return generator.run(prompt, SamplingParams(**settings), "autoregressive", raw=raw).text


def test_n_answers_have_consecutive_seeds(client, generator):
    request = ASKED | {"temperature": 0.9, "seed": 5, "max_tokens": 12, "n": 3}
    expected = [text_of(generator, temperature=0.9, seed=seed, max_new_tokens=12) for seed in (5, 6, 7)]
    answer = client.chat.completions.create(**request)
    assert [choice.message.content for choice in answer.choices] == expected and len(set(expected)) == 3
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert answer.usage.completion_tokens == 36
    assert answer.usage.prompt_tokens == generator.num_prompt_tokens(PROMPT), "the prompt is counted once"
    streamed, usage = ["", "", ""], []
    for chunk in client.chat.completions.create(**request, stream=True, stream_options={"include_usage": True}):
        usage += [chunk.usage] if chunk.usage else []
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == expected and len(usage) == 1 and usage[0].completion_tokens == 36


def test_a_model_is_retrieved_by_its_name(client):
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="There is no model 'huge' here; ask for 'tiny'"):
        client.models.retrieve("huge")


def test_prompts_can_be_texts_token_ids_or_lists_of_them(client, generator):
    ids = generator.token_text.encode("abc")
    request = {"model": "tiny", "max_tokens": 6, "temperature": 0}
    expected = {text: text_of(generator, text, raw=True, max_new_tokens=6) for text in ("abc", "xyz")}
    assert client.completions.create(**request, prompt=ids).choices[0].text == expected["abc"]
    several = client.completions.create(**request, prompt=[ids, generator.token_text.encode("xyz")], n=2)
    assert [choice.text for choice in several.choices] == [expected["abc"]] * 2 + [expected["xyz"]] * 2
    assert several.usage.prompt_tokens == 6 and [choice.index for choice in several.choices] == [0, 1, 2, 3]
    texts = client.completions.create(**request, prompt=["xyz", "abc"])
    assert [choice.text for choice in texts.choices] == [expected["xyz"], expected["abc"]]


def test_token_ids_are_returned_on_request(client, generator):
    body = ASKED | {"temperature": 0, "max_tokens": 6, "extra_body": {"return_token_ids": True}}
    (choice,) = client.chat.completions.create(**body).choices
    assert choice.token_ids == generator.run(PROMPT, SamplingParams(max_new_tokens=6)).token_ids
    with pytest.raises(openai.BadRequestError, match="return_token_ids needs stream: false"):
        client.chat.completions.create(**body, stream=True)


def test_min_tokens_and_ignore_eos(client, generator, monkeypatch):
    plain = generator.run(PROMPT, SamplingParams(max_new_tokens=16))
    monkeypatch.setattr(generator.target, "stop_ids", {plain.token_ids[2]})
    request = ASKED | {"temperature": 0, "max_tokens": 16}
    assert client.chat.completions.create(**request).usage.completion_tokens == 3
    longer = client.chat.completions.create(**request, extra_body={"min_tokens": 8})
    assert longer.usage.completion_tokens >= 8
    assert longer.choices[0].message.content == text_of(generator, max_new_tokens=16, min_new_tokens=8)
    ignored = client.chat.completions.create(**request, extra_body={"ignore_eos": True})
    assert (ignored.usage.completion_tokens, ignored.choices[0].finish_reason) == (16, "length")


def stock_logprobs(ids: list[int]) -> torch.Tensor:
    """Return the log probabilities of transformers' model.

    Returns:
        (len(ids) - 1, vocab_size) float32.
    """
    with torch.inference_mode():
        return tiny_model()(torch.tensor([ids])).logits[0, :-1].float().log_softmax(-1)


def test_prompt_logprobs_equal_those_of_transformers(client, generator):
    dice = random.Random(0)
    for length in (1, 2, 70):
        ids = [dice.randrange(256) for _ in range(length)]
        request = {"model": "tiny", "prompt": ids, "echo": True, "logprobs": 2, "temperature": 0}
        scored = client.completions.create(**request, max_tokens=0)
        (choice,) = scored.choices
        logprobs = choice.logprobs
        assert len(logprobs.tokens) == length and (logprobs.token_logprobs[0], logprobs.top_logprobs[0]) == (None, None)
        assert choice.text == generator.token_text.decode(ids) and scored.usage.completion_tokens == 0
        assert scored.usage.prompt_tokens == length and choice.finish_reason == "length"
        expected = stock_logprobs(ids)
        for index, token_id in enumerate(ids[1:]):
            assert logprobs.token_logprobs[index + 1] == pytest.approx(float(expected[index, token_id]), abs=1e-3)
            best = max(logprobs.top_logprobs[index + 1].values())
            assert best == pytest.approx(float(expected[index].max()), abs=1e-3)
        # lm-eval requests one token more
        more = client.completions.create(**request, max_tokens=1).choices[0]
        assert more.logprobs.token_logprobs[:-1] == logprobs.token_logprobs and len(more.logprobs.tokens) == length + 1
        assert more.text.startswith(choice.text)
        assert more.logprobs.text_offset[: length + 1] == sorted(more.logprobs.text_offset)


def test_an_echo_without_logprobs_is_the_prompt_and_its_continuation(client, generator):
    request = {"model": "tiny", "prompt": "abc", "temperature": 0, "max_tokens": 5, "echo": True}
    expected = "abc" + text_of(generator, "abc", raw=True, max_new_tokens=5)
    answer = client.completions.create(**request)
    assert answer.choices[0].text == expected and answer.choices[0].logprobs is None
    chunks = client.completions.create(**request, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == expected


def test_a_prediction_is_counted_and_changes_no_text(client, generator):
    expected = text_of(generator, max_new_tokens=24)
    request = ASKED | {"temperature": 0, "max_tokens": 24}
    for content in (expected, [{"type": "text", "text": expected}], "something else entirely"):
        answer = client.chat.completions.create(**request, prediction={"type": "content", "content": content})
        details = answer.usage.completion_tokens_details
        assert answer.choices[0].message.content == expected
        assert math.isfinite(details.accepted_prediction_tokens) and details.rejected_prediction_tokens >= 0
    assert details.accepted_prediction_tokens < 24
    ascii_bias = {str(token_id): -100 for token_id in range(94, 260)}
    plain = client.chat.completions.create(**request, logit_bias=ascii_bias, extra_body={"jakiro": {"method": "plain"}})
    text = plain.choices[0].message.content
    answer = client.chat.completions.create(
        **request, logit_bias=ascii_bias, prediction={"type": "content", "content": text}
    )
    assert answer.choices[0].message.content == text
    assert answer.usage.completion_tokens_details.accepted_prediction_tokens >= 12


def test_random_requests_equal_plain_decoding(address, generator, monkeypatch):
    """JAKIRO_RANDOM_REQUESTS sets how many requests with n, min_tokens, ignore_eos, echo and predictions are made."""
    dice, prompt = random.Random(7), "one two one"
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        for number in range(int(os.environ.get("JAKIRO_RANDOM_REQUESTS", "30"))):
            limits = {"min_tokens": dice.choice([0, 4]), "ignore_eos": dice.choice([True, False])}
            sampled = {"temperature": dice.choice([0, 0.8]), "top_p": dice.choice([1, 0.9]), "seed": number}
            n, length, echo = dice.choice([1, 2]), dice.choice([1, 8, 24]), dice.choice([True, False])
            monkeypatch.setattr(generator.target, "stop_ids", set(range(dice.choice([0, 30]))))
            settings = sampled | {"min_new_tokens": limits["min_tokens"], "ignore_eos": limits["ignore_eos"]}
            expected = [
                text_of(generator, prompt, raw=True, max_new_tokens=length, **settings | {"seed": number + choice})
                for choice in range(n)
            ]
            body = {"model": "tiny", "prompt": prompt, "max_tokens": length, "n": n, "echo": echo} | sampled | limits
            if dice.random() < 0.7:
                body["prediction"] = {"type": "content", "content": expected[0][dice.randrange(3) :] or "x"}
            answer = client.post("/completions", json=body).json()
            texts = [choice["text"] for choice in answer["choices"]]
            assert texts == [prompt * echo + text for text in expected], body


def test_parts_of_a_schema_without_a_limit_are_named(client):
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "kind": {"enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}},
        },
        "required": ["name", "kind", "tags"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "t", "schema": schema}}
    answer = client.chat.completions.create(**ASKED, max_tokens=3, temperature=0, response_format=form)
    (hint,) = answer.jakiro["hints"]
    assert "does not limit $.name, $.tags;" in hint and "maxLength" in hint
    assert unbounded_parts('{"type": "string", "maxLength": 3}') == unbounded_parts("{") == ()
    deep = '{"items": ' * 900 + "{}" + "}" * 900
    assert unbounded_parts(deep) == ()


def test_a_method_that_cannot_run_is_named_in_the_hints():
    with served(tiny_generator(None)) as (address, _):
        body = ASKED | {"max_tokens": 2, "temperature": 0, "jakiro": {"method": "jakiro"}}
        answer = httpx.post(f"{address}/chat/completions", json=body, timeout=PATIENCE).json()
    assert answer["jakiro"]["method"] == "autoregressive"
    assert answer["jakiro"]["hints"] == ["jakiro cannot run with the loaded pair; autoregressive answered."]
