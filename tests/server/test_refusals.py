"""Refused requests: one sentence in OpenAI's format with the status and the field."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jakiro.server.application import read_keys
from jakiro.server.errors import Refusal
from jakiro.server.request import SAMPLED, ChatBody, TextBody, read_chat, read_text
from tests.server.served import ASKED, PATIENCE, Gated, served, wait_until
from tests.support import tiny_generator

NAMES = sorted({*SAMPLED, *ChatBody.model_fields, *TextBody.model_fields, "role", "content", "tools", "schema", "kind"})


@pytest.fixture(scope="module")
def gated():
    return Gated(tiny_generator())


@pytest.fixture(scope="module")
def address(gated):
    with served(gated) as (address, _):
        yield address


@pytest.fixture(scope="module")
def locked(gated):
    with served(gated, keys=("sesame", "other")) as (address, _):
        yield address


def post(address: str, body: dict, path: str = "chat/completions", **headers: str) -> httpx.Response:
    return httpx.post(f"{address}/{path}", json=body, headers=headers, timeout=PATIENCE)


def error_of(answer: httpx.Response) -> dict:
    assert answer.json().keys() == {"error"}
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"} and "\n" not in error["message"]
    return error


@pytest.mark.parametrize(
    ("fields", "param", "sentence"),
    [
        ({"tools": [{"type": "function"}]}, "tools", "“tools” is not supported by this server; leave it out."),
        ({"tool_choice": "required"}, "tool_choice", "“tool_choice” is not supported by this server; leave it out."),
        ({"modalities": ["audio"]}, "modalities", "“modalities” is not supported"),
        ({"use_beam_search": True}, "use_beam_search", "“use_beam_search” is not supported"),
        ({"n": 5}, "n", "n should be less than or equal to 4; got 5."),
        ({"n": True}, "n", "n should be a valid integer; got True."),
        ({"stream": "yes"}, "stream", "stream should be a valid boolean; got 'yes'."),
        ({"stream_options": {"speed": 1}}, "stream_options.speed", "“stream_options.speed” is not supported"),
        ({"top_logprobs": 2}, "top_logprobs", "top_logprobs needs logprobs: true."),
        ({"top_logprobs": 21, "logprobs": True}, "top_logprobs", "Logprobs must be a whole number from 0 to 20"),
        ({"temperature": 10**400}, "temperature", "Temperature must be between 0 and 2"),
        ({"top_k": -2}, "top_k", "Top-k must be a whole number, 0 or more"),
        ({"top_k": True}, "top_k", "Top-k must be a whole number, 0 or more"),
        ({"top_p": -0.5}, "top_p", "Top-p must be above 0"),
        ({"min_tokens": -1}, "min_tokens", "Minimum length must be a whole number"),
        ({"ignore_eos": 1}, "ignore_eos", "ignore_eos must be true or false"),
        ({"seed": 2**63 - 1, "n": 2}, "seed", "Seed must be a whole number from 0 to 2^63 - 1"),
        ({"max_tokens": "9"}, "max_tokens", "max_tokens should be a valid integer; got '9'."),
        ({"max_tokens": 0}, "max_tokens", "Length must be a whole number of tokens, 1 or more"),
        ({"logit_bias": {"a": 1}}, "logit_bias", "Logit bias must give"),
        ({"logit_bias": {"5": 1, "05": 2}}, "logit_bias", "logit_bias names a token twice"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "response_format.type should be"),
        (
            {"response_format": {"type": "json_schema"}},
            "response_format",
            "response_format of type json_schema needs json_schema",
        ),
        ({"jakiro": {"method": "magic"}}, "jakiro.method", "Unknown method 'magic'; choose one of"),
        ({"jakiro": {"grammar": {"kind": "xml"}}}, "jakiro.grammar", "A grammar is one of"),
        ({"jakiro": {"answer_prefix_ids": [-1]}}, "jakiro.answer_prefix_ids.0", "jakiro.answer_prefix_ids.0 should be"),
        (
            {"jakiro": {"answer_prefix_ids": [65] * 4}, "max_tokens": 2},
            "jakiro.answer_prefix_ids",
            "answer_prefix_ids end the answer (length)",
        ),
        (
            {"jakiro": {"answer_prefix_ids": [65], "grammar": {"kind": "choice", "source": ["yes"]}}},
            "jakiro.answer_prefix_ids",
            "answer_prefix_ids leave the grammar at token 1",
        ),
        (
            {"prediction": {"type": "content", "content": [{"type": "image"}]}},
            "prediction",
            "Every part of a content must be a text",
        ),
        ({"messages": [{"role": "tool", "content": "1"}]}, "messages", "A message needs a role (system, user, assis"),
        (
            {"messages": [{"role": "user", "content": "?", "tool_calls": [{}]}]},
            "messages[0].tool_calls",
            "“messages[0].tool_calls” is",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages",
            "Every part of a content must be a text",
        ),
        ({"messages": []}, "messages", "“messages” is missing"),
        ({"messages": "Why?"}, "messages", "messages should be a valid list; got 'Why?'."),
        ({"messages": [{"role": "user", "content": "many words " * 200}]}, "messages", "Your prompt has"),
    ],
)
def test_an_invalid_field_is_named(address, fields, param, sentence):
    answer = post(address, ASKED | fields)
    error = error_of(answer)
    assert answer.status_code == 400 and error["message"].startswith(sentence)
    assert (error["type"], error["param"]) == ("invalid_request_error", param)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"prompt": ["a", 5]}, "prompt must be a text, a list of token ids, or a list of these; got 5."),
        ({"prompt": ["a"] * 5, "n": 4}, "A request has at most 16 answers; got 5 prompts × n = 4."),
        ({"prompt": [[]]}, "prompt must be a text"),
        ({"prompt": [99999]}, "Your prompt contains"),
        ({"suffix": "end"}, "“suffix” is not supported"),
        ({"best_of": 3}, "best_of must be 1, or equal n; got 3."),
        ({"echo": 1}, "echo should be a valid boolean; got 1."),
    ],
)
def test_an_invalid_field_of_a_completion_is_named(address, fields, sentence):
    answer = post(address, {"model": "tiny", "prompt": "abc"} | fields, "completions")
    assert answer.status_code == 400 and error_of(answer)["message"].startswith(sentence)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=3)
    | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.sampled_from(NAMES), inner),
    max_leaves=8,
)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6), st.sampled_from([read_chat, read_text]))
def test_random_bodies_are_read_or_refused(fields, read):
    try:
        read({"model": "tiny", "messages": ASKED["messages"], "prompt": "?"} | fields, 100)
    except Refusal as refusal:
        assert refusal.response().body


def test_values_that_change_nothing_are_accepted(address):
    neutral = {
        "user": "ada",
        "metadata": {"a": "b"},
        "n": 1,
        "tools": [],
        "tool_choice": "none",
        "parallel_tool_calls": False,
        "service_tier": "auto",
        "modalities": ["text"],
        "web_search_options": None,
        "use_beam_search": False,
        "skip_special_tokens": True,
        "ignore_eos": False,
        "min_tokens": 0,
        "top_k": -1,
        "seed": -1,
        "logprobs": False,
        "top_logprobs": 0,
        "stream_options": {"continuous_usage_stats": False},
        "logit_bias": {},
        "stop": None,
        "store": False,
    }
    assert post(address, ASKED | neutral | {"max_tokens": 2}).status_code == 200
    text = {"model": "tiny", "prompt": "abc", "max_tokens": 2, "best_of": 1, "suffix": "", "echo": False}
    assert post(address, text, "completions").status_code == 200


def test_neutral_values_mean_what_other_servers_define(address):
    def text_of(**settings) -> str:
        answer = post(address, ASKED | {"max_tokens": 12, "seed": 3} | settings)
        return answer.json()["choices"][0]["message"]["content"]

    assert text_of(top_p=0, temperature=1.5) == text_of(temperature=0)
    assert text_of(top_k=-1, temperature=1.5) == text_of(temperature=1.5)
    messages = [*ASKED["messages"], {"role": "assistant", "content": "A"}, {"role": "user", "content": "B"}]
    plain = text_of(messages=messages, temperature=0)
    messages = [dict(message) for message in messages]
    messages[0]["name"], messages[1]["reasoning_content"] = "Ada", "thinking"
    assert text_of(messages=messages, temperature=0) == plain
    messages[1] = {"role": "assistant", "content": None, "reasoning_content": "thinking"}
    assert isinstance(text_of(messages=messages, temperature=0), str)


def test_unknown_paths_and_methods_are_refused(address):
    assert error_of(httpx.get(f"{address}/embeddings"))["message"].startswith(
        "GET /v1/embeddings is not served; /v1 has"
    )
    assert error_of(answer := httpx.get(f"{address}/completions")) and answer.status_code == 405


@pytest.mark.parametrize(
    ("content", "kind", "status", "sentence"),
    [
        (b"{}", "text/plain", 415, "Content-Type must be application/json; got text/plain."),
        (b"model=tiny", "application/x-www-form-urlencoded", 415, "Content-Type must be application/json"),
        (b"{", "application/json", 400, "The body is not JSON"),
        (b"\xff\xfe\xff", "application/json", 400, "The body is not JSON"),
        (b"[1]", "application/json; charset=utf-8", 400, "The body must be an object; got a list."),
        (b" " * 600_000, "application/json", 413, "The request is too large: at most 512 KB are read here."),
    ],
)
def test_a_body_must_be_a_json_object(address, content, kind, status, sentence):
    answer = httpx.post(f"{address}/chat/completions", content=content, headers={"content-type": kind})
    assert answer.status_code == status and error_of(answer)["message"].startswith(sentence)


def test_requests_of_websites_are_refused(address, locked):
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example", "[", "a@evil.example"):
        answer = httpx.get(f"{address}/models", headers={"host": host})
        assert answer.status_code == 403 and "use localhost" in error_of(answer)["message"]
    for host in ("localhost", "127.0.0.1:8000", "[::1]:8000", "desk", "desk.local", "host.docker.internal"):
        assert httpx.get(f"{address}/models", headers={"host": host}).status_code == 200
    for server, key in ((address, {}), (locked, {"authorization": "Bearer sesame"})):
        for origin in ("https://evil.example", "null"):
            answer = httpx.get(f"{server}/models", headers={"origin": origin} | key)
            assert answer.status_code == 403 and "Requests from the website" in error_of(answer)["message"]
    assert httpx.get(f"{address}/models", headers={"origin": address.removesuffix("/v1")}).status_code == 200


def test_a_key_is_accepted_in_either_header(locked):
    for headers in ({}, {"authorization": "Bearer open"}, {"authorization": "Basic sesame"}, {"api-key": "open"}):
        answer = httpx.get(f"{locked}/models", headers=headers)
        assert answer.status_code == 401 and error_of(answer)["code"] == "invalid_api_key"
        assert "Bearer KEY" in error_of(answer)["message"] and "open" not in error_of(answer)["message"]
    right = ({"authorization": "Bearer sesame"}, {"authorization": "bearer other"}, {"api-key": "sesame"})
    for headers in right:
        assert httpx.get(f"{locked}/models", headers=headers | {"host": "llm.example.org"}).status_code == 200
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=locked, api_key="open", max_retries=0).models.list()


def test_keys_are_read_from_the_option_or_a_file(tmp_path):
    assert read_keys(None) == () and read_keys("AbC/d+e=") == ("AbC/d+e=",)
    file = tmp_path / "keys"
    file.write_text("\ufeffone\ntwo\n", encoding="utf-8")
    assert read_keys(str(file)) == ("one", "two")
    for missing in (tmp_path / "keyz", "./keys", "keyz.txt"):
        with pytest.raises(ValueError, match=r"^There is no file \S+ with API keys; correct its path\.$"):
            read_keys(str(missing))
    file.write_text("\n")
    with pytest.raises(ValueError, match=r"holds no API key; write one on each line\.$"):
        read_keys(str(file))


def test_prompt_caches_belong_to_a_key_and_a_cache_key(address, locked, gated):
    gated.owners.clear()
    post(address, ASKED | {"max_tokens": 1, "prompt_cache_key": "mine"}, authorization="Bearer any")
    assert gated.owners == [None]
    for key, name in (("sesame", None), ("sesame", "mine"), ("other", "mine"), ("sesame", "mine")):
        body = ASKED | {"max_tokens": 1, "prompt_cache_key": name}
        assert post(locked, body, authorization=f"Bearer {key}").status_code == 200
    none, first, second, third, again = gated.owners
    assert again == second and len({none, first, second, third}) == 4
    assert "sesame" not in str(gated.owners)


def test_a_full_queue_returns_when_to_retry(gated):
    request = ASKED | {"max_tokens": 3, "temperature": 0}
    gated.gate.clear()
    with served(gated, queue_length=1) as (address, backend), ThreadPoolExecutor(2) as threads:
        running = threads.submit(post, address, request)
        wait_until(lambda: backend.is_answering)
        waiting = threads.submit(post, address, request)
        wait_until(lambda: backend.num_waiting == 1)
        refused = post(address, request)
        gated.gate.set()
        assert running.result().status_code == waiting.result().status_code == 200
    assert refused.status_code == 429 and int(refused.headers["retry-after"]) >= 1
    error = error_of(refused)
    assert (error["type"], error["message"]) == ("rate_limit_error", "The queue is full; ask again later.")


def test_an_error_inside_an_answer_has_openais_format_and_the_next_request_works(address, gated, capfd):
    client = openai.OpenAI(base_url=address, api_key="any", max_retries=0)
    gated.failing = RuntimeError("/secret/path")
    with pytest.raises(openai.APIError, match=r"^Something went wrong while answering \(RuntimeError\); ask again\.$"):
        list(client.chat.completions.create(**ASKED, temperature=0, max_tokens=20, stream=True))
    gated.failing = RuntimeError("/secret/path")
    with pytest.raises(openai.InternalServerError, match="RuntimeError") as caught:
        client.chat.completions.create(**ASKED, temperature=0, max_tokens=20)
    assert "/secret/path" not in str(caught.value) and "/secret/path" in capfd.readouterr().err
    assert client.chat.completions.create(**ASKED, temperature=0, max_tokens=4).usage.completion_tokens == 4
