import gzip
import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from jakiro.heads.checkpoint import write_tensors
from jakiro.kernels.linear import packing_works
from jakiro.prompts import load_questions
from jakiro.target.families import stop_ids
from jakiro.target.llama import FusedLlama
from jakiro.training.corpus import CorpusOptions, CorpusWriter, distinct_share, read_corpus
from jakiro.training.exclusion import evaluation_runs, word_runs
from jakiro.training.kept_features import KeptFeatures
from jakiro.training.writing import write_texts
from tests.support import byte_tokenizer
from tests.training.tiny import byte_target

OPTIONS = CorpusOptions(
    temperatures=(0.0, 1.0), top_k=20, max_new_tokens=8, max_message_tokens=5, part_rows=6, min_distinct=0
)


@pytest.fixture(scope="module")
def writer_of_text():
    return byte_target(num_layers=1), byte_tokenizer()


def writer(writer_of_text, folder, options=OPTIONS, prompts=None, batch_size=3, lean=None, **fields) -> CorpusWriter:
    model, tokenizer = writer_of_text
    ends = stop_ids(model, tokenizer)
    write = partial(write_texts, model, batch_size=batch_size, stop_ids=ends, lean=lean)
    return CorpusWriter(write, ends, tokenizer, folder, options, prompts, **fields)


def test_a_stopped_corpus_is_continued_to_the_same_rows(writer_of_text, tmp_path):
    writer(writer_of_text, tmp_path / "whole", OPTIONS).write(12)
    writer(writer_of_text, tmp_path / "parts", OPTIONS).write(6)
    writer(writer_of_text, tmp_path / "parts", OPTIONS).write(12)
    writer(writer_of_text, tmp_path / "large batch", batch_size=7).write(12)
    whole = read_corpus([tmp_path / "whole"])
    assert whole == read_corpus([tmp_path / "large batch"])
    assert whole == read_corpus([tmp_path / "parts"])
    assert len({tuple(row.ids) for row in whole}) == len(whole)


def test_answers_to_prompts_start_after_the_template(writer_of_text, tmp_path):
    _, tokenizer = writer_of_text
    writer(writer_of_text, tmp_path, OPTIONS, ["hi", "what?"]).write(50)
    rows = read_corpus([tmp_path])
    assert [row.kind for row in rows] == ["prompts", "prompts"]
    text = tokenizer.decode(rows[0].ids[: rows[0].a0])
    assert text == tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert rows[0].l0 == rows[0].a0


def test_other_settings_are_refused(writer_of_text, tmp_path):
    writer(writer_of_text, tmp_path, OPTIONS)
    with pytest.raises(ValueError, match="other settings"):
        writer(writer_of_text, tmp_path, CorpusOptions(seed=1))


def test_loops_have_few_distinct_grams():
    assert distinct_share([1, 2, 3, 4] * 20) < 0.1
    assert distinct_share(list(range(30))) == 1
    assert distinct_share([1, 2]) == 1


def test_a_broken_line_is_named(tmp_path):
    with gzip.open(tmp_path / "part-00000.jsonl.gz", "wt") as file:
        file.write(json.dumps({"ids": [1], "kind": "x", "temp": 0, "a0": 0, "l0": 0}) + "\n{\n")
    with pytest.raises(ValueError, match="line 2"):
        read_corpus([tmp_path])
    with pytest.raises(FileNotFoundError, match="no corpus at"):
        read_corpus([tmp_path / "absent"])


def test_a_self_written_message_is_learned_from_too(writer_of_text, tmp_path):
    _, tokenizer = writer_of_text
    writer(writer_of_text, tmp_path).write(6)
    rows = read_corpus([tmp_path])
    assert rows
    for row in rows:
        assert tokenizer.decode(row.ids[: row.l0]) == "<|im_start|>user\n"
        assert row.l0 < row.a0


def test_the_manifest_counts_what_was_kept(writer_of_text, tmp_path):
    writer(writer_of_text, tmp_path).write(8)
    manifest, rows = json.loads((tmp_path / "manifest.json").read_text()), read_corpus([tmp_path])
    assert manifest["settings"]["temperatures"] == [0.0, 1.0]
    assert manifest["counts"] == {
        "rows": len(rows),
        "tokens": sum(len(row.ids) for row in rows),
        "learned_tokens": sum(len(row.ids) - row.l0 for row in rows),
        "dropped_as_evaluation": 0,
    }


