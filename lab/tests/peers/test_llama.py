"""llama.cpp in benchmarks, with a stand-in for the package: its requests, its timing and its errors."""

import importlib.util
import os
from types import SimpleNamespace

import pytest

from jakiro.config import SamplingParams
from jakiro.loading.embedded import EMBEDDED_TARGET
from jakiro.text import encode_messages
from lab.peers import llama, llama_worker
from lab.peers.llama import LLAMA_CPP, LlamaCppRunner
from tests.support import byte_tokenizer

MESSAGES = [{"role": "user", "content": "Count."}]
# Writes consecutive numbers; the first one shows the number of threads and whether GOMP_SPINCOUNT was set
STAND_IN = """
import os

class Llama:
    def __init__(self, path, n_ctx, n_threads, n_threads_batch, verbose, draft_model=None):
        self.first = 100 if "GOMP_SPINCOUNT" in os.environ else n_threads + 10 * (draft_model is not None)
        self.known = {known}

    def tokenize(self, text, add_bos, special):
        return self.known

    def set_seed(self, seed):
        pass

    def generate(self, prompt, reset, temp, top_k, top_p, min_p, repeat_penalty):
        yield from range(self.first, 90)
"""


class Model:
    """A model that writes ids from 1, each after half a second; the prompt takes five seconds."""

    now = 0.0

    def tokenize(self, text, add_bos, special):
        assert special and not add_bos
        return list(text)

    def set_seed(self, seed):
        assert seed == 5

    def generate(self, prompt, reset, temp):
        assert (temp, reset) == (0.5, True)
        Model.now += 5
        for token_id in range(1, 90):
            yield token_id
            Model.now += 0.5


@pytest.fixture
def timed(monkeypatch):
    monkeypatch.setattr(llama_worker, "time", SimpleNamespace(perf_counter=lambda: Model.now))


REQUEST = {
    "prompt": [104, 105], "text": "hi", "end": 4, "max_new_tokens": 3, "seed": 5, "sampling": {"temp": 0.5},
}  # fmt: skip


def test_the_clock_runs_from_the_first_token_to_the_last(timed):
    assert llama_worker.answer(Model(), REQUEST) == {"token_ids": [1, 2, 3], "seconds": 1.0}
    assert llama_worker.answer(Model(), REQUEST | {"max_new_tokens": 1}) == {"token_ids": [1], "seconds": 0.0}


def test_a_prompt_with_other_ids_in_llama_cpp_is_refused(timed):
    assert "error" in llama_worker.answer(Model(), REQUEST | {"prompt": [104]})


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Return a function that installs the stand-in for the worker's interpreter, with the ids of its tokenizer."""

    def put(known):
        (tmp_path / "llama_cpp.py").write_text(STAND_IN.format(known=known), encoding="utf-8")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setenv("GOMP_SPINCOUNT", "1000")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setattr(llama.weights, "load_tokenizer", lambda name: byte_tokenizer())
        monkeypatch.setattr(llama.weights, "gguf_path", lambda pair: tmp_path / "model.gguf")
        return LlamaCppRunner(LLAMA_CPP, EMBEDDED_TARGET, threads=3)

    return put


def test_a_run_is_made_in_a_process_with_its_own_thread_settings(install):
    runner = install(encode_messages(byte_tokenizer(), MESSAGES))
    answer = runner(MESSAGES, SamplingParams(max_new_tokens=4))
    assert answer.token_ids == [3, 4, 5, 6] and answer.text == byte_tokenizer().decode([3, 4, 5, 6])
    assert answer.seconds > 0 and not answer.comparable
    assert os.environ["GOMP_SPINCOUNT"] == "1000"


def test_a_missing_package_and_a_target_without_a_gguf_file_are_errors(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"llama-cpp needs llama-cpp-python; run “pip install llama-cpp-python”"):
        LlamaCppRunner(LLAMA_CPP, EMBEDDED_TARGET, 2)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    with pytest.raises(ValueError, match="needs a GGUF target; owner/mine is not a GGUF file"):
        LlamaCppRunner(LLAMA_CPP, "owner/mine", 2)
