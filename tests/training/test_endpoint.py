import json
from collections import deque
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from jakiro.models.families import stop_ids
from jakiro.training import endpoint as endpoints
from jakiro.training.corpus import CorpusConfig, CorpusOptions, CorpusWriter, TextSource, read_corpus
from jakiro.training.endpoint import MAX_TRIES, Endpoint, read_api_key
from jakiro.training.writing import TextRequest, write_texts
from tests.support import byte_tokenizer, tiny_model

IDS = {"choices": [{"token_ids": [7]}]}


@contextmanager
def server(complete, headers=None):
    """Run an OpenAI-compatible server; `complete` returns status and JSON or text for the body of a completion."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if headers is not None:
                headers.append(dict(self.headers))
            self.reply(200, {"data": [{"id": "tiny"}]})

        def do_POST(self):
            self.reply(*complete(json.loads(self.rfile.read(int(self.headers["Content-Length"])))))

        def reply(self, status, body):
            content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=httpd.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}"
    finally:
        httpd.shutdown()
        httpd.server_close()


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(endpoints, "FIRST_PAUSE", 0.001)


def endpoint(url, concurrency=2, **options) -> Endpoint:
    return Endpoint(url, byte_tokenizer(), concurrency, **options)


def requests(count, temperature=0.5):
    return deque(TextRequest(number, [5, number], 7, temperature, 4, top_k=3) for number in range(count))


def test_ids_of_a_server_are_used_and_requests_have_all_settings():
    bodies = []

    def complete(body):
        bodies.append(body)
        return 200, {"choices": [{"text": "?", "token_ids": [body["prompt"][1], 9], "finish_reason": "stop"}]}

    with server(complete) as url:
        results = {request.number: ids for request, ids in endpoint(url + "/v1/").write_texts(requests(5))}
        list(endpoint(url).write_texts(requests(1, temperature=0.0)))
    assert results == {number: [number, 9] for number in range(5)}
    expected = {"model": "tiny", "max_tokens": 4, "temperature": 0.5, "seed": 7, "top_k": 3, "return_token_ids": True}
    assert all(expected.items() <= body.items() for body in bodies[:5])
    assert "top_k" not in bodies[5]


def test_text_of_a_server_that_returns_no_ids_is_tokenised_with_its_end(monkeypatch):
    """Such as one that refuses fields that it does not know."""
    bodies, tokenizer = [], byte_tokenizer()

    def complete(body):
        bodies.append(body)
        if "return_token_ids" in body:
            return 400, {"error": {"message": "Unknown parameter: return_token_ids"}}
        return 200, {"choices": [{"text": "so", "finish_reason": "stop" if body["prompt"][1] else "length"}]}

    with server(complete) as url:
        results = {request.number: ids for request, ids in endpoint(url, 1).write_texts(requests(3))}
    so = tokenizer.encode("so", add_special_tokens=False)
    assert results == {0: so, 1: [*so, tokenizer.eos_token_id], 2: [*so, tokenizer.eos_token_id]}
    assert len(bodies) == 4, "the field is left out after it was refused once"


def test_busy_server_is_asked_again_and_fails_in_one_sentence():
    bodies = []

    def busy_twice(body):
        bodies.append(body)
        return (503, "busy") if len(bodies) < 3 else (200, IDS)

    with server(busy_twice) as url:
        assert [ids for _, ids in endpoint(url).write_texts(requests(1))] == [[7]]
    with (
        server(lambda body: (503, "busy")) as url,
        pytest.raises(ValueError, match=rf"/v1 did not answer /completions in {MAX_TRIES} tries \(status 503\)\.$"),
    ):
        list(endpoint(url).write_texts(requests(1)))


@pytest.mark.parametrize(("answer", "sentence"), [
    ((400, "prompt too long"), r"refused /completions, status 400: prompt too long"),
    ((200, "<html>"), "a text that is not JSON"),
    ((200, {"choices": []}), "sent no completion"),
    ((200, {"choices": [{"token_ids": [10**6]}]}), "token ids outside the tokenizer"),
])  # fmt: skip
def test_answer_that_cannot_be_used_is_one_sentence(answer, sentence):
    with server(lambda body: answer) as url, pytest.raises(ValueError, match=sentence):
        list(endpoint(url).write_texts(requests(1)))


def test_key_and_a_login_are_sent_and_never_shown():
    def refuse(body):
        return 401, f"bad {body['model']} key sk-secret of ada:engine"

    headers = []
    with server(refuse, headers) as url:
        with_key = endpoint(url, api_key="sk-secret")
        with_login = endpoint(url.replace("//", "//ada:engine@"))
        assert headers[0]["Authorization"] == "Bearer sk-secret" and headers[1]["Authorization"].startswith("Basic ")
        for subject, secrets in ((with_key, ["sk-secret"]), (with_login, ["ada", "engine"])):
            with pytest.raises(ValueError, match="refused /completions") as error:
                list(subject.write_texts(requests(1)))
            assert not [secret for secret in secrets if secret in str(error.value) + subject.url]


def test_no_proxy_is_used_for_a_server_on_this_machine(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.org")
    with server(lambda body: (200, IDS)) as url:
        assert endpoint(url).model == "tiny"


@pytest.mark.parametrize("url", ["http://host:8000/v1?key=sk-secret", "here:8000", "http://h:sk-secret@", "ftp://a"])
def test_invalid_url_is_one_sentence_without_it(url):
    with pytest.raises(ValueError, match="--endpoint must be the address of a server") as error:
        endpoint(url)
    assert url not in str(error.value) and "sk-secret" not in str(error.value)


def test_key_comes_from_its_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert read_api_key(None) is None
    monkeypatch.setenv("OPENAI_API_KEY", "sk-environment")
    assert read_api_key(None) == "sk-environment"
    file = tmp_path / "key"
    file.write_bytes(b"\xef\xbb\xbfsk-file\r\n")
    assert read_api_key(str(file)) == "sk-file"
    for content in (b"", b"two words", "schlüssel".encode(), b"\xff"):
        file.write_bytes(content)
        with pytest.raises(ValueError, match=r"key"):
            read_api_key(str(file))
    with pytest.raises(ValueError, match="cannot be read"):
        read_api_key(str(tmp_path / "none"))


@pytest.mark.parametrize(("options", "sentence"), [
    ({"api_key_file": "key"}, "--api-key-file has no effect without --endpoint"),
    ({"endpoint": "http://localhost", "device": "cpu"}, "--device and --dtype have no effect with --endpoint"),
])  # fmt: skip
def test_options_without_effect_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        CorpusConfig("out", **options)


def test_other_seeds_of_a_corpus_are_other_seeds_at_a_server(tmp_path):
    tokenizer, seen = byte_tokenizer(), {}
    for seed in (0, 1, 2**23 - 1):
        seeds = []

        def complete(body, seeds=seeds):
            seeds.append(body["seed"])
            return 200, IDS

        options = CorpusOptions(seed=seed, min_distinct=0)
        with server(complete) as url:
            source = TextSource(endpoint(url).write_texts, {1}, tokenizer)
            CorpusWriter(source, tmp_path / str(seed), options).write(4)
        seen[seed] = set(seeds)
        assert len(seen[seed]) == 8 and all(0 <= value < 2**31 for value in seen[seed])
    assert len(set().union(*seen.values())) == 24


def test_rows_of_a_stopped_server_are_continued_to_those_of_the_model(tmp_path):
    model, tokenizer = tiny_model(), byte_tokenizer()
    ends = stop_ids(model, tokenizer)
    options = CorpusOptions(temperatures=(0.0,), max_new_tokens=6, max_message_tokens=4, min_distinct=0)
    answers, prompts = [], [f"say {number}" for number in range(70)]

    def complete(body):
        if len(answers) == 66:
            return 400, "out of credit"
        request = TextRequest(0, body["prompt"], body["seed"], body["temperature"], body["max_tokens"])
        ((_, ids),) = write_texts(model, deque([request]), 1, ends)
        answers.append(ids)
        return 200, {"choices": [{"token_ids": ids}]}

    with server(complete) as url:
        source = TextSource(endpoint(url, 1).write_texts, ends, tokenizer)
        with pytest.raises(ValueError, match="out of credit"):
            CorpusWriter(source, tmp_path / "server", options, prompts).write(70)
        assert len(read_corpus([tmp_path / "server"])) == 64
        answers[:] = [None] * 67
        CorpusWriter(source, tmp_path / "server", options, prompts).write(70)
    assert len(answers) == 67 + 6, "finished parts are not requested again"
    write = partial(write_texts, model, batch_size=2, stop_ids=ends)
    CorpusWriter(TextSource(write, ends, tokenizer), tmp_path / "model", options, prompts).write(70)
    assert read_corpus([tmp_path / "server"]) == read_corpus([tmp_path / "model"])
