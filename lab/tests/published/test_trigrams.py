"""Tables of trigrams: counting, limits, and invalid files."""

import numpy as np
import pytest

from lab.published.trigrams import TrigramTable, find_table, table_path

TEXTS = [[1, 2, 3, 1, 2, 4, 1, 2, 3], [1, 2, 5], [1, 2, 5], [7, 8, 9], [9, 9]]


def test_successors_are_counted_within_texts_the_most_frequent_first():
    table = TrigramTable.counted(TEXTS, vocab_size=10, least_count=1)
    assert table.after(1, 2) == ([3, 5, 4], [2, 2, 1])
    assert table.after(2, 3) == ([1], [1])
    assert table.after(3, 1) == ([2], [1])
    assert table.after(2, 5) == table.after(8, 9) == table.after(0, 0) == table.after(9, 9) == ([], [])


def test_rare_trigrams_and_too_many_successors_are_left_out():
    assert TrigramTable.counted(TEXTS, 10, least_count=2).after(1, 2) == ([3, 5], [2, 2])
    assert TrigramTable.counted(TEXTS, 10, least_count=2).after(2, 3) == ([], [])
    assert TrigramTable.counted(TEXTS, 10, least_count=1, most_successors=1).after(1, 2) == ([3], [2])
    assert TrigramTable.counted([], 10).after(1, 2) == TrigramTable.empty(10).after(1, 2) == ([], [])


def test_a_saved_table_is_loaded_unchanged(tmp_path):
    path = tmp_path / "folder" / "table.npz"
    written = TrigramTable.counted(TEXTS, 50_000, "abc", least_count=1, manifest={"target": "tiny"})
    written.save(path)
    read = TrigramTable.load(path)
    for name in ("pairs", "starts", "token_ids", "counts"):
        assert np.array_equal(getattr(read, name), getattr(written, name)), name
    assert (read.vocab_size, read.tokenizer) == (50_000, "abc")
    assert read.manifest == {"target": "tiny", "least_count": 1, "most_successors": 12}


@pytest.mark.parametrize("damage", ["cut short", "not an archive", "a column missing", "contradicting columns"])
def test_a_corrupted_table_is_one_sentence(tmp_path, damage):
    path = tmp_path / "table.npz"
    TrigramTable.counted(TEXTS, 10, least_count=1).save(path)
    if damage == "cut short":
        path.write_bytes(path.read_bytes()[:-40])
    elif damage == "not an archive":
        path.write_bytes(b"what is this")
    else:
        with np.load(path) as file:
            columns = dict(file)
        if damage == "a column missing":
            del columns["counts"]
        else:
            columns["lengths"] = columns["lengths"] + 1
        np.savez(path, **columns)
    with pytest.raises(ValueError, match=r"is not a table of trigrams .*; count the trigrams again\.$"):
        TrigramTable.load(path)


@pytest.mark.anywhere
def test_the_user_s_table_has_precedence_over_the_shipped_one(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.files.cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr("lab.files._ASSETS", tmp_path / "assets")
    assert find_table("some/target") is None
    shipped = tmp_path / "assets" / "trigrams" / "some-target.npz"
    for path in (shipped, table_path("some/target")):
        TrigramTable.empty(10).save(path)
        assert find_table("some/target") == path