def test_equal_rows_are_written_once(writer_of_text, tmp_path):
    options = replace(OPTIONS, temperatures=(0.0,))
    writer(writer_of_text, tmp_path, options, ["hi", "what?", "hi"]).write(3)
    assert len(read_corpus([tmp_path])) == 2


def test_progress_names_speed_and_time_left(writer_of_text, tmp_path, caplog):
    with caplog.at_level("INFO"):
        writer(writer_of_text, tmp_path).write(6)
    assert re.search(r"6 of 6 rows, \d+ tokens/s, about 0 min left", caplog.text)


def test_a_corpus_goes_on_with_the_part_size_it_began_with(writer_of_text, tmp_path):
    writer(writer_of_text, tmp_path, OPTIONS).write(6)
    writer(writer_of_text, tmp_path, replace(OPTIONS, part_rows=2)).write(12)
    assert sorted(path.name for path in tmp_path.glob("*.gz")) == ["part-00000.jsonl.gz", "part-00001.jsonl.gz"]


def test_rows_that_share_thirteen_words_with_an_evaluation_prompt_are_dropped_and_counted(writer_of_text, tmp_path):
    words = "one two three four five six seven eight nine ten eleven twelve thirteen"
    prompts = [f"so {words} or", words.removesuffix("thirteen") + "times", f"{words.upper().replace(' ', ', ')}!", "hi"]
    (tmp_path / "prompts.jsonl").write_text(
        json.dumps({"question_id": 1, "category": "x", "turns": ["hi", f"Well: {words.replace(' two ', ' “two” ')}?"]})
    )
    excluded = evaluation_runs([tmp_path / "prompts.jsonl"])
    for name, fields in {"old": {}, "new": {"excluded": excluded}}.items():
        writer(writer_of_text, tmp_path / name, OPTIONS, prompts, **fields).write(4)
    assert [len(read_corpus([tmp_path / name])) for name in ("old", "new")] == [4, 1]
    # A corpus that was written without the filter is checked when it is continued.
    writer(writer_of_text, tmp_path / "old", OPTIONS, prompts, excluded=excluded).write(4)
    assert read_corpus([tmp_path / "old"]) == read_corpus([tmp_path / "new"])
    for name in ("old", "new"):
        manifest = json.loads((tmp_path / name / "manifest.json").read_text())
        # Two messages with thirteen of its words, and one that is all of a short prompt
        assert manifest["counts"]["dropped_as_evaluation"] == 3
        assert manifest["counts"]["rows"] == 1
        assert manifest["exclusion"] == {"words": 13, "runs": len(excluded)}


def test_a_short_prompt_is_excluded_as_a_whole_alone():
    assert word_runs("Why is the sky blue?") == word_runs("why is the SKY blue") == {"why is the sky blue"}
    assert word_runs("So: why is the sky blue?").isdisjoint(word_runs("Why is the sky blue?"))
    assert word_runs("?!") == set()
    short = [turn for question in load_questions() for turn in question.turns if len(turn.split()) < 10]
    assert short and all(not word_runs(turn).isdisjoint(evaluation_runs()) for turn in short)


def test_the_template_around_a_message_is_no_part_of_a_run(writer_of_text, tmp_path):
    _, tokenizer = writer_of_text
    words = "one two three four five six seven eight nine ten eleven twelve"
    around = tokenizer.apply_chat_template([{"role": "user", "content": words}], tokenize=False)
    assert word_runs(around)
    writer(writer_of_text, tmp_path, OPTIONS, [words], excluded=word_runs(around)).write(1)
    assert len(read_corpus([tmp_path])) == 1


def test_the_prompts_that_ship_are_always_excluded():
    asked = [turn for question in load_questions() for turn in question.turns]
    assert evaluation_runs() == set().union(*map(word_runs, asked))
    assert len(evaluation_runs()) > 1000


