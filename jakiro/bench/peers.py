"""Other programs in a benchmark. The usual comparison is `transformers.generate` on a copy of the target.

The copy has the same weights; the loaded target itself runs with another attention.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import NamedTuple

from jakiro.config import SamplingParams
from jakiro.loading import weights
from jakiro.text import TokenText, encode_messages

STOCK = "hf-generate"


class PeerAnswer(NamedTuple):
    """Answer of another program.

    Attributes:
        token_ids: tokens of the answer.
        seconds: decode time from the first token on.
        comparable: see `Run.comparable`.
        text: the answer.
    """

    token_ids: Sequence[int]
    seconds: float
    comparable: bool
    text: str


class StockRunner:
    """Answers one turn with transformers' `generate` and measures the time from the first token on."""

    def __init__(self, target: str | None, device, dtype):
        self._model, self._tokenizer, _ = weights.load_target(target, device, dtype)
        self._text = TokenText(self._tokenizer)

    def __call__(self, messages, sampling: SamplingParams) -> PeerAnswer:
        import torch

        prompt = encode_messages(self._tokenizer, messages)
        input_ids = torch.tensor([prompt], device=self._model.device)
        options = {"max_new_tokens": sampling.max_new_tokens, "do_sample": not sampling.greedy}
        options["repetition_penalty"] = sampling.repetition_penalty
        if not sampling.greedy:
            options |= {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": sampling.top_k}
            torch.manual_seed(sampling.seed)
        clock = _TokenTimes(self._model.device)
        with torch.inference_mode():
            output = self._model.generate(
                input_ids, attention_mask=torch.ones_like(input_ids), stopping_criteria=[clock], **options
            )
        token_ids = output[0, len(prompt) :].tolist()
        return PeerAnswer(token_ids, clock.seconds, sampling.greedy, self._text.decode(token_ids))


class _TokenTimes:
    """A stopping criterion that never stops and records the time; `generate` calls it after every step."""

    def __init__(self, device):
        self._device, self._times = device, []

    def __call__(self, input_ids, scores, **kwargs):
        import torch

        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._times.append(time.perf_counter())
        return torch.zeros(input_ids.shape[0], dtype=torch.bool, device=input_ids.device)

    @property
    def seconds(self) -> float:
        return self._times[-1] - self._times[0]


# Other programs by name: a function from a generator's `status` to a runner, (messages, sampling) -> PeerAnswer
Peers = Mapping[str, Callable[[dict], Callable]]
PEERS: Peers = {STOCK: lambda status: StockRunner(status["target"], status["device"], status["dtype"])}


def with_peers_of(modules: Iterable[str]) -> Peers:
    """Return `PEERS` and the `PEERS` of modules outside the package, which `methods_from` has imported."""
    peers = dict(PEERS)
    for module in modules:
        peers |= vars(import_module(module)).get("PEERS", {})
    return peers
