import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from jakiro.target.features import features_of as stock_features
from jakiro.training.features import FeatureCache, epoch_batches, length_buckets, write_features
from tests.training.tiny import HIDDEN, features_of, tiny_cache, tiny_sequences, tiny_target


def test_cached_rows_are_the_targets_own_features(tmp_path):
    target = tiny_target()
    cache = tiny_cache(tmp_path, target)
    batch = cache.batch([3, 7])
    for row, index in enumerate([3, 7]):
        ids, _ = tiny_sequences()[index]
        expected = features_of(target)(torch.tensor([ids]))[0]
        assert batch.ids[row, : len(ids)].tolist() == ids
        torch.testing.assert_close(batch.features[row, : len(ids)], expected, atol=2e-3, rtol=2e-3)


@pytest.mark.anywhere
def test_an_interrupted_extraction_is_continued_not_repeated(tmp_path):
    target, seen = tiny_target(), []

    def watched(ids):
        seen.append(len(ids))
        return features_of(target)(ids)

    options = {"batch_tokens": 64, "group": 8}
    first = write_features(tmp_path, tiny_sequences(), HIDDEN, watched, **options)
    assert next(first) == 8
    first.close()
    with pytest.raises(ValueError, match="has the features of 8 of 24 sequences; extract all"):
        FeatureCache(tmp_path)
    before = sum(seen)
    assert list(write_features(tmp_path, tiny_sequences(), HIDDEN, watched, **options)) == [16, 24]
    assert sum(seen) - before == 16
    whole = tiny_cache(tmp_path.with_name("whole"), target)
    assert np.array_equal(FeatureCache(tmp_path).features, whole.features)


def test_features_that_are_known_are_not_computed(tmp_path):
    target, seen = tiny_target(), []

    def watched(ids):
        seen.append(len(ids))
        return features_of(target)(ids)

    known = {tuple(ids): np.full((len(ids), HIDDEN), 3, np.float16) for ids, _ in tiny_sequences()[::2]}
    list(write_features(tmp_path, tiny_sequences(), HIDDEN, watched, kept=lambda ids: known.get(tuple(ids))))
    cache = FeatureCache(tmp_path)
    assert sum(seen) == len(tiny_sequences()) - len(known)
    for index, (ids, _) in enumerate(tiny_sequences()):
        features = cache.batch([index]).features[0]
        expected = torch.full_like(features, 3) if tuple(ids) in known else features_of(target)(torch.tensor([ids]))[0]
        torch.testing.assert_close(features, expected, atol=2e-3, rtol=2e-3)


def test_a_cache_of_another_corpus_is_refused(tmp_path):
    tiny_cache(tmp_path, tiny_target())
    with pytest.raises(ValueError, match="another corpus"):
        next(write_features(tmp_path, tiny_sequences()[:5], HIDDEN, None))


def layered(target, feature_layers):
    return lambda ids: stock_features(target.model, feature_layers, input_ids=ids, use_cache=False)


def test_rows_of_further_layers_follow_the_last_one_s(tmp_path):
    target, sequences = tiny_target(), tiny_sequences()
    list(write_features(tmp_path, sequences, HIDDEN, layered(target, (1,)), (1,)))
    cache = FeatureCache(tmp_path)
    assert (cache.hidden_size, cache.feature_layers) == (HIDDEN, (1,))
    batch = cache.batch([3])
    ids, _ = sequences[3]
    with torch.no_grad():
        states = target.model(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    torch.testing.assert_close(batch.features[0], states[-1][0], atol=2e-3, rtol=2e-3)
    torch.testing.assert_close(batch.deeper[0], states[1][0], atol=2e-3, rtol=2e-3)
    assert torch.equal(batch.inputs, torch.cat([batch.features, batch.deeper], dim=-1))


def test_a_cache_of_other_layers_is_refused(tmp_path):
    tiny_cache(tmp_path, tiny_target())
    with pytest.raises(ValueError, match=r"was made with feature layers \[\], not \[1\]"):
        next(write_features(tmp_path, tiny_sequences(), HIDDEN, None, (1,)))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"features\.f16 is missing"):
        FeatureCache(tmp_path)


