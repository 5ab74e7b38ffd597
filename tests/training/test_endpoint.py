import json
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from jakiro.target.families import stop_ids
from jakiro.training.corpus import CorpusOptions, CorpusWriter, read_corpus
from jakiro.training.endpoint import TRIES, Endpoint, read_api_key
from jakiro.training.writing import TextRequest, write_texts
from tests.support import byte_tokenizer, tiny_model


@contextmanager
def server(complete, headers=None):
    """An OpenAI-compatible server; `complete` answers a completion's body with (status, JSON or text).

    Args:
        headers: a list that gets those of each question for models.
    """

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


def endpoint(url, concurrency=2) -> Endpoint:
    return Endpoint(url, byte_tokenizer(), concurrency, first_pause=0.001)


def requests(count):
    return deque(TextRequest(number, [5, number], 7, 0.5, 4, top_k=3) for number in range(count))


def test_a_server_that_returns_ids_is_taken_at_its_word():
    bodies = []

    def complete(body):
        bodies.append(body)
        return 200, {"choices": [{"text": "?", "token_ids": [body["prompt"][1], 9], "finish_reason": "stop"}]}

    with server(complete) as url:
        found = {request.number: ids for request, ids, _ in endpoint(url + "/v1/").write_texts(requests(5))}
    assert found == {number: [number, 9] for number in range(5)}
    wanted = {"model": "tiny", "max_tokens": 4, "temperature": 0.5, "seed": 7, "top_k": 3, "return_token_ids": True}
    assert all(wanted.items() <= body.items() for body in bodies)


def test_a_busy_server_is_asked_again_and_given_up_in_one_sentence():
    asked = []

    def busy_twice(body):
        asked.append(body)
        return (503, "busy") if len(asked) < 3 else (200, {"choices": [{"token_ids": [1]}]})

    with server(busy_twice) as url:
        assert [ids for _, ids, _ in endpoint(url).write_texts(requests(1))] == [[1]]
    with (
        server(lambda body: (503, "busy")) as url,
        pytest.raises(ValueError, match=rf"/v1 did not answer /completions in {TRIES} tries \(status 503\)"),
    ):
        list(endpoint(url).write_texts(requests(1)))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ((400, "prompt too long"), r"refused /completions \(status 400\): prompt too long"),
        ((200, "<html>"), "a reply that is not JSON"),
        ((200, {"choices": []}), "sent no completion"),
    ],
)
def test_a_server_that_refuses_is_one_sentence(answer, sentence):
    with server(lambda body: answer) as url, pytest.raises(ValueError, match=sentence):
        list(endpoint(url).write_texts(requests(1)))


def refuse(body):
    return 401, f"bad {body['model']} key sk-secret of ada:engine"


def test_a_key_and_a_login_are_sent_and_said_nowhere(capsys):
    headers = []
    with server(refuse, headers) as url:
        keyed = Endpoint(url, byte_tokenizer(), 1, api_key="sk-secret")
        named = Endpoint(url.replace("//", "//ada:engine@"), byte_tokenizer(), 1)
    assert headers[0]["Authorization"] == "Bearer sk-secret" and headers[1]["Authorization"].startswith("Basic ")
    for asked, secrets in ((keyed, ["sk-secret"]), (named, ["ada", "engine"])):
        with server(refuse) as asked.url, pytest.raises(ValueError, match="refused /completions") as refused:
            list(asked.write_texts(requests(1)))
        assert not [secret for secret in secrets if secret in str(refused.value) + named.url]


def test_a_server_on_this_machine_is_asked_without_a_proxy(monkeypatch):
    with server(lambda body: (200, {})) as nobody:
        pass
    monkeypatch.setenv("NO_PROXY", "example.org")
    for name in ("HTTP_PROXY", "ALL_PROXY", "no_proxy"):
        monkeypatch.setenv(name, nobody if name != "no_proxy" else "")
    with server(lambda body: (200, {})) as url:
        assert endpoint(url).model == "tiny"


@pytest.mark.parametrize("url", ["http://host:8000/v1?key=sk-secret", "here:8000", "http://h:sk-secret@", "ftp://a"])
def test_a_url_that_is_no_server_is_one_sentence_without_it(url):
    with pytest.raises(ValueError, match="takes the address of a server") as refused:
        endpoint(url)
    assert url not in str(refused.value) and "sk-secret" not in str(refused.value)


def test_a_key_comes_from_its_file_or_the_environment(tmp_path, monkeypatch):
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


def test_a_corpus_written_by_a_server_is_that_of_the_model_it_runs(tmp_path):
    model, tokenizer = tiny_model(), byte_tokenizer()
    ends = stop_ids(model, tokenizer)
    options = CorpusOptions(temperatures=(0.0,), max_new_tokens=6, max_message_tokens=4, min_distinct=0)

    def complete(body):
        request = TextRequest(0, body["prompt"], body["seed"], body["temperature"], body["max_tokens"], body["top_k"])
        ((_, ids, _),) = write_texts(model, deque([request]), 1, ends)
        return 200, {"choices": [{"token_ids": ids}]}

    with server(complete) as url:
        CorpusWriter(endpoint(url, 3).write_texts, ends, tokenizer, tmp_path / "server", options).write(3)

    def write(queue):
        return write_texts(model, queue, 2, ends)

    CorpusWriter(write, ends, tokenizer, tmp_path / "model", options).write(3)
    assert read_corpus([tmp_path / "server"]) == read_corpus([tmp_path / "model"])


def test_a_server_is_given_other_seeds_for_another_seed(tmp_path):
    tokenizer, seen = byte_tokenizer(), {}
    for seed in (0, 1, 2**23 - 1):
        bodies = []

        def complete(body, bodies=bodies):
            bodies.append(body["seed"])
            return 200, {"choices": [{"token_ids": [5]}]}

        options = CorpusOptions(seed=seed, min_distinct=0)
        with server(complete) as url:
            CorpusWriter(endpoint(url).write_texts, {1}, tokenizer, tmp_path / str(seed), options).write(4)
        seen[seed] = set(bodies)
        assert len(seen[seed]) == 8 and all(0 <= each < 2**31 for each in bodies)
    assert len(set().union(*seen.values())) == 24
