"""Texts, tokens and numbers that OpenAI's client receives from a tiny model equal those of the library."""

import http.client
import json
import math
import re
import threading
from itertools import accumulate
from typing import Literal
from urllib.parse import urlsplit

import httpx
import openai
import pytest
from pydantic import BaseModel

from jakiro.config import SamplingParams
from jakiro.server.generator_lock import OneGenerator
from jakiro.server.logprobs import token_name
from tests.server.served import ASKED, PATIENCE, PROMPT, Gated, served, wait_until
from tests.server.utf8 import characters_of_bytes
from tests.support import tiny_generator

CHOSEN = {"temperature": 0.8, "top_p": 0.9, "seed": 7}


@pytest.fixture(scope="module")
def trace(generator):
    """Return the library's answer to the same request."""
    return generator.run(PROMPT, SamplingParams(0.8, top_p=0.9, seed=7, max_new_tokens=20, logprobs=3))


def test_text_tokens_and_logprobs_equal_those_of_the_library(client, trace):
    answer = client.chat.completions.create(**ASKED, **CHOSEN, max_tokens=20, logprobs=True, top_logprobs=3)
    choice, header = answer.choices[0], trace.header
    assert choice.message.content == trace.text and choice.message.role == "assistant"
    assert (answer.object, answer.model, choice.finish_reason) == ("chat.completion", "tiny", "length")
    expected = [header.first_logprobs, *(entry for step in trace.steps for entry in step.logprobs)]
    for token, (chosen, *best) in zip(choice.logprobs.content, expected, strict=True):
        assert (bytes(token.bytes), token.logprob) == (chosen.piece, pytest.approx(chosen.logprob, abs=1e-6))
        assert [bytes(item.bytes) for item in token.top_logprobs] == [item.piece for item in best]
        assert sum(math.exp(item.logprob) for item in token.top_logprobs) <= 1 + 1e-5


def test_usage_and_metrics_count_drafted_tokens(client, trace):
    extra = {"jakiro": {"provenance": True}}
    answer = client.chat.completions.create(**ASKED, **CHOSEN, max_tokens=20, extra_body=extra)
    nodes = [len(step.nodes) - 1 for step in trace.steps]
    accepted = [len(step.accepted_path) for step in trace.steps]
    num_accepted = sum(min(len(step.accepted_path), len(step.committed_ids)) for step in trace.steps)
    usage = answer.usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (trace.header.num_prompt_tokens, 20)
    assert usage.total_tokens == usage.prompt_tokens + 20 and num_accepted > 0
    assert usage.completion_tokens_details.accepted_prediction_tokens == num_accepted
    assert usage.completion_tokens_details.rejected_prediction_tokens == sum(nodes) - num_accepted
    figures = answer.metrics["speculative_decoding"]
    assert figures["mean_acceptance_length"] == pytest.approx(trace.tau)
    assert figures["draft_acceptance_rate"] == pytest.approx(sum(accepted) / sum(nodes))
    assert figures["acceptance_histogram"] == [accepted.count(length) for length in range(max(accepted) + 1)]
    assert (figures["num_spec_steps"], figures["num_draft_tokens"]) == (len(trace.steps), sum(nodes))
    extension = answer.jakiro
    assert (extension["method"], extension["seed"]) == ("jakiro", 7)
    proposers = [token["proposer"] for token in extension["provenance"]]
    assert len(proposers) == 20 and proposers[0] == "target"
    assert sum(proposer != "target" for proposer in proposers) == num_accepted
    assert {proposer["id"] for proposer in trace.header.proposers} >= set(proposers) - {"target"}


