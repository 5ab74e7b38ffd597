import io
import math
import subprocess
import sys
import time

import pytest
import torch

from jakiro.heads.checkpoint import load_head
from jakiro.training.features import FeatureCache, write_features
from jakiro.training.schedule import TrainingOptions, learning_rate_at, unroll_steps_at
from jakiro.training.trainer import STATE_NAME, Trainer
from tests.training.resuming import assert_equal_heads, assert_resumed_equals_whole, run_until_killed
from tests.training.tiny import HIDDEN, features_of, start, tiny_cache, tiny_head, tiny_sequences, tiny_target

OPTIONS = {
    "batch_tokens": 64,
    "warmup_steps": 3,
    "unroll": 2,
    "frequent_rows": 8,
    "sampled_rows": 8,
    "num_validation": 4,
    "checkpoint_minutes": 1e9,
}


class Clock:
    """A clock that advances by one second per call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def trainer(folder, options, clock=Clock, **shape) -> Trainer:
    target = tiny_target()
    cache = tiny_cache(folder / "features", target)
    head = tiny_head(target, draft_vocab=30, **shape)
    start(head, cache)
    return Trainer(head, cache, options, folder / "head", folder / "state", clock=clock and clock())


@pytest.mark.parametrize("options", [{"seed": 1}, {"batch_tokens": 80}, {"num_validation": 5}])
def test_run_is_not_resumed_with_texts_in_another_order(tmp_path, options):
    trainer(tmp_path, TrainingOptions(max_steps=2, **OPTIONS)).run()
    ((name, value),) = options.items()
    before = getattr(TrainingOptions(max_steps=2, **OPTIONS), name)
    with pytest.raises(ValueError, match=rf"cannot change .* \({name} {before} → {value}\); resume with"):
        trainer(tmp_path, TrainingOptions(max_steps=2, **OPTIONS | options)).resume()


@pytest.mark.parametrize("content", [b"", b"garbage", "half", "another head"])
def test_unreadable_state_is_refused_in_one_sentence(tmp_path, content):
    options = TrainingOptions(max_steps=1, **OPTIONS)
    trainer(tmp_path, options).run()
    state = tmp_path / "state" / STATE_NAME
    if content != "another head":
        state.write_bytes(state.read_bytes()[: state.stat().st_size // 2] if content == "half" else content)
    with pytest.raises(ValueError, match=r"state\.pt is not a readable training state of such a head; start") as caught:
        trainer(tmp_path, options, kind="eagle" if content == "another head" else "jakiro").resume()
    assert "\n" not in str(caught.value)


def _bytes_of(value) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_state_with_a_flipped_bit_is_refused(tmp_path):
    options = TrainingOptions(max_steps=2, average_from=0.5, **OPTIONS)
    trainer(tmp_path, options).run()
    path = tmp_path / "state" / STATE_NAME
    content, refused = path.read_bytes(), 0
    state = torch.load(path, weights_only=True)
    for part in range(1, 40):
        data = bytearray(content)
        data[part * len(data) // 40] ^= 16
        path.write_bytes(data)
        try:
            trainer(tmp_path, options).resume()
        except ValueError as error:
            assert "is not a readable training state" in str(error)
            refused += 1
        else:
            # Bytes between the parts of the file are not read
            assert _bytes_of(torch.load(path, weights_only=True)) == _bytes_of(state)
    assert refused > 20
    path.write_bytes(content)
    trainer(tmp_path, options).resume()


@pytest.mark.parametrize(
    ("shape", "average_from"),
    [({}, None), ({}, 0.3), ({"fusion": "decoupled"}, 0.5), ({"kind": "eagle"}, 0.5)],
    ids=["summed", "summed, averaged", "decoupled", "eagle2"],
)
def test_resumed_run_equals_an_uninterrupted_one(tmp_path, shape, average_from):
    options = TrainingOptions(max_steps=12, average_from=average_from, **OPTIONS)
    assert_resumed_equals_whole(lambda folder: trainer(folder, options, **shape), tmp_path, 5, 8)


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.training.test_trainer import SAVED_EACH_STEP, trainer
run = trainer(Path(sys.argv[1]), SAVED_EACH_STEP)
run._report_step = lambda parts: run.step == 6 and os.kill(os.getpid(), signal.SIGKILL)
run.run()
"""
SAVED_EACH_STEP = TrainingOptions(max_steps=8, **OPTIONS | {"checkpoint_minutes": 1e-9})


@pytest.mark.rare
def test_killed_process_leaves_a_state_that_gives_the_same_weights(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "broken")], capture_output=True, timeout=600)
    assert killed.returncode == -9, killed.stderr
    uninterrupted, resumed = (trainer(tmp_path / name, SAVED_EACH_STEP) for name in ("whole", "broken"))
    resumed.resume()
    assert resumed.step == 5
    for run in (uninterrupted, resumed):
        run.run()
    assert_equal_heads(uninterrupted, resumed)


def test_training_lowers_the_gap_to_the_target(tmp_path):
    subject = trainer(tmp_path, TrainingOptions(max_steps=80, learning_rate=1e-2, **OPTIONS))
    gaps = []
    subject._report_step = lambda parts: gaps.append(parts["main_1/token"] - parts["target_entropy"])
    subject.run()
    assert sum(gaps[-10:]) < 0.75 * sum(gaps[:10])
    assert load_head(tmp_path / "head").config.draft_vocab_size == 30


