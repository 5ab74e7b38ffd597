"""The command line: text on stdout, numbers on stderr, and errors in one sentence."""

import io
import logging
import os
import re
import runpy
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import httpx
import pytest
import typer
import uvicorn
from typer.testing import CliRunner

import jakiro
from jakiro.bench.peers import PEERS
from jakiro.bench.runner import PLAIN_FAST
from jakiro.cli import loading
from jakiro.cli import main as cli
from jakiro.config import Grammar, SamplingParams
from jakiro.drafters.registry import METHODS
from jakiro.trace import Trace
from tests.app.fake import FakeStream
from tests.bench.scripted import ScriptedGenerator, trace
from tests.server.served import any_port, run_apart
from tests.support import tiny_generator

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def generator(monkeypatch):
    scripted = ScriptedGenerator()
    monkeypatch.setattr(loading, "load", lambda *arguments: scripted)
    return scripted


def run(capsys, *arguments):
    """Run a command and return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as exit_info:
        cli.main(list(arguments))
    captured = capsys.readouterr()
    return exit_info.value.code or 0, captured.out, captured.err


def test_generate_writes_the_text_to_stdout_and_the_numbers_to_stderr(generator, capsys):
    code, out, err = run(capsys, "generate", "--prompt", "hi")
    assert (code, out) == (0, "xxxxx\n")
    assert "5 tokens · 250.0 tokens/s · τ 2.00 over 2 steps · step 2.0 + 5.0 + 1.0 ms" in err
    assert "ended: eos" in err and "A notice." in err


@pytest.mark.parametrize("recommended", [{}, {"top_k": 7}])
def test_makers_takes_the_recommended_settings_or_says_that_there_are_none(generator, capsys, recommended):
    generator.target = SimpleNamespace(makers_settings=recommended)
    for command in ("generate", "race"):
        code, _, err = run(capsys, command, "hi", "--makers")
        assert code == 0
        notice = "The model has no recommended sampling settings, so --makers has no effect.\n"
        assert (notice in err) != bool(recommended)
    assert [call[1].top_k for call in generator.calls] == [recommended.get("top_k", 0)] * 3
    code, _, err = run(capsys, "generate", "hi")
    assert code == 0 and "--makers" not in err


def test_generate_passes_every_setting_on(generator, capsys, tmp_path):
    options = "--temperature 0.5 --top-p 0.9 --top-k 7 --seed 3 --max-new-tokens 9 --record-alternatives"
    options += " --nodes 10 --depth 3 --width 4 --method autoregressive"
    options += " --min-p 0.1 --repetition-penalty 1.1 --presence-penalty 0.5 --frequency-penalty -1 --stop END"
    options += " --no-repeat-ngram-size 3 --logit-bias 7=-2.5 --logit-bias 3=1 --suppress-tokens 4,8-9"
    run(capsys, "generate", "--prompt", "hi", *options.split(), "--choice", "yes", "--choice", "no")
    prompt, sampling, method, tree = generator.calls[0]
    assert (prompt, method) == ("hi", "autoregressive")
    assert sampling == SamplingParams(
        0.5, 0.9, 7, 3, 9, record_alternatives=True, min_p=0.1, repetition_penalty=1.1, presence_penalty=0.5,
        frequency_penalty=-1, no_repeat_ngram_size=3, logit_bias={7: -2.5, 3: 1}, suppress_tokens=(4, 8, 9),
        stop=("END",), grammar=Grammar("choice", ("yes", "no")),
    )  # fmt: skip
    assert (tree.nodes, tree.depth, tree.width, tree.policy) == (10, 3, 4, "fixed")
    schema = tmp_path / "schema.json"
    schema.write_text('{"type": "object"}', encoding="utf-8")
    for number, (arguments, grammar) in enumerate([
        (["--json-schema", str(schema)], Grammar("json_schema", '{"type": "object"}')),
        (["--json-schema", '{"type": "null"}'], Grammar("json_schema", '{"type": "null"}')),
        (["--json"], Grammar("json")),
        (["--regex", "[a-z]+"], Grammar("regex", "[a-z]+")),
        (["--lark", 'start: "a"'], Grammar("lark", 'start: "a"')),
    ], start=1):  # fmt: skip
        assert run(capsys, "generate", "--prompt", "hi", *arguments)[0] == 0
        assert generator.calls[number][1].grammar == grammar
        assert generator.calls[number][3] is None and not generator.calls[number][1].record_alternatives


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--json", "--regex", "a"], "An answer has one grammar; got json and regex."),
        (["--regex", "a("], "The grammar is invalid"),
        (["--logit-bias", "x=1"], "Logit bias takes ID=BIAS, such as 42=-5; got 'x=1'."),
    ],
)
def test_invalid_grammar_or_bias_is_refused_before_a_model_is_loaded(generator, capsys, options, message):
    code, _, err = run(capsys, "generate", "--prompt", "hi", *options)
    assert code == 2 and message in " ".join(err.split()) and not generator.calls


def test_race_ends_with_speeds_and_the_verdict_on_the_text(generator, capsys):
    code, out, _ = run(capsys, "race", "--prompt", "hi")
    assert code == 0
    assert "Plain decoding" in out and "Jakiro" in out
    assert out.startswith("xxxxx\n"), "the answer must be above the table"


@pytest.mark.parametrize(
    "name, sentence",
    [
        *((name, f"No draft head fits this model, so {name} cannot run.") for name in ("jakiro", "medusa")),
        ("small_model", "small_model needs a small model of the target's family, given with --draft-model."),
        ("eagle3", "eagle3 needs a published EAGLE-3 head made for the target, given with --head."),
    ],
)
def test_commands_without_a_head_use_plain_decoding_with_a_message(generator, capsys, monkeypatch, name, sentence):
    monkeypatch.setitem(generator.status, "head", None)
    for options in (
        ["generate", "--method", name],
        ["race", "--methods", f"plain,{name}"],
        ["race", "--methods", name],
    ):
        generator.calls.clear()
        code, _, err = run(capsys, *options, "--prompt", "hi")
        assert (code, [call[2] for call in generator.calls]) in ((0, ["autoregressive"]), (0, ["plain"]))
        assert sentence in err


def test_every_method_is_listed_with_its_aliases(capsys):
    code, out, _ = run(capsys, "methods")
    assert code == 0
    words = out.split()
    for method in METHODS.values():
        assert {method.name, *method.aliases} <= set(words) and (method.paper is None or method.paper in words)
    assert all(name in out for name in (PLAIN_FAST, *PEERS))
    assert "--draft-model" in words  # required by small_model
    assert words.count("published") == 2 and words.count("--head") == 2, "no EAGLE-3 or DFlash head is shipped"


def test_retries_of_the_hub_are_not_printed(capsys):
    run(capsys, "methods")
    logging.getLogger("huggingface_hub.utils._http").warning("Retrying in 1s [Retry 1/5].")
    assert "Retrying" not in capsys.readouterr().err


@pytest.mark.anywhere
def test_methods_from_a_module_of_this_folder_are_listed_and_run(generator, capsys, monkeypatch):
    monkeypatch.chdir(ROOT / "docs")
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, out, _ = run(capsys, "methods", "--methods-from", "echo")
    assert code == 0 and "Repeats the last eight tokens." in out
    code, _, _ = run(capsys, "generate", "--prompt", "hi", "--methods-from", "echo", "--method", "echo")
    assert code == 0 and generator.calls[-1][2] == "echo"
    code, out, _ = run(capsys, "race", "--prompt", "hi", "--methods-from", "echo", "--methods", "autoregressive,echo")
    assert code == 0 and "Echo" in out
    sys.modules.pop("echo")


def test_bench_prints_the_share_of_texts_that_equal_plain_decoding(generator, capsys, tmp_path):
    options = ["bench", "--methods", "autoregressive,jakiro", "--limit", "2", "--nodes", "24", "--temperatures", "0"]
    code, out, _ = run(capsys, *options, "--out", str(tmp_path))
    assert code == 0 and out.count("100.0 %") == 2 and (tmp_path / "bench.json").is_file()
    generator.drafted_ids = ((2, 3, 8), (9,))
    code, out, _ = run(capsys, *options, "--out", str(tmp_path))
    assert code == 0 and out.count("100.0 %") == 1 and "0.0 %" in out.replace("100.0 %", "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["generate", "--prompt", ""], "The prompt is empty; give it some text."),
        (
            ["race", "--prompt", "x", "--methods", "plain,autoregressive"],
            "--methods must not repeat a method; got ",
        ),
        (
            ["generate", "--prompt", "x", "--methods-from", "no.such.module"],
            "--methods-from no.such.module: No module named 'no'; give the module's name without .py, and its "
            "folder in PYTHONPATH.",
        ),
        (["methods", "--methods-from", "json"], "--methods-from json: the module has no METHODS; expected a list of"),
        (["bench", "--prompts", "nothing.jsonl"], "There is no prompt file nothing.jsonl."),
        (["generate", "--prompt", "x", "--trace", "/no/such/folder/t.json"], "There is no folder /no/such/folder"),
    ],
)
def test_invalid_input_is_one_sentence_before_a_model_is_loaded(arguments, sentence, capsys, monkeypatch):
    monkeypatch.setattr(loading, "load", lambda *arguments: pytest.fail("a model was loaded"))
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.strip().startswith(sentence) and len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            KeyError("x"),
            1,
            "This is a fault of Jakiro, not of your input (KeyError: 'x'). Please report it in the issues",
        ),
        (ModuleNotFoundError("No module", name="bits"), 2, "This needs the package bits, which is not installed; run "),
        (
            ModuleNotFoundError("No module", name="uvicorn"),
            2,
            "This needs the package uvicorn, which is not installed; run “pip install '.[api]'” in the checkout.",
        ),
        (MemoryError(), 2, "Memory ran out; choose a smaller model"),
        (ValueError("Too long."), 2, "Too long."),
        (FileNotFoundError(2, "No such file or directory", "x.json"), 2, "x.json: No such file or directory."),
    ],
)
@pytest.mark.parametrize("debug", [(), ("--debug",)])
def test_every_error_is_one_sentence_and_debug_shows_the_traceback(error, code, words, debug, capsys, monkeypatch):
    monkeypatch.setattr(loading, "load", Mock(side_effect=error))
    for arguments in (("generate", "--prompt", "x", *debug), (*debug, "generate", "--prompt", "x")):
        exit_code, out, err = run(capsys, *arguments)
        *before, sentence = err.strip().splitlines()
        assert (exit_code, out) == (code, "") and sentence.startswith(words)
        assert ("Traceback (most recent call last):" in before) == bool(debug) == bool(before)


def test_characters_that_the_terminal_lacks_are_replaced(generator, monkeypatch, capsys):
    monkeypatch.setattr(generator, "run", lambda *arguments: trace("jakiro", 9, []))
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    monkeypatch.setattr(Trace, "text", property(lambda trace: "a 🙂 τ b"))
    with pytest.raises(SystemExit) as ended:
        cli.main(["generate", "--prompt", "hi"])
    assert not ended.value.code and written.getvalue().strip() == b"a ? ? b"


def test_stopping_keeps_the_decoded_text(generator, capsys, monkeypatch, tmp_path):
    next_step = FakeStream.__next__

    def interrupted(stream):
        if stream.trace.steps:
            raise KeyboardInterrupt
        return next_step(stream)

    monkeypatch.setattr(FakeStream, "__next__", interrupted)
    code, out, err = run(capsys, "generate", "--prompt", "hi", "--trace", str(tmp_path / "t.json"))
    assert (code, out) == (130, "xxxx\n") and "ended: stopped" in err
    assert (tmp_path / "t.json").is_file()


@pytest.fixture
def served(monkeypatch):
    """Return the list of runs of `serve`: pairs of an application and its address."""
    runs = []
    monkeypatch.setattr(
        uvicorn.Server, "run", lambda server, sockets: runs.append((server.config.app, sockets[0].getsockname()))
    )
    return runs


def ask(app, **headers) -> httpx.Response:
    async def post() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            body = {"model": "tiny", "prompt": "abc", "max_tokens": 3, "temperature": 0}
            return await client.post("/v1/completions", json=body, headers=headers)

    return run_apart(post())


def test_serve_answers_at_v1_with_the_loaded_pair(monkeypatch, capsys, served):
    monkeypatch.setattr(loading, "load", lambda options: tiny_generator())
    monkeypatch.setenv("JAKIRO_API_KEY", "sesame")
    port = any_port()
    code, _, err = run(capsys, "serve", "--port", str(port))
    ((app, address),) = served
    assert code == 0 and f"tiny at http://127.0.0.1:{port}/v1" in err and address == ("127.0.0.1", port)
    assert ask(app).status_code == 401
    assert ask(app, authorization="Bearer sesame").json()["usage"]["completion_tokens"] == 3


def test_serve_without_a_head_uses_plain_decoding_with_a_message(monkeypatch, capsys, served):
    monkeypatch.setattr(loading, "load", lambda options: tiny_generator(None))
    code, _, err = run(capsys, "serve", "--port", str(any_port()))
    assert code == 0 and "No draft head is loaded; requests are answered with autoregressive." in err
    assert ask(served[0][0]).json()["usage"]["completion_tokens"] == 3


@pytest.mark.parametrize("port", ["80000", "0", "-1", "99999999999999999999"])
def test_serve_refuses_ports_out_of_range(port, capsys):
    code, _, err = run(capsys, "serve", "--port", port)
    assert code == 2 and "Invalid value for '--port'" in " ".join(err.split())


def test_page_refuses_ports_out_of_range():
    page = runpy.run_path(str(ROOT / "app.py"))
    result = CliRunner().invoke(page["command"], ["--port", "99999"])
    assert result.exit_code == 2 and "Invalid value for '--port'" in " ".join(result.output.split())
    environment = os.environ | {"GRADIO_SERVER_PORT": "99999"}
    ended = subprocess.run(
        [sys.executable, "app.py"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert ended.returncode == 1
    assert ended.stderr == "GRADIO_SERVER_PORT must be a port from 1 to 65535; got '99999'.\n"


def test_port_in_use_is_one_sentence_before_a_model_is_loaded(capsys, monkeypatch):
    monkeypatch.setattr(loading, "load", lambda *arguments: pytest.fail("a model was loaded"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, _, err = run(capsys, "serve", "--port", str(port))
    assert code == 2 and f"Cannot listen on 127.0.0.1, port {port}: " in err and err.count("\n") == 1


def test_prompt_is_an_argument_or_an_option_but_not_both(generator, capsys):
    for arguments in (["Why?"], ["--prompt", "Why?"]):
        assert run(capsys, "generate", *arguments)[0] == 0
    assert [call[0] for call in generator.calls] == ["Why?", "Why?"]
    code, _, err = run(capsys, "generate", "Why?", "--prompt", "How?")
    assert code == 2 and "Give the prompt once" in err
    code, _, err = run(capsys, "generate")
    assert code == 2 and "There is no prompt" in err


def test_version_is_printed(capsys):
    assert run(capsys, "--version")[:2] == (0, f"jakiro {jakiro.__version__}\n")


@pytest.mark.parametrize("name", typer.main.get_command(cli.app).commands)
def test_help_in_80_columns_shows_every_option_completely(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = run(capsys, name, "--help")
    command = cli.import_command(name) if name in cli.LAZY_COMMANDS else typer.main.get_command(cli.app).commands[name]
    assert code == 0 and "…" not in out and max(map(len, out.splitlines())) <= 80
    for parameter in command.params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", out), option


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--card", "h100"], "--card has no effect without --plan"),
        (["--plan", "vicuna-7b-v1.3", "--verify"], "--plan and --verify are two reports"),
        (["--device", "cpu"], "--device has no effect without --target or --head"),
        (["--verify", "--target", "x"], "--target has no effect with --verify"),
        (["--quick"], "--quick has no effect without --target or --head"),
        (["--target", "x", "--prompts", "y"], "--prompts has no effect without --head"),
        (["--head", "x", "--quick", "--corpus", "y"], "have no effect with --quick"),
        (["--plan", "vicuna-7b-v1.3", "--dtype", "float32"], "--dtype has no effect with --plan"),
    ],
)
def test_options_of_doctor_without_effect_are_refused(arguments, sentence, capsys):
    code, out, err = run(capsys, "doctor", *arguments)
    assert (code, out) == (2, "") and sentence in err


def test_reversed_range_is_refused(capsys):
    code, _, err = run(capsys, "bench", "--seeds", "5,9-0")
    assert code == 2 and "--seeds" in err and "9-0" in err
