"""llama.cpp on the same file as a GGUF target, plain or with its own n-gram speculation.

It runs in a separate process (`llama_worker.py`), so that its threads wait as its authors intend and not as ours do.
Its products round differently and its seeds draw other tokens, so texts may differ.
"""

import importlib.util
import json
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from jakiro.bench.peers import PeerAnswer
from jakiro.config import SamplingParams
from jakiro.loading import weights
from jakiro.loading.registry import NO_HEAD, resolve
from jakiro.text import encode_messages

LLAMA_CPP, LLAMA_CPP_LOOKUP = "llama-cpp", "llama-cpp-lookup"
# Started by its path, because importing our package changes how threads wait
WORKER = (sys.executable, "-P", str(Path(__file__).with_name("llama_worker.py")))


def is_installed() -> bool:
    """Return whether llama-cpp-python is installed."""
    return importlib.util.find_spec("llama_cpp") is not None


class LlamaCppRunner:
    """Callable that answers one turn with llama.cpp, timed from the first token as in our own clock.

    Args:
        method: `LLAMA_CPP` or `LLAMA_CPP_LOOKUP`.
        target: name of the generator's target.
        threads: number of threads, the same as for our own decoding.

    Raises:
        ValueError: llama-cpp-python is not installed, or the target is not a GGUF file.
    """

    def __init__(self, method: str, target: str, threads: int) -> None:
        if not is_installed():
            raise ValueError(f"The method {method} needs llama-cpp-python; run “pip install llama-cpp-python”.")
        model = weights.gguf_path(resolve(target, NO_HEAD))
        if model is None:
            raise ValueError(f"The method {method} needs a GGUF target; {target} is not a GGUF file.")
        self._tokenizer = weights.load_tokenizer(target)
        # This variable changes how our own threads wait; llama.cpp keeps its default
        inherited = {name: value for name, value in os.environ.items() if name != "GOMP_SPINCOUNT"}
        self._worker = subprocess.Popen(
            [*WORKER, str(model), str(threads), *["lookup"] * (method == LLAMA_CPP_LOOKUP)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=inherited,
        )  # fmt: skip
        weakref.finalize(self, _end, self._worker)

    def __call__(self, messages, sampling: SamplingParams) -> PeerAnswer:
        prompt = encode_messages(self._tokenizer, messages)
        request = {
            "prompt": prompt,
            "text": self._tokenizer.decode(prompt, skip_special_tokens=False, clean_up_tokenization_spaces=False),
            "end": self._tokenizer.eos_token_id,
            "max_new_tokens": sampling.max_new_tokens,
            "seed": sampling.seed,
            "sampling": {
                "temp": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "min_p": 0.0,
                "repeat_penalty": sampling.repetition_penalty,
            },
        }
        answer = self._ask(request)
        if "error" in answer:
            raise ValueError(f"llama.cpp: {answer['error']}")
        ids, seconds = answer["token_ids"], answer["seconds"]
        text = self._tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return PeerAnswer(ids, seconds, False, text)

    def read(self, token_ids: Sequence[int]) -> float:
        """Return the seconds to read a prompt."""
        return self._ask({"read": list(token_ids)})["seconds"]

    def _ask(self, request: dict) -> dict:
        self._worker.stdin.write(json.dumps(request) + "\n")
        self._worker.stdin.flush()
        line = self._worker.stdout.readline()
        if not line:
            raise ValueError(f"llama.cpp exited with status {self._worker.wait()}; see its output above.")
        return json.loads(line)


def _end(worker: subprocess.Popen) -> None:
    with suppress(BrokenPipeError):
        worker.stdin.close()
    worker.wait()
    worker.stdout.close()
