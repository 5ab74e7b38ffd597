"""Invalid requests raise one sentence with the value and the expected values; the next request works."""

import copy
import json
import os
import signal
import subprocess
import sys

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.generator import JakiroGenerator
from jakiro.heads.checkpoint import save_head
from jakiro.loading import registry
from jakiro.models.families import unapplied
from jakiro.models.target import TargetModel
from tests.support import TREE, byte_tokenizer, prompt_ids, save_pair, tiny_head, tiny_model, tiny_target

QUESTION, SAMPLING = "Why?", SamplingParams(max_new_tokens=6)


@pytest.fixture(scope="module")
def expected(generator):
    return generator.run(QUESTION, SAMPLING, tree=TREE).token_ids


def assert_refused(call, *parts):
    with pytest.raises(ValueError) as caught:
        call()
    message = str(caught.value)
    for part in parts:
        assert part in message, message
    assert "\n" not in message and len(message) < 500, message


LONG = "a" * 300
EMPTY = ["The prompt is empty; give it some text."]


@pytest.mark.parametrize(
    ("messages", "parts"),
    [
        *((messages, EMPTY) for messages in ("", [], [{"role": "user", "content": ""}])),
        (LONG, [str(len(prompt_ids(LONG))), "256", "Shorten"]),
    ],
)
@pytest.mark.parametrize("method", ["jakiro", "autoregressive"])
def test_empty_or_long_prompt_is_refused_and_the_next_request_works(generator, expected, messages, parts, method):
    assert_refused(lambda: generator.run(messages, SAMPLING, method=method), *parts)
    assert generator.run(QUESTION, SAMPLING, method=method, tree=TREE).token_ids == expected


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ({"target": "smollm3-nonsense"}, ["smollm3-nonsense", "smollm2-135m-instruct"]),
        ({"head": "no-such-head"}, ["no-such-head", "known names are"]),
        ({"dtype": "float8"}, ["'float8'", "float32", "bfloat16"]),
        ({"numerics": "quick"}, ["'quick'", "exact", "fast"]),
        ({"device": "abacus"}, ["'abacus'", "cpu"]),
        *(({"device": name}, [f"“{name}” is not supported", "float64", "“cpu”"]) for name in ("mps", "xpu:0", "meta")),
        ({"target": "no such/model at all"}, ["no such/model at all"]),
    ],
    ids=str,
)
def test_unknown_name_is_refused_with_the_known_names(arguments, parts):
    assert_refused(lambda: JakiroGenerator.from_pretrained(**arguments), *parts)


def test_target_folder_loads_its_head_and_refuses_heads_of_other_targets(tmp_path, expected):
    folder = save_pair(tmp_path)
    target, good = str(folder / "target"), folder / "head"

    def load(head):
        return JakiroGenerator.from_pretrained(target, str(head), device="cpu", dtype="float32")

    small = tmp_path / "small"
    save_head(tiny_head(TargetModel(tiny_model(hidden_size=32), byte_tokenizer()), bind=False), small)
    assert_refused(lambda: load(small), "32", "64", "choose a head trained for this target")
    generator = load(good)
    assert generator.run(QUESTION, SAMPLING, tree=TREE).token_ids == expected
    assert generator.status["head"] == str(good)
    plain = JakiroGenerator.from_pretrained(target, dtype="float32", device="cpu")
    assert plain.status["notices"] == [
        "No draft head fits this model; plain decoding and methods without a head are available."
    ]
    assert plain.run(QUESTION, SAMPLING, method="autoregressive").token_ids == expected


def test_tokens_that_the_model_lacks_are_reported_at_load_and_refused_in_prompts(tmp_path):
    tokenizer = copy.deepcopy(byte_tokenizer())
    tokenizer.add_tokens(["<new>"], special_tokens=False)
    tiny_model().save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    generator = JakiroGenerator.from_pretrained(str(tmp_path), "none", device="cpu", dtype="float32")
    assert any("has 261 tokens, the model 260" in notice for notice in generator.notices)
    assert_refused(
        lambda: generator.run("What is <new> here?", SAMPLING, "autoregressive"), "“<new>”, token 260", "260 tokens"
    )
    assert generator.run("What is new here?", SamplingParams(max_new_tokens=2), "autoregressive").token_ids


def test_recommended_settings_are_reported_and_unsupported_ones_are_named(tmp_path, monkeypatch):
    tiny_model().save_pretrained(tmp_path)
    recommended = {"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1}
    written = recommended | {"do_sample": True, "typical_p": 0.9, "min_p": 7}
    (tmp_path / "generation_config.json").write_text(json.dumps(written), encoding="utf-8")
    byte_tokenizer().save_pretrained(tmp_path)
    generator = JakiroGenerator.from_pretrained(str(tmp_path), "none", device="cpu", dtype="float32")
    assert generator.status["makers_settings"] == recommended
    notices = " ".join(generator.notices)
    assert (
        "recommends temperature 0.7, top_p 0.8, top_k 20, repetition_penalty 1.1; these settings are used only"
        in notices
    )
    assert "generation_config.json sets typical_p 0.9; none of this is applied." in notices
    sampling = SamplingParams(top_k=5, seed=3).with_makers(recommended)
    assert sampling == SamplingParams(0.7, 0.8, 5, 3, repetition_penalty=1.1)
    (tmp_path / "generation_config.json").write_text("{}", encoding="utf-8")
    entry = registry.Entry(str(tmp_path), None, sampling={"top_k": 7})
    monkeypatch.setitem(registry.ENTRIES, "known-here", entry)
    generator = JakiroGenerator.from_pretrained("known-here", "none", device="cpu", dtype="float32")
    assert generator.status["makers_settings"] == {"top_k": 7} and "recommends top_k 7;" in " ".join(generator.notices)
    assert unapplied(tiny_model().generation_config) == [] and tiny_target().makers_settings == {}


def test_float16_overflow_is_refused_with_other_dtypes():
    model = tiny_model(dtype=torch.float16)
    model.model.layers[0].mlp.down_proj.weight.fill_(60000.0)
    model.model.layers[0].mlp.up_proj.weight.fill_(60000.0)
    assert_refused(
        lambda: TargetModel(model, byte_tokenizer()), "float16 cannot hold", "choose dtype bfloat16 or float32"
    )


FORKED = """
import torch
from tests.support import TREE, tiny_generator
from jakiro.config import SamplingParams
torch.set_num_threads(2)
generator, sampling = tiny_generator(), SamplingParams(max_new_tokens=8)
text = generator.run("Fork.", sampling, tree=TREE).token_ids
is_same = lambda: generator.run("Fork.", sampling, tree=TREE).token_ids == text
"""


FORKED_WHILE_COMPILING = """
import threading
from jakiro.backends.native import library
compiling, go_on = threading.Event(), threading.Timer(0.5, lambda: None)
def slowly():
    compiling.set()
    go_on.start()
    go_on.join()
    return None, "a test"
library._load_once = slowly
library.start_build()
compiling.wait()
is_same = lambda: library.library() is None
"""
# Appended to both programs
IN_A_CHILD = """
import os, signal
child = os.fork()
if not child:
    signal.alarm(100)
    os._exit(int(not is_same()))
print(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("code", [FORKED, FORKED_WHILE_COMPILING], ids=["after an answer", "while a thread compiles"])
def test_forked_process_returns_the_same_answer(code):
    command = [sys.executable, "-c", code + IN_A_CHILD]
    run = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert run.communicate(timeout=600)[0].strip() == "0"
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
