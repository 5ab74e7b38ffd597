"""Answers on ZeroGPU and their GPU requests in one process; `test_zero_space.py` tests the processes.

Outside of Spaces the decorator of the package `spaces` returns its function unchanged.
"""

import argparse
import sys
import threading
from dataclasses import replace
from functools import partial

import gradio as gr
import pytest
import spaces
import torch

from app.devices import zero as zero_device
from app.devices.choose import device_for
from app.devices.local import LocalDevice
from app.devices.zero import SECONDS_MOST, ZeroDevice, seconds_for, sentence_for
from app.words import page as words
from jakiro.config import TreeConfig
from jakiro.loading import loader
from jakiro.trace import Trace
from tests.app.answers import asking
from tests.support import save_pair

METHODS = ("autoregressive", "jakiro")


@pytest.fixture
def zero(tmp_path):
    """Yield a loaded device with the tiny pair."""
    threads, folder = torch.get_num_threads(), save_pair(tmp_path)
    pair = (str(folder / "target"), str(folder / "head"))
    options = loader.LoadOptions(*pair, "cpu", "float32", "exact", graphs=False)
    device = ZeroDevice(lambda: loader.read_pair(options), spaces.GPU, device="cpu")
    device.load(lambda *_: None)
    yield device
    torch.set_num_threads(threads)


RACE = partial(asking, length=24, methods=METHODS, tree=TreeConfig(nodes=16, depth=4))


def traces_of(device, request, halt=None) -> dict:
    traces = {}
    for kind, method, payload in device.answer(request, halt or threading.Event()):
        if kind == "header":
            traces[method] = Trace(payload)
        elif kind == "step":
            traces[method].steps.append(payload)
        else:
            traces[method].end_reason = payload
    return traces


def test_the_status_has_the_numerics_of_the_gpu_before_the_first_answer(zero):
    """GPUs of ZeroGPU compute float64 slowly, so the default there is fast numerics."""
    before = zero.status
    assert before["device"] == words.ZERO_GPU and before["numerics"] == "exact", "as requested"
    zero._pair = replace(zero._pair, options=replace(zero._pair.options, numerics=None))
    assert zero.status["numerics"] == "fast"
    zero._pair = replace(zero._pair, options=replace(zero._pair.options, numerics="exact"))
    traces_of(zero, asking())
    assert zero.status["head"].endswith("head") and zero.status["device"] == "cpu"


def test_an_exception_in_the_child_is_a_sentence_and_the_next_answer_works(zero, monkeypatch):
    with pytest.raises(ValueError, match=r"Your prompt has [\d,]+ tokens; this model reads 256"):
        traces_of(zero, RACE("x" * 400))

    def broken(*_):
        raise KeyError("secret")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(zero_device, "answer_events", broken)
        with pytest.raises(ValueError) as caught:
            traces_of(zero, RACE())
    assert str(caught.value) == words.UNEXPECTED.format(kind="KeyError")
    assert traces_of(zero, RACE())["jakiro"].end_reason == "length"


def test_an_answer_ends_itself_when_its_gpu_time_is_over(zero, monkeypatch):
    monkeypatch.setattr(zero_device, "seconds_for", lambda *_: 0)
    seen = []
    with pytest.raises(ValueError) as caught:
        seen.extend(zero.answer(RACE(), threading.Event()))
    assert str(caught.value) == words.ZERO_TIME_OVER


@pytest.mark.parametrize(
    ("title", "message", "sentence"),
    [
        (
            "ZeroGPU quota exceeded",
            "You have exceeded your free ZeroGPU quota (30s requested vs. 0s left). Try again in 3:12:01. ",
            words.ZERO_QUOTA_WAIT.format(wait="3:12:01"),
        ),
        ("ZeroGPU quota exceeded", "Space app has reached its GPU limit.", words.ZERO_QUOTA),
        ("ZeroGPU pending credits exceeded", "You have too many ZeroGPU credits allocated.", words.ZERO_QUOTA),
        ("ZeroGPU illegal duration", "The requested GPU duration (120s) is larger than …", words.ZERO_TOO_LONG),
        ("ZeroGPU queue timeout", "No GPU was available after 60s.", words.ZERO_BUSY),
        ("ZeroGPU client error", "No GPU was available", words.ZERO_BUSY),
        ("ZeroGPU worker error", "GPU task aborted", words.ZERO_ABORTED),
    ],
)
def test_refusals_of_the_gpu_service_are_one_sentence(title, message, sentence):
    assert sentence_for(gr.Error(message, title=title)) == sentence


def test_the_seconds_asked_for_follow_from_the_request():
    assert seconds_for(asking(length=100), 20) == 10 + 3
    assert seconds_for(RACE(length=100), 20) == 10 + 6
    assert seconds_for(RACE(length=100_000), 20) == SECONDS_MOST


QUOTA = "You have exceeded your free ZeroGPU quota (120s requested vs. {left}s left). Try again in 3:12:01."


@pytest.mark.parametrize(
    ("title", "message", "requests"),
    [
        ("ZeroGPU quota exceeded", QUOTA.format(left=40), [120, 40]),
        ("ZeroGPU quota exceeded", QUOTA.format(left=14), [120]),
        (
            "ZeroGPU illegal duration",
            "The requested GPU duration (120s) is larger than the maximum allowed.",
            [120, 60],
        ),
        ("ZeroGPU queue timeout", "No GPU was available after 60s.", [120]),
    ],
)
def test_a_request_that_is_too_long_is_repeated_once_with_the_allowed_seconds(zero, title, message, requests):
    run, seen = zero._on_gpu, []

    def on_gpu(request, seconds):
        seen.append(seconds)
        if seconds == 120:
            raise gr.Error(message, title=title)
        yield from run(request, seconds)

    zero._on_gpu, zero._ms_per_token = on_gpu, 1e6
    if len(requests) == 1:
        with pytest.raises(ValueError):
            traces_of(zero, RACE())
    else:
        assert traces_of(zero, RACE())["jakiro"].end_reason == "length"
    assert seen == requests


def test_a_space_reads_its_pair_without_a_gpu_and_leaves_capturing_to_answers(monkeypatch):
    reads = []
    monkeypatch.setattr(loader, "read_pair", reads.append)
    monkeypatch.setattr(zero_device, "is_here", lambda: True)
    monkeypatch.setitem(sys.modules, "spaces", argparse.Namespace(GPU=lambda **_: lambda task: task))
    device_for(None, loader.LoadOptions(), object).load(lambda *_: None)
    (options,) = reads
    assert options.device == "cpu" and options.graphs and not options.capture_at_load


def test_the_command_line_and_the_surroundings_choose_the_device(monkeypatch):
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    assert isinstance(device_for(None, loader.LoadOptions(), object), LocalDevice)
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    monkeypatch.setitem(sys.modules, "spaces", argparse.Namespace(GPU=lambda **_: lambda task: task))
    monkeypatch.setattr(zero_device.importlib.util, "find_spec", lambda name: None if name == "ray" else object())
    assert isinstance(device_for(None, loader.LoadOptions(), object), ZeroDevice)
    with pytest.raises(ValueError, match=r"needs Ray Serve.*pip install"):
        device_for("ray://127.0.0.1:1", loader.LoadOptions(), object)
