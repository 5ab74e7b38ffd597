"""`generate` of transformers as a baseline, on the default target."""

from types import SimpleNamespace

import torch

from jakiro.bench import peers
from jakiro.bench.peers import StockRunner
from jakiro.config import SamplingParams


def test_clock_starts_at_the_first_token(monkeypatch):
    """The first call follows the prefill, with one token; two steps follow."""
    moments = iter([7.0, 8.0, 10.5])
    monkeypatch.setattr(peers, "time", SimpleNamespace(perf_counter=lambda: next(moments)))
    clock = peers._TokenTimes(torch.device("cpu"))
    for length in (21, 22, 23):
        clock(torch.zeros((1, length)), None)
    assert clock.seconds == 3.5


def test_generate_counts_each_token_once():
    runner = StockRunner(None, "cpu", "float32")
    messages = [{"role": "user", "content": "Count from 1 to 5."}]
    plain = runner(messages, SamplingParams(max_new_tokens=6))
    assert len(plain.token_ids) <= 6 and plain.text
    assert plain.seconds > 0 and plain.comparable
    assert not runner(messages, SamplingParams(1.0, max_new_tokens=3)).comparable
