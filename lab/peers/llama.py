"""llama.cpp on the very file of a GGUF target, plain or with its own n-gram speculation.

It runs in a process of its own (`llama_worker.py`), so that its threads wait as its authors meant and not as ours do.
Its products round otherwise and its seeds choose otherwise than ours, so texts may part.
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
# By its path: importing our package would set how threads wait
WORKER = (sys.executable, "-P", str(Path(__file__).with_name("llama_worker.py")))


class LlamaCppRunner:
    """Callable that answers one turn with llama.cpp, timed from the first token on, as our own clock does.

    Args:
        method: `LLAMA_CPP` or `LLAMA_CPP_LOOKUP`.
        target: the name of the generator's target.
        threads: as many as ours computes with.

    Raises:
        ValueError: llama-cpp-python is not installed, or the target is no GGUF file.
    """

    def __init__(self, method: str, target: str, threads: int) -> None:
        if importlib.util.find_spec("llama_cpp") is None:
            raise ValueError(f"The method {method} needs llama-cpp-python; run “pip install llama-cpp-python”.")
        model = weights.gguf_path(resolve(target, NO_HEAD))
        if model is None:
            raise ValueError(f"The method {method} reads GGUF files; the target {target} is none.")
        self._tokenizer = weights.load_tokenizer(target)
        # How our own threads wait is set for this process; llama.cpp's are left as they come
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
        """The seconds that reading a prompt takes."""
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
