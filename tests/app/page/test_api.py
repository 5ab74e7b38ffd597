"""The endpoints of docs/api.md: its example runs, and every field is documented."""

import re

import pytest
from gradio_client.exceptions import AppError

from app.serving.worker import USUAL_LENGTH
from app.words import page as words
from jakiro.drafters.registry import METHODS
from jakiro.trace import Trace
from tests.app import conftest
from tests.app.fake import FakeGenerator, default_answer
from tests.faults import ROOT
from tests.server.served import PATIENCE, wait_until

DOCUMENT = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")

STATUS = FakeGenerator.status.fget


@pytest.fixture(scope="module")
def served():
    generator = FakeGenerator(default_answer() * 2, pace=1.5)
    with conftest.served(lambda: generator, answers_per_minute=1000) as (_, address):
        yield generator, address


def test_the_example_of_the_document_runs(served, connect, monkeypatch, capsys):
    import gradio_client

    *_, example = re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL)
    monkeypatch.setattr(gradio_client, "Client", lambda _: connect(served[1]))
    exec(example, {})
    printed = capsys.readouterr().out
    assert "answering" in printed and "32 tokens, length τ" in printed
    assert re.search(r"\{'autoregressive': [\d.]+, 'jakiro': [\d.]+\}\n\d+ steps", printed)


def test_every_returned_field_is_documented_and_the_trace_reads_back(served, connect):
    client = connect(served[1])
    answer = client.predict("Why?", 12, api_name="/generate")
    race = client.predict("Why?", 12, methods=["jakiro", "context"], api_name="/race")
    lane = race["lanes"]["context"]
    assert set(race) == {"run", "state", "message", "lanes"} and list(race["lanes"]) == ["jakiro", "context"]
    assert set(answer) == {"run", "state", "message"} | set(lane)
    for name in answer:
        assert f"`{name}`" in DOCUMENT, name
    trace = Trace.from_dict(client.predict(answer["run"], api_name="/trace")["jakiro"])
    assert (trace.text, trace.tau, len(trace.token_ids)) == (answer["text"], answer["tau"], answer["num_tokens"])


def test_a_program_stops_only_its_own_answer_running_or_waiting(served, connect, monkeypatch):
    client, second_client = connect(served[1]), connect(served[1])
    monkeypatch.setattr(served[0], "pace", 5.0)
    running = client.submit("Why?", 400, api_name="/generate")
    wait_until(lambda: served[0].active)
    assert second_client.predict(api_name="/stop") == {"stopped": 0}
    with pytest.raises(AppError, match="At most 1 of your questions"):
        client.predict("Another?", api_name="/generate")
    waiting = second_client.submit("Why?", 400, api_name="/generate")
    wait_until(lambda: any(update["message"] for update in waiting.outputs()))
    assert second_client.predict(api_name="/stop") == {"stopped": 1}
    answer = waiting.result(timeout=PATIENCE)
    result = {name: answer[name] for name in ("state", "message", "end_reason", "text", "num_tokens")}
    assert result == {"state": "done", "message": "", "end_reason": "stopped", "text": "", "num_tokens": 0}
    assert client.predict(api_name="/stop") == {"stopped": 1}
    assert running.result(timeout=PATIENCE)["end_reason"] == "stopped"


@pytest.mark.parametrize(
    ("endpoint", "values", "sentence"),
    [
        ("/generate", {"question": "Why?", "method": "magic"}, words.UNKNOWN_METHOD.replace("{value}", "'magic'")),
        ("/race", {"question": "Why?", "methods": ["jakiro", "jakiro"]}, words.UNKNOWN_METHODS),
        ("/trace", {"run_id": "0" * 32}, words.UNKNOWN_RUN),
    ],
)
def test_invalid_arguments_are_an_error_of_one_sentence(served, connect, endpoint, values, sentence):
    with pytest.raises(AppError) as refusal:
        connect(served[1]).predict(**values, api_name=endpoint)
    assert str(refusal.value) == sentence.format(known=", ".join(METHODS))


def test_without_a_head_both_endpoints_answer_plainly_and_say_so(served, connect, monkeypatch):
    _, address = served
    monkeypatch.setattr(FakeGenerator, "status", property(lambda self: STATUS(self) | {"head": None}))
    said = words.OTHERS_RAN.format(missing="jakiro", ran="autoregressive")
    answer = connect(address).predict("Why?", 8, api_name="/generate")
    assert (answer["state"], answer["num_tokens"], answer["message"]) == ("done", 8, said)
    race = connect(address).predict("Why?", 8, api_name="/race")
    assert list(race["lanes"]) == ["autoregressive"] and race["message"] == said
    assert race["lanes"]["autoregressive"]["num_tokens"] == 8
    alone = connect(address).predict("Why?", 8, method="autoregressive", api_name="/generate")
    assert alone["message"] == ""


@pytest.mark.rare
def test_a_chat_goes_on_with_its_history(served, connect):
    client = connect(served[1])
    answer = client.predict("Why?", [], api_name="/chat")
    assert answer and answer == client.predict("Why?", USUAL_LENGTH, api_name="/generate")["text"]
    history = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": answer}]
    assert client.predict("And then?", history, api_name="/chat")
    with pytest.raises(AppError):
        client.predict("", [], api_name="/chat")