def test_buckets_hold_every_sequence_once_within_the_budget():
    lengths = np.array([5, 50, 7, 8, 31, 30, 6, 200])
    batches = length_buckets(lengths, range(8), 64)
    assert sorted(index for batch in batches for index in batch) == list(range(8))
    assert all(len(batch) == 1 or len(batch) * lengths[batch].max() <= 64 for batch in batches)


def test_an_epoch_is_a_pure_function_of_seed_and_number():
    lengths = np.arange(10, 60)
    first = epoch_batches(lengths, 5, 50, 128, seed=3, epoch=1)
    assert first == epoch_batches(lengths, 5, 50, 128, seed=3, epoch=1)
    assert first != epoch_batches(lengths, 5, 50, 128, seed=3, epoch=2)
    assert sorted(index for batch in first for index in batch) == list(range(5, 50))


@pytest.mark.parametrize(("hidden_size", "target", "sentence"), [
    (HIDDEN, "other weights", "was made with target these weights, not other weights"),
    (2 * HIDDEN, "these weights", f"was made with hidden size {HIDDEN}, not {2 * HIDDEN}"),
])  # fmt: skip
def test_a_cache_of_another_target_is_refused_and_left_as_it_is(tmp_path, hidden_size, target, sentence):
    """Other weights of the same width, and a wider target whose rows would make the file longer."""
    list(write_features(tmp_path, tiny_sequences(), HIDDEN, features_of(tiny_target()), target="these weights"))
    before = (tmp_path / "features.f16").read_bytes()
    with pytest.raises(ValueError, match=sentence):
        next(write_features(tmp_path, tiny_sequences(), hidden_size, None, target=target))
    assert (tmp_path / "features.f16").read_bytes() == before


def test_features_that_are_cut_off_are_computed_again_from_there(tmp_path):
    target, whole = tiny_target(), tiny_cache(tmp_path / "whole", tiny_target())
    cut = tiny_cache(tmp_path / "cut", target)
    path = tmp_path / "cut" / "features.f16"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match=r"features.f16 holds \d+ numbers, \d+ tokens have 16 each; extract"):
        FeatureCache(tmp_path / "cut")
    list(write_features(tmp_path / "cut", tiny_sequences(), HIDDEN, features_of(target)))
    assert len(FeatureCache(tmp_path / "cut")) == len(tiny_sequences())
    np.testing.assert_allclose(FeatureCache(cut.folder).features, whole.features, atol=2e-3)


@pytest.mark.parametrize("name", ["index.safetensors", "progress"])
@pytest.mark.parametrize("content", [b"", b"garbage"])
def test_a_damaged_file_of_a_cache_is_named(tmp_path, name, content):
    tiny_cache(tmp_path, tiny_target())
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{name} is (missing or )?damaged"):
        next(write_features(tmp_path, tiny_sequences(), HIDDEN, None))
    with pytest.raises(ValueError, match=f"{name} is (missing or )?damaged"):
        FeatureCache(tmp_path)


def test_features_for_which_there_is_no_room_are_one_sentence_before_any_is_computed(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=5000))
    with pytest.raises(OSError, match=r"no room for the features in .* are needed, .* are free; free some, or name"):
        next(write_features(tmp_path, tiny_sequences(), HIDDEN, None))


def test_a_disk_that_fills_up_meanwhile_is_the_same_sentence(tmp_path):
    """A limit on a file's size, which the system tells as a full disk is told; written through a map it is a signal."""
    code = (
        "import resource, sys; from pathlib import Path; from tests.training.tiny import tiny_cache, tiny_target\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)); tiny_cache(Path(sys.argv[1]), tiny_target())"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "features"], capture_output=True, text=True)
    assert "OSError: There is no room for the features in" in done.stderr.splitlines()[-1]
