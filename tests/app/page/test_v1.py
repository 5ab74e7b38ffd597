"""The OpenAI-compatible API in the page's process: queue, limits, guard, logins and numbers."""

import asyncio
import gc
import json
import re
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx
import openai
import pytest

from app.devices.local import LocalDevice
from app.serving.worker import AnswerRun
from app.words import page as words
from jakiro.config import SamplingParams
from tests.app.conftest import served
from tests.app.fake import FakeGenerator
from tests.faults import ROOT
from tests.server.served import PATIENCE, run_apart, wait_until
from tests.support import tiny_generator

DOCUMENT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
QUESTION = "the cat sat on the mat; the cat sat"


@contextmanager
def page(generator, keys=(), logins=None, **limits):
    with served(lambda: generator, keys=keys, logins=logins, **limits) as (blocks, address):
        wait_until(lambda: blocks.service.settled)
        yield blocks, address.rstrip("/")


@pytest.fixture(scope="module")
def tiny():
    generator = tiny_generator()
    with page(generator) as (_, address):
        yield generator, address


@pytest.fixture(scope="module")
def fake():
    generator = FakeGenerator(pace=0.02)
    with page(generator, keys=("sesame",), queue_length=30, queue_length_address=18) as (blocks, address):
        yield generator, blocks, address


def body_of(model: str = "Fake-135M", **options) -> dict:
    return {"model": model, "messages": [{"role": "user", "content": QUESTION}]} | options


def post(address: str, body: dict, **headers: str) -> httpx.Response:
    return httpx.post(f"{address}/v1/chat/completions", json=body, headers=headers, timeout=PATIENCE)


def answers_of(service) -> int:
    """Return the number of a page's answers that are still referenced."""
    gc.collect()
    return sum(type(value) is AnswerRun and value._service is service for value in gc.get_objects())


def message_of(answer: httpx.Response) -> str:
    return answer.json()["error"]["message"]


def test_the_same_seed_gives_the_same_text_through_v1_the_page_and_the_library(tiny, connect):
    generator, address = tiny
    client = openai.OpenAI(base_url=f"{address}/v1", api_key="any", max_retries=0)
    for temperature in (0, 1):
        expected = generator.run(QUESTION, SamplingParams(temperature, seed=7, max_new_tokens=16)).text
        chosen = {"temperature": temperature, "seed": 7, "max_tokens": 16}
        answer = client.chat.completions.create(**body_of("tiny"), **chosen)
        assert answer.choices[0].message.content == expected
        lane = connect(address).predict(QUESTION, 16, temperature, 1, 0, 7, api_name="/generate")
        assert lane["text"] == expected


def test_a_prediction_is_drafted_on_the_page_and_changes_no_text(tiny):
    generator, address = tiny
    biases = dict.fromkeys(range(94, 260), -100)
    expected = generator.run(QUESTION, SamplingParams(max_new_tokens=24, logit_bias=biases)).text
    body = body_of("tiny", temperature=0, max_tokens=24, logit_bias={str(token_id): -100 for token_id in biases})
    for content, is_right in ((expected, True), ("something else", False)):
        answer = post(address, body | {"prediction": {"type": "content", "content": content}}).json()
        assert answer["choices"][0]["message"]["content"] == expected
        details = answer["usage"]["completion_tokens_details"]
        assert (details["accepted_prediction_tokens"] >= 12) == is_right


def test_prompts_of_token_ids_are_scored_and_continued_on_the_page(tiny):
    """The request is that of lm-eval: a batch of token ids, their log probabilities, and one more token."""
    generator, address = tiny
    ids = generator.token_text.encode("abcabc")
    prompts, body = [ids, ids[:3]], {"model": "tiny", "temperature": 0, "echo": True, "logprobs": 1}
    with httpx.Client(base_url=f"{address}/v1", timeout=PATIENCE) as client:
        continued = client.post("/completions", json=body | {"prompt": prompts, "max_tokens": 1}).json()
        scored = client.post("/completions", json=body | {"prompt": prompts, "max_tokens": 0, "n": 2}).json()
    assert (continued["usage"]["prompt_tokens"], continued["usage"]["completion_tokens"]) == (9, 2)
    assert (scored["usage"]["prompt_tokens"], scored["usage"]["completion_tokens"]) == (9, 0)
    for place, prompt in enumerate(prompts):
        text, longer = "abcabc"[: len(prompt)], continued["choices"][place]
        assert longer["text"] == text + generator.run(prompt, SamplingParams(max_new_tokens=1), raw=True).text
        expected = [ranked[0].logprob for ranked in generator.score_prompt(prompt, 1).logprobs]
        for choice in scored["choices"][2 * place : 2 * place + 2]:
            first, *rest = choice["logprobs"]["token_logprobs"]
            assert choice["text"] == text and first is None
            assert rest == pytest.approx(expected[1:], abs=1e-6)
            assert longer["logprobs"]["token_logprobs"][: len(prompt)] == [None, *rest]


def test_the_documents_example_runs(tiny, capsys):
    example = re.search(r"```python\n(from openai .*?)```", DOCUMENT, re.DOTALL)[1]
    exec(example.replace("http://127.0.0.1:7860", tiny[1]), {})
    printed = capsys.readouterr().out
    assert "accepted_prediction_tokens=" in printed and "'proposer': 'target'" in printed


