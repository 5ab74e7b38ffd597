import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from jakiro.models.features import features_of as stock_features
from jakiro.training.features import FeatureCache, FeatureSource, epoch_batches, length_buckets, write_features
from tests.training.tiny import HIDDEN, features_of, tiny_cache, tiny_sequences, tiny_target


@pytest.mark.anywhere
def test_interrupted_extraction_is_continued_not_repeated(tmp_path):
    target, seen = tiny_target(), []

    def count_and_run(ids):
        seen.append(len(ids))
        return features_of(target)(ids)

    options = {"batch_tokens": 64, "group": 8}
    first = write_features(tmp_path, tiny_sequences(), FeatureSource(HIDDEN), count_and_run, **options)
    assert next(first) == 8
    first.close()
    with pytest.raises(ValueError, match="has the features of 8 of 24 sequences; extract all"):
        FeatureCache(tmp_path)
    before = sum(seen)
    assert list(write_features(tmp_path, tiny_sequences(), FeatureSource(HIDDEN), count_and_run, **options)) == [16, 24]
    assert sum(seen) - before == 16
    complete = tiny_cache(tmp_path.with_name("whole"), target)
    assert_equal_features(FeatureCache(tmp_path), complete)


def layered(target, feature_layers):
    return lambda ids: stock_features(target.model, feature_layers, input_ids=ids, use_cache=False)


def test_cached_rows_equal_the_last_and_additional_layers_of_the_target(tmp_path):
    target, sequences = tiny_target(), tiny_sequences()
    list(
        write_features(
            tmp_path, sequences, FeatureSource(HIDDEN, (1,)), layered(target, (1,)), batch_tokens=64, group=8
        )
    )
    cache = FeatureCache(tmp_path)
    assert (cache.hidden_size, cache.feature_layers) == (HIDDEN, (1,))
    batch = cache.batch([3, 7])
    for row, index in enumerate([3, 7]):
        ids, _ = sequences[index]
        assert batch.ids[row, : len(ids)].tolist() == ids
        with torch.no_grad():
            states = target.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
        torch.testing.assert_close(batch.features[row, : len(ids)], states[-1][0], atol=2e-3, rtol=2e-3)
        torch.testing.assert_close(batch.inputs[row, : len(ids), HIDDEN:], states[1][0], atol=2e-3, rtol=2e-3)


def test_buckets_contain_every_sequence_once_within_the_budget():
    lengths = np.array([5, 50, 7, 8, 31, 30, 6, 200])
    batches = length_buckets(lengths, range(8), 64)
    assert sorted(index for batch in batches for index in batch) == list(range(8))
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= 64 for batch in batches)


def test_epoch_is_a_pure_function_of_seed_and_number():
    lengths = np.arange(10, 60)
    first = epoch_batches(lengths, 5, 50, 128, seed=3, epoch=1)
    assert first == epoch_batches(lengths, 5, 50, 128, seed=3, epoch=1)
    assert first != epoch_batches(lengths, 5, 50, 128, seed=3, epoch=2)
    assert sorted(index for batch in first for index in batch) == list(range(5, 50))


@pytest.mark.parametrize(("hidden_size", "target", "sentence"), [
    (HIDDEN, "other weights", r"has features of another run \(different target\); name an empty"),
    (2 * HIDDEN, "these weights", r"has features of another run \(different hidden_size\); name an empty"),
])  # fmt: skip
def test_a_cache_of_another_target_is_refused_and_left_as_it_is(tmp_path, hidden_size, target, sentence):
    """Other weights of the same width, and a wider target whose rows would make the file longer."""
    list(
        write_features(
            tmp_path, tiny_sequences(), FeatureSource(HIDDEN, target="these weights"), features_of(tiny_target())
        )
    )
    path = tmp_path / "features-00000.safetensors"
    before = path.read_bytes()
    with pytest.raises(ValueError, match=sentence):
        next(write_features(tmp_path, tiny_sequences(), FeatureSource(hidden_size, target=target), None))
    assert path.read_bytes() == before


def assert_equal_features(ours, theirs, **tolerances):
    assert len(ours) == len(theirs) == len(tiny_sequences())
    for (ids, actual), (other_ids, expected) in zip(
        ours.texts(0, len(ours)), theirs.texts(0, len(theirs)), strict=True
    ):
        assert torch.equal(ids, other_ids)
        torch.testing.assert_close(actual, expected, **(tolerances or {"atol": 0, "rtol": 0}))


def damage(path, where):
    """Flip a bit, truncate the file, or write other content."""
    data = bytearray(path.read_bytes())
    if isinstance(where, float):
        data[int(where * (len(data) - 1))] ^= 4
    path.unlink()
    path.write_bytes({"cut": data[: len(data) // 2], "empty": b"", "junk": b"junk"}.get(where, data))


@pytest.mark.parametrize("where", [*np.linspace(0.0, 1.0, 9).tolist(), "cut", "empty", "junk"])
def test_changed_file_is_refused_and_written_again(tmp_path, where, caplog):
    target = tiny_target()
    complete = tiny_cache(tmp_path / "whole", target)
    damage(tiny_cache(tmp_path / "cut", target).folder / "features-00001.safetensors", where)
    with pytest.raises(
        ValueError,
        match=r"features-00001.safetensors is (not a file of features|corrupted: the checksum of text \d+)|sequences",
    ):
        cache = FeatureCache(tmp_path / "cut")
        cache.texts(0, len(cache))
    try:
        assert_equal_features(tiny_cache(tmp_path / "cut", target), complete)
        assert "It is written again." in caplog.text
    except ValueError as error:
        # The record of the features' origin was changed
        assert "name an empty folder" in str(error)


def test_non_finite_features_are_named(tmp_path):
    def broken(ids):
        return features_of(tiny_target())(ids) / 0

    with pytest.raises(ValueError, match=r"features of sequence \d+ are not finite in float16"):
        next(write_features(tmp_path, tiny_sequences(), FeatureSource(HIDDEN), broken))


def test_missing_disk_space_is_one_sentence_before_any_computation(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=5000))
    with pytest.raises(OSError, match=r"has .* free, and the features need .*; free some space, or name"):
        next(write_features(tmp_path, tiny_sequences(), FeatureSource(HIDDEN), None))
