import math
import re
import signal
import subprocess
import sys
import time

import pytest
import torch

from jakiro.heads.checkpoint import load_head
from jakiro.training.features import FeatureCache, FeatureSource, epoch_batches, write_features
from jakiro.training.schedule import TrainingOptions, learning_rate_at, unroll_steps_at
from jakiro.training.trainer import (
    CHECKSUMS_NAME,
    CLIP_NORM,
    PROGRESS_NAME,
    Trainer,
    TrainingFolders,
    TrainingStopped,
)
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
    return Trainer(head, cache, options, TrainingFolders(folder / "head", folder / "state"), clock=clock and clock())


@pytest.mark.parametrize("options", [{"seed": 1}, {"batch_tokens": 80}, {"num_validation": 5}])
def test_run_is_not_resumed_with_texts_in_another_order(tmp_path, options):
    trainer(tmp_path, TrainingOptions(max_steps=2, **OPTIONS)).run()
    ((name, value),) = options.items()
    before = getattr(TrainingOptions(max_steps=2, **OPTIONS), name)
    with pytest.raises(ValueError, match=rf"cannot change .* \({name} {before} → {value}\); resume with"):
        trainer(tmp_path, TrainingOptions(max_steps=2, **OPTIONS | options)).resume()


def checkpoint(folder):
    """Return the only checkpoint of a run."""
    (path,) = (folder / "state").glob("step-*")
    return path


@pytest.mark.parametrize("content", [b"", b"garbage", "half", "another head"])
def test_checkpoint_that_cannot_be_resumed_from_is_one_sentence(tmp_path, content):
    options = TrainingOptions(max_steps=1, **OPTIONS)
    trainer(tmp_path, options).run()
    weights = checkpoint(tmp_path) / "model.safetensors"
    if content != "another head":
        weights.write_bytes(weights.read_bytes()[: weights.stat().st_size // 2] if content == "half" else content)
    with pytest.raises(ValueError, match=r"step-00000001 is not a readable checkpoint of such a head; start") as error:
        trainer(tmp_path, options, kind="eagle" if content == "another head" else "jakiro").resume()
    assert "\n" not in str(error.value)


def test_checkpoint_with_a_flipped_bit_is_refused(tmp_path):
    options = TrainingOptions(max_steps=2, average_from=0.5, **OPTIONS)
    trainer(tmp_path, options).run()
    names = {path.name for path in checkpoint(tmp_path).iterdir()}
    assert names >= {"model.safetensors", "optimizer.bin", "average.safetensors", PROGRESS_NAME, CHECKSUMS_NAME}
    for name in sorted(names):
        path = checkpoint(tmp_path) / name
        whole = path.read_bytes()
        for place in range(1, 8):
            data = bytearray(whole)
            data[place * len(data) // 8] ^= 2
            path.write_bytes(data)
            with pytest.raises(ValueError, match="is not a readable checkpoint"):
                trainer(tmp_path, options).resume()
        path.write_bytes(whole)
    trainer(tmp_path, options).resume()


def test_unfinished_checkpoint_is_ignored_and_removed(tmp_path):
    options = TrainingOptions(max_steps=4, **OPTIONS)
    run_until_killed(trainer(tmp_path, options), 2, 2)
    unfinished = tmp_path / "state" / "step-00000003"
    unfinished.mkdir()
    (unfinished / "model.safetensors").write_bytes(b"half")
    again = trainer(tmp_path, options)
    again.resume()
    assert again.step == 2
    again.run()
    assert checkpoint(tmp_path).name == "step-00000004"


def test_signal_ends_the_step_writes_a_checkpoint_and_says_how_to_resume(tmp_path):
    options = TrainingOptions(max_steps=6, **OPTIONS)
    whole, stopped = trainer(tmp_path / "whole", options), trainer(tmp_path / "stopped", options)
    whole.run()
    stopped._report_step = lambda parts: stopped.step == 2 and signal.raise_signal(signal.SIGTERM)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(TrainingStopped) as error:
        stopped.run()
    assert str(error.value) == (
        "Training stopped after step 3; the checkpoint of step 3 is complete: run the same command with --resume."
    )
    assert signal.getsignal(signal.SIGTERM) is before
    again = trainer(tmp_path / "stopped", options)
    again.resume()
    again.run()
    assert_equal_heads(whole, again)


def test_log_has_the_time_left(tmp_path, caplog):
    caplog.set_level("INFO")
    trainer(tmp_path, TrainingOptions(max_steps=60, **OPTIONS)).run()
    lines = [record.message for record in caplog.records if "gap to target" in record.message]
    assert [re.search(r"([\d.]+) min, ([\d.]+) left", line).groups() for line in lines] == [
        ("0.3", "0.7"), ("0.7", "0.3"), ("1.0", "0.0"),
    ]  # fmt: skip


def test_accumulated_batches_give_the_mean_of_their_gradients(tmp_path):
    """Two batches a step; by hand, the gradient of the mean of both losses."""
    options = TrainingOptions(max_steps=1, accumulate=2, **OPTIONS)
    subject, seen = trainer(tmp_path / "one", options), {}
    optimizer = subject.optimizers[0].optimizer

    def step(closure=None):
        seen["gradient"] = subject.head.fc.weight.grad.clone()

    optimizer.step = step
    losses = []
    subject._report_step = lambda parts: losses.append(parts["loss"])
    subject._run()
    by_hand = trainer(tmp_path / "two", TrainingOptions(max_steps=1, **OPTIONS))
    batches = epoch_batches(by_hand.cache.lengths, 4, len(by_hand.cache), 64, 0, 0)
    total = 0.0
    for by_hand.step, indices in enumerate(batches[:2]):
        total += by_hand._backward(by_hand.cache.batch(indices), 0, 1)["loss"]
    assert losses == [pytest.approx(total / 2)]
    expected = by_hand.head.fc.weight.grad / 2
    norm = torch.nn.utils.get_total_norm([parameter.grad / 2 for parameter in by_hand.head.parameters()])
    torch.testing.assert_close(seen["gradient"], expected * min(1.0, CLIP_NORM / float(norm)), rtol=1e-4, atol=1e-7)


def test_step_that_needs_more_batches_than_an_epoch_has_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"has \d batches of --batch-tokens 64, but a step needs 50; lower"):
        trainer(tmp_path, TrainingOptions(max_steps=1, accumulate=50, **OPTIONS)).run()


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
    with pytest.raises(ValueError, match=rf"(?i){name} must be .*got {value}"):
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

    for _ in write_features(tmp_path, sequences, FeatureSource(HIDDEN), run):
        pass
    cache = FeatureCache(tmp_path)
    head = tiny_head(target)
    subject = Trainer(
        head, cache, TrainingOptions(max_steps=1, **OPTIONS | {"frequent_rows": 36}), TrainingFolders(tmp_path)
    )
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
    seen, follow = [], run._update_average
    run._update_average = lambda: (follow(), seen.append(run.head.fc.weight.detach().clone()))
    run.run()
    expected = seen[2]
    for weights in seen[3:]:
        expected = 0.99 * expected + 0.01 * weights
    torch.testing.assert_close(run.head.fc.weight, expected)
    assert not torch.equal(expected, seen[-1])
    assert torch.equal(load_head(tmp_path / "head").fc.weight, run.head.fc.weight.half().float())
