"""Other programs in a benchmark. The usual comparison is `transformers.generate` on a stock copy of the target.

A copy, because ours runs with another attention; the weights are the same.
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
    """What another program answered; seconds are from the first token on, `comparable` as a run's."""

    token_ids: Sequence[int]
    seconds: float
    comparable: bool
    text: str


class StockRunner:
    """Callable that answers one turn with `generate` and times it from the first token on, as our own clock does."""

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
    """A stopping criterion that never stops, only notes the time: `generate` calls it after every step."""

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


# Other programs by name, each with what makes of a generator's `status` its runner: (messages, sampling) -> PeerAnswer
Peers = Mapping[str, Callable[[dict], Callable]]
PEERS: Peers = {STOCK: lambda status: StockRunner(status["target"], status["device"], status["dtype"])}


def with_peers_of(modules: Iterable[str]) -> Peers:
    """`PEERS`, and those in `PEERS` of modules outside the package, which `methods_from` has imported."""
    found = [vars(import_module(name)).get("PEERS", {}) for name in modules]
    return {name: make for each in (PEERS, *found) for name, make in each.items()}