def test_errors_keep_openais_form_through_the_guard(tiny):
    _, address = tiny
    answer = post(address, body_of("tiny", n=5))
    assert (answer.status_code, message_of(answer)) == (400, "n should be less than or equal to 4; got 5.")
    assert answer.headers["x-content-type-options"] == "nosniff"
    answer = httpx.get(f"{address}/v1/embeddings")
    assert answer.status_code == 404 and answer.json()["error"]["type"] == "invalid_request_error"
    large = post(address, body_of("tiny", user="x" * 600_000))
    assert (large.status_code, message_of(large)) == (413, words.REQUEST_TOO_LARGE.format(limit=512))
    long = post(address, body_of("tiny") | {"messages": [{"role": "user", "content": "word " * 5000}]})
    assert long.status_code == 400 and "characters" in message_of(long)
    website = post(address, body_of("tiny"), origin="https://evil.example")
    assert website.status_code == 403 and post(address, body_of("tiny"), host="evil.example").status_code == 403


def test_a_page_with_logins_is_closed_to_programs_unless_there_is_a_key():
    with page(FakeGenerator(), logins=[("ada", "engine")]) as (_, address):
        answer = post(address, body_of(), authorization="Bearer engine")
        assert (answer.status_code, message_of(answer)) == (401, words.V1_CLOSED)
    with page(FakeGenerator(), logins=[("ada", "engine")], keys=("sesame",)) as (_, address):
        assert post(address, body_of(), authorization="Bearer open").status_code == 401
        assert post(address, body_of(max_tokens=4), authorization="Bearer sesame").status_code == 200
        assert httpx.get(f"{address}/config").status_code == 401


@pytest.mark.rare
def test_twenty_at_once_wait_in_the_pages_queue_and_hang_ups_free_it(fake):
    generator, blocks, address = fake

    async def ask(client: openai.AsyncOpenAI, number: int) -> str:
        try:
            if number % 2:
                answer = await client.chat.completions.create(**body_of(max_tokens=16))
                return answer.choices[0].message.content
            stream, text = await client.chat.completions.create(**body_of(max_tokens=16), stream=True), ""
            async for chunk in stream:
                text += chunk.choices[0].delta.content or ""
                if number % 4 == 2 and text:
                    await stream.close()
                    return "left"
            return text
        except openai.RateLimitError as error:
            assert int(error.response.headers["retry-after"]) >= 1
            return error.body["message"]

    async def crowd() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{address}/v1", api_key="sesame", max_retries=0) as client:
            asking = [asyncio.create_task(ask(client, number)) for number in range(20)]
            while not any(task.done() and task.result() == refusal for task in asking):
                await asyncio.sleep(0.02)
            generator.gate.set()
            return await asyncio.gather(*asking)

    full_text = "".join(piece.decode() for piece in generator.pieces[:16])
    refusal = words.QUEUE_FULL_ADDRESS.format(count=18)
    for _ in range(2):
        generator.gate.clear()
        texts = run_apart(crowd())
        assert texts.count(refusal) == 1 and set(texts) == {full_text, "left", refusal}
    wait_until(lambda: not any(blocks.service.turns.numbers()[name] for name in ("running", "waiting")))
    wait_until(lambda: not generator.active)
    assert len(blocks.runs) == 0
    wait_until(lambda: not answers_of(blocks.service))


def test_programs_are_answered_below_a_path_whether_or_not_a_proxy_cuts_it_off(monkeypatch):
    monkeypatch.setenv("GRADIO_ROOT_PATH", "/jakiro")
    with page(FakeGenerator()) as (_, address):
        parts = urlsplit(address)
        for path in ("", "/jakiro"):
            answer = post(f"http://{parts.netloc}{path}", body_of(max_tokens=4))
            assert answer.status_code == 200, answer.text


def test_the_end_of_the_server_is_an_error_inside_a_stream():
    generator = FakeGenerator(pace=0.2)
    with page(generator) as (blocks, address):
        lines = []
        with httpx.stream(
            "POST", f"{address}/v1/chat/completions", json=body_of(stream=True), timeout=PATIENCE
        ) as answer:
            for line in filter(None, answer.iter_lines()):
                lines.append(line)
                if len(lines) == 3:
                    blocks.service.closing = True
                    blocks.runs.stop_all(words.SERVER_ENDING)
        assert lines[-1] == "data: [DONE]"
        error = json.loads(lines[-2].removeprefix("data: "))["error"]
        assert (error["message"], error["type"]) == (words.SERVER_ENDING, "server_error")
        refused = post(address, body_of())
        assert (refused.status_code, message_of(refused)) == (503, words.SERVER_ENDING)


def test_a_request_while_the_model_is_loaded_gets_a_retry_after_header():
    begin = threading.Event()

    def load():
        begin.wait(PATIENCE)
        return FakeGenerator()

    with served(load) as (_, address):
        answer = post(address.rstrip("/"), body_of())
        begin.set()
        refusal = answer.status_code, message_of(answer), answer.headers["retry-after"]
        assert refusal == (503, words.V1_LOADING, "5")
        wait_until(lambda: post(address.rstrip("/"), body_of(max_tokens=2)).status_code == 200)


def test_a_borrowed_gpu_is_for_the_pages_visitors(monkeypatch):
    monkeypatch.setattr(LocalDevice, "metered", True)
    with page(FakeGenerator()) as (_, address):
        answer = post(address, body_of())
        assert (answer.status_code, message_of(answer)) == (403, words.V1_NOT_ON_ZERO_GPU)