def test_time_budget_ends_the_cosine_schedule_at_zero(tmp_path):
    options = TrainingOptions(time_budget=0.5, **OPTIONS)
    subject = trainer(tmp_path, options)
    rates = []
    subject._report_step = lambda parts: rates.append(parts["learning_rate"])
    subject.run()
    assert 28 <= len(rates) <= 31
    assert rates[-1] < 0.01 * options.learning_rate
    assert max(rates) > 0.8 * options.learning_rate
    assert subject.elapsed >= 30


def test_budget_of_processor_time_stops_with_the_process(tmp_path, monkeypatch):
    """Each clock call is 4 s of work of two threads; a restarted process counts from zero."""
    looks = iter(range(1000))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(time, "process_time", lambda: 4.0 * next(looks))
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    options = TrainingOptions(time_budget=0.5, time_budget_clock="processor", **OPTIONS)
    uninterrupted = trainer(tmp_path / "whole", options, clock=None)
    uninterrupted.run()
    assert (uninterrupted.step, uninterrupted.elapsed) == (15, 30.0)
    run_until_killed(trainer(tmp_path / "broken", options, clock=None), 6, 6)
    looks = iter(range(1000))
    again = trainer(tmp_path / "broken", options, clock=None)
    again.resume()
    assert (again.step, again.elapsed) == (6, 12.0)
    again.run()
    assert (again.step, again.elapsed) == (15, 30.0)


def test_schedule_equals_values_counted_by_hand():
    options = TrainingOptions(max_steps=100, learning_rate=1.0, warmup_steps=4, unroll=3, unroll_from=0.5)
    assert learning_rate_at(0.0, 0, options) == pytest.approx(0.25)
    assert learning_rate_at(0.5, 50, options) == pytest.approx(0.5)
    assert learning_rate_at(1.0, 99, options) == pytest.approx(0, abs=1e-12)
    assert [unroll_steps_at(progress, options) for progress in (0, 0.49, 0.5, 0.74, 0.75, 1.0)] == [1, 1, 2, 2, 3, 3]


def test_non_finite_loss_stops_with_one_sentence(tmp_path):
    subject = trainer(tmp_path, TrainingOptions(max_steps=5, **OPTIONS))
    subject.head.fc.bias.data.fill_(math.nan)
    with pytest.raises(ValueError, match="lower learning rate"):
        subject.run()


@pytest.mark.parametrize(("name", "value"), [
    ("num_validation", 0), ("sampled_rows", 0), ("checkpoint_minutes", 0), ("frequent_rows", -1), ("warmup_steps", -1),
    ("average_from", 1.5), ("unroll_from", -0.1), ("seed", -1), ("seed", 2**60),
])  # fmt: skip
def test_options_that_would_fail_later_are_refused(name, value):
    with pytest.raises(ValueError, match=rf"(?i){name} (must be|is a share).*got {value}"):
        TrainingOptions(max_steps=1, **{name: value})


def test_held_out_texts_are_neither_learned_nor_counted(tmp_path):
    """Ids 38 and 39 occur only in held-out texts, and features of these texts are a hundred times as large."""
    target = tiny_target()
    sequences = [
        ([39] * len(ids) if number < 4 else [min(token, 37) for token in ids], start)
        for number, (ids, start) in enumerate(tiny_sequences())
    ]

    def run(ids):
        return features_of(target)(ids) * torch.where(ids == 39, 100.0, 1.0)[..., None]

    for _ in write_features(tmp_path, sequences, HIDDEN, run):
        pass
    cache = FeatureCache(tmp_path)
    head = tiny_head(target)
    subject = Trainer(head, cache, TrainingOptions(max_steps=1, **OPTIONS | {"frequent_rows": 36}), tmp_path)
    assert not subject.frequent[38:].any() and subject.noise_width == pytest.approx(
        0.25 * float(torch.cat([features for _, features in cache.texts(4, 16)]).std())
    )


@pytest.mark.parametrize("fusion", ["summed", "decoupled"])
def test_bfloat16_learns_like_float32(tmp_path, fusion):
    losses = {}
    for precision in ("float32", "bfloat16"):
        options = TrainingOptions(max_steps=12, precision=precision, **OPTIONS)
        subject = trainer(tmp_path / precision, options, fusion=fusion)
        losses[precision] = []
        subject._report_step = lambda parts, precision=precision: losses[precision].append(parts["loss"])
        subject.run()
        assert all(parameter.dtype == torch.float32 for parameter in subject.head.parameters())
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.03)
    assert losses["bfloat16"] != losses["float32"]


def test_run_ends_with_the_average_of_its_last_weights(tmp_path):
    run = trainer(tmp_path, TrainingOptions(max_steps=6, average_from=0.5, **OPTIONS))
    seen, follow = [], run._follow
    run._follow = lambda: (follow(), seen.append(run.head.fc.weight.detach().clone()))
    run.run()
    expected = seen[2]
    for weights in seen[3:]:
        expected = 0.99 * expected + 0.01 * weights
    torch.testing.assert_close(run.head.fc.weight, expected)
    assert not torch.equal(expected, seen[-1])
    assert torch.equal(load_head(tmp_path / "head").fc.weight, run.head.fc.weight.half().float())