def test_kept_features_are_those_of_the_stock_target(writer_of_text, tmp_path):
    model, _ = writer_of_text
    lean = FusedLlama.build(model, packed=packing_works(model.device, model.dtype))
    for rows in (6, 12):
        writer(writer_of_text, tmp_path, lean=lean, features_of="some weights").write(rows)
    assert sorted(path.name for path in tmp_path.glob("*.safetensors")) == [
        "part-00000.safetensors",
        "part-00001.safetensors",
    ]
    rows = read_corpus([tmp_path])
    kept = KeptFeatures([tmp_path], "some weights")
    assert len(kept) == len(rows) > 8
    for row in rows:
        with torch.inference_mode():
            stock = model.model(input_ids=torch.tensor([row.ids]), use_cache=False).last_hidden_state[0]
        found = kept.of(row.ids)
        assert found.dtype == np.float16
        np.testing.assert_allclose(found, stock.half().numpy(), rtol=2e-3, atol=2e-3)
    assert kept.of([*rows[0].ids, 5]) is None
    assert len(KeptFeatures([tmp_path], "other weights")) == 0
    assert len(KeptFeatures([tmp_path / "part-00001.jsonl.gz"], "some weights")) < len(rows)


def test_a_file_of_features_that_is_damaged_is_left_aside(writer_of_text, tmp_path, caplog):
    writer(writer_of_text, tmp_path).write(6)
    (tmp_path / "part-00000.safetensors").write_bytes(b"no features")
    assert len(KeptFeatures([tmp_path], "some weights")) == 0
    assert "part-00000.safetensors can't be read" in caplog.text


@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: b"rubbish"])
def test_a_damaged_part_is_named_where_it_is_read_and_written_again_by_corpus(writer_of_text, tmp_path, damage):
    writer(writer_of_text, tmp_path / "whole").write(12)
    writer(writer_of_text, tmp_path / "cut").write(12)
    part = tmp_path / "cut" / "part-00000.jsonl.gz"
    part.write_bytes(damage(part.read_bytes()))
    with pytest.raises(
        ValueError, match=r"part-00000.jsonl.gz is (empty|damaged).*; run corpus again, which writes it"
    ):
        read_corpus([tmp_path / "cut"])
    assert writer(writer_of_text, tmp_path / "cut").write(12) > 0
    assert read_corpus([tmp_path / "cut"]) == read_corpus([tmp_path / "whole"])


def test_rows_that_the_manifest_counts_and_nobody_finds_are_missed(writer_of_text, tmp_path):
    writer(writer_of_text, tmp_path).write(12)
    (tmp_path / "part-00001.jsonl.gz").unlink()
    with pytest.raises(ValueError, match=r"holds \d+ rows, its manifest.json counts \d+; run corpus again"):
        read_corpus([tmp_path])
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match=r"manifest.json is damaged"):
        read_corpus([tmp_path])


@pytest.mark.parametrize(("prompts", "weights", "name"), [
    (["hi", "why?"], "a", "prompts_sha256"), (["hi", "what?"], "b", "target_sha256"),
])  # fmt: skip
def test_other_prompts_and_other_weights_of_that_name_are_other_settings(
    writer_of_text, tmp_path, prompts, weights, name
):
    writer(writer_of_text, tmp_path, prompts=["hi", "what?"], target_sha256="a")
    with pytest.raises(ValueError, match=rf"other settings \({name}\)"):
        writer(writer_of_text, tmp_path, prompts=prompts, target_sha256=weights)


def test_a_seed_that_has_no_room_beside_a_text_s_number_is_refused():
    assert CorpusOptions(seed=2**23 - 1)
    for seed in (-1, 2**23):
        with pytest.raises(ValueError, match=f"seed must be from 0 to 8,388,607; you gave {seed}"):
            CorpusOptions(seed=seed)


def test_kept_features_of_which_a_part_is_missing_are_left_aside(tmp_path, caplog):
    path = tmp_path / "part-00000.safetensors"
    tensors = {"ids": torch.zeros(5, dtype=torch.int32), "lengths": torch.tensor([5]), "features": torch.zeros(4, 2)}
    write_tensors(tensors, path, {"target_sha256": "w"})
    assert len(KeptFeatures([path.with_suffix(".jsonl.gz")], "w")) == 0 and "computed again" in caplog.text


def test_features_that_cannot_be_written_are_one_sentence(tmp_path):
    """safetensors has an error of its own for what the system refuses."""
    with pytest.raises(OSError, match=r"^No tensors could be written to .*missing \(.*\); is the disk full\?$"):
        write_tensors({"ids": torch.zeros(5)}, tmp_path / "missing" / "part-00000.safetensors")