def test_an_answer_continues_from_one_of_its_alternatives(client, trace):
    body = {"jakiro": {"alternatives": True}}
    answer = client.chat.completions.create(**ASKED, **CHOSEN, max_tokens=20, extra_body=body)
    places = answer.jakiro["alternatives"]
    assert [bytes(place["bytes"]) for place in places] == [
        trace.header.first_piece,
        *(
            piece
            for step in trace.steps
            for piece in [*(step.nodes[i].piece for i in step.accepted_path), step.bonus_piece][
                : len(step.committed_ids)
            ]
        ),
    ]
    assert places[4]["rank"] >= 1 and len(places[4]["alternatives"]) == 5
    fork = [*trace.token_ids[:4], places[4]["alternatives"][1]["id"]]
    body["jakiro"]["answer_prefix_ids"] = fork
    options = {"extra_body": body, "stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = client.chat.completions.create(**ASKED, **CHOSEN, max_tokens=20, **options)
    alternatives = [place for chunk in chunks for place in chunk.model_extra.get("jakiro", {}).get("alternatives", ())]
    assert last.usage.completion_tokens == 15 == len(alternatives)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text[:3] == trace.text[:3] and text != trace.text
    with pytest.raises(openai.BadRequestError, match=r"answer_prefix_ids end the answer \(length\)"):
        client.chat.completions.create(**ASKED, **CHOSEN, max_tokens=5, extra_body=body)


def test_a_stream_has_the_same_text_one_end_and_usage_in_the_last_chunk(client, trace):
    options = {"stream": True, "stream_options": {"include_usage": True}, "logprobs": True}
    *chunks, last = client.chat.completions.create(**ASKED, **CHOSEN, max_tokens=20, **options)
    assert last.choices == [] and last.usage.completion_tokens == 20
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == trace.text
    assert [choice.finish_reason for choice in choices] == [None] * (len(chunks) - 1) + ["length"]
    assert choices[0].delta.role == "assistant" and len({chunk.id for chunk in chunks}) == 1
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert all(chunk.usage is None for chunk in chunks)
    tokens = [token for choice in choices if choice.logprobs for token in choice.logprobs.content]
    assert b"".join(bytes(token.bytes) for token in tokens).decode(errors="replace") == trace.text


def test_a_stream_without_usage_has_no_usage_field_and_ends_with_done(address):
    body = ASKED | {"stream": True, "max_tokens": 3, "seed": 1}
    with httpx.stream("POST", f"{address}/chat/completions", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    assert all("usage" not in json.loads(line.removeprefix("data: ")) for line in lines[:-1])


def test_completions_continue_a_text(client, generator):
    settings = SamplingParams(0, max_new_tokens=12, logprobs=2)
    trace = generator.run("abcabc", settings, raw=True)
    request = {"model": "tiny", "prompt": "abcabc", "max_tokens": 12, "temperature": 0}
    answer = client.completions.create(**request, logprobs=2)
    assert answer.choices[0].text == trace.text and answer.object == "text_completion"
    logprobs, first = answer.choices[0].logprobs, trace.header.first_logprobs
    assert logprobs.token_logprobs[0] == pytest.approx(first[0].logprob, abs=1e-6) and len(logprobs.tokens) == 12
    pieces = [generator.token_text.piece(token_id) for token_id in trace.token_ids]
    starts = [0, *accumulate(map(len, pieces))][:-1]
    assert logprobs.text_offset == [characters_of_bytes(b"".join(pieces))[start] for start in starts]
    assert logprobs.top_logprobs[0].items() >= {token_name(first[1]): pytest.approx(first[1].logprob)}.items()
    assert client.completions.create(**request | {"prompt": ["abcabc"]}, echo=False).choices[0].text == trace.text
    chunks = client.completions.create(**request, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == trace.text


def test_a_stop_text_ends_an_answer_and_is_not_returned(client, trace):
    stop = next(letter for letter in map(chr, range(33, 127)) if letter in trace.text[3:])
    answer = client.chat.completions.create(**ASKED, **CHOSEN, max_tokens=20, stop=stop)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == trace.text[: trace.text.index(stop)]


def test_content_can_be_parts_and_developer_means_system(client):
    texts = set()
    for role, content in (("developer", [{"type": "text", "text": PROMPT}]), ("system", PROMPT)):
        messages = [{"role": role, "content": "Be brief."}, {"role": "user", "content": content}]
        answer = client.chat.completions.create(model="tiny", messages=messages, max_tokens=8, temperature=0)
        texts.add(answer.choices[0].message.content)
    assert len(texts) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_disconnect_ends_the_answer(generator, stream, monkeypatch):
    gated, halts, work = Gated(generator), [], OneGenerator._work
    monkeypatch.setattr(OneGenerator, "_work", lambda *arguments: (halts.append(arguments[-1]), work(*arguments)))
    gated.gate.clear()
    with served(gated) as (address, backend):
        body = json.dumps(ASKED | {"max_tokens": 40, "stream": stream, "temperature": 0})
        client = http.client.HTTPConnection(urlsplit(address).netloc, timeout=PATIENCE)
        client.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
        wait_until(lambda: halts)
        client.close()
        assert halts[0].wait(PATIENCE)
        gated.gate.set()
        wait_until(lambda: not backend.is_answering)
    assert gated.closed == ["stopped"]


def test_chat_template_arguments_are_passed_on(client, generator, monkeypatch):
    options_of_calls = []
    stream = type(generator).stream
    monkeypatch.setattr(
        type(generator),
        "stream",
        lambda *arguments, **options: options_of_calls.append(options) or stream(*arguments, **options),
    )
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    assert client.chat.completions.create(**ASKED, max_tokens=1, extra_body=extra)
    assert options_of_calls[0]["template_arguments"] == {"enable_thinking": False}


class Answer(BaseModel):
    colour: Literal["red", "blue"]
    warm: bool


@pytest.mark.parametrize("method", ["autoregressive", "jakiro"])
def test_structured_output_is_parsed_by_the_client(client, method):
    extra = {"jakiro": {"method": method}}
    for temperature in (0, 1):
        request = ASKED | {"temperature": temperature, "seed": 3, "max_tokens": 150}
        answer = client.chat.completions.parse(**request, response_format=Answer, extra_body=extra)
        assert isinstance(answer.choices[0].message.parsed, Answer) and answer.choices[0].finish_reason == "stop"
        with client.chat.completions.stream(**request, response_format=Answer, extra_body=extra) as stream:
            assert stream.get_final_completion().choices[0].message == answer.choices[0].message
    choice = {"jakiro": {"method": method, "grammar": {"kind": "choice", "source": ["left", "right"]}}}
    answer = client.chat.completions.create(**ASKED, max_tokens=20, extra_body=choice)
    assert answer.choices[0].message.content in ("left", "right")
    request = ASKED | {"max_tokens": 4, "response_format": {"type": "json_object"}}
    answer = client.chat.completions.create(**request, temperature=0)
    assert answer.choices[0].message.content.lstrip()[:1] == "{"


def test_settings_of_the_library_are_accepted_by_their_names(client, generator):
    settings = {"min_p": 0.1, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.5, "top_k": 40}
    sampling = SamplingParams(1, seed=2, max_new_tokens=16, logit_bias={65: 4.0}, **settings)
    extra = {name: settings.pop(name) for name in ("min_p", "repetition_penalty", "top_k")}
    answer = client.chat.completions.create(
        **ASKED, **settings, temperature=1, seed=2, max_tokens=16, logit_bias={"65": 4.0}, extra_body=extra
    )
    assert answer.choices[0].message.content == generator.run(PROMPT, sampling).text


def test_without_a_head_every_method_is_answered_by_plain_decoding():
    generator = tiny_generator(None)
    with served(generator) as (address, _), openai.OpenAI(base_url=address, api_key="any", max_retries=0) as client:
        expected = generator.run(PROMPT, SamplingParams(0, max_new_tokens=8), "autoregressive").text
        for extension in ({}, {"method": "jakiro"}):
            answer = client.chat.completions.create(
                **ASKED, temperature=0, max_tokens=8, extra_body={"jakiro": extension or {"provenance": True}}
            )
            assert answer.choices[0].message.content == expected and answer.jakiro["method"] == "autoregressive"


def test_incomplete_characters_have_distinct_names_and_offsets_count_characters(client, generator):
    """Three tokens of one byte each, the halves of “é” and a letter, are forced by a grammar."""
    request = {"model": "tiny", "prompt": "abc", "max_tokens": 3, "temperature": 0}
    token_ids = generator.token_text.encode("éx")
    grammar = {"jakiro": {"grammar": {"kind": "choice", "source": ["éx"]}}}
    answer = client.completions.create(**request, logprobs=20, extra_body=grammar).choices[0]
    assert answer.text == "éx" and len(token_ids) == 3
    assert answer.logprobs.tokens == ["bytes:\\xc3", "bytes:\\xa9", "x"]
    assert answer.logprobs.text_offset == [0, 0, 1]
    for best in answer.logprobs.top_logprobs:
        assert len(best) in (20, 21), "no two tokens share a name"
    chunks = client.completions.create(**request, logprobs=0, extra_body=grammar, stream=True)
    offsets = [offset for chunk in chunks if (logprobs := chunk.choices[0].logprobs) for offset in logprobs.text_offset]
    assert offsets == [0, 0, 1]


def test_whitespace_in_json_is_bounded_or_as_the_schema_defines(client):
    """A bias on whitespace simulates a model that writes it without end."""
    schema = {"type": "array", "items": {"type": "boolean"}, "minItems": 2, "maxItems": 2}
    blanks = {"32": 100, "10": 100, "9": 100, "13": 100}
    request = ASKED | {"temperature": 0, "max_tokens": 200, "logit_bias": blanks}
    for extra, bound in ({}, 2 + 20), ({"x-guidance": {"whitespace_flexible": False}}, 1):
        form = {"type": "json_schema", "json_schema": {"name": "t", "schema": schema | extra}}
        choice = client.chat.completions.create(**request, response_format=form).choices[0]
        assert choice.finish_reason == "stop" and len(json.loads(choice.message.content)) == 2
        runs = re.findall(r"\s+", choice.message.content)
        assert max(map(len, runs), default=0) <= bound


def test_a_thread_that_cannot_start_releases_the_turn(generator, monkeypatch):
    with served(generator) as (address, backend):
        start = threading.Thread.start

        def fail(thread) -> None:
            if thread.name == "answer":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", fail)
        body = ASKED | {"max_tokens": 2, "temperature": 0}
        refused = httpx.post(f"{address}/chat/completions", json=body, timeout=PATIENCE)
        assert refused.status_code == 503 and "cannot start another thread" in refused.json()["error"]["message"]
        assert not backend.is_answering
        monkeypatch.undo()
        assert httpx.post(f"{address}/chat/completions", json=body, timeout=PATIENCE).status_code == 200
