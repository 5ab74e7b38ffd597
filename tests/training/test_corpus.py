import gzip
import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from jakiro.training.corpus import CorpusOptions, CorpusWriter, Row, distinct_share, read_corpus, sample_batch
from tests.support import byte_tokenizer

OPTIONS = CorpusOptions(
    temperatures=(0.0, 1.0), top_k=20, max_new_tokens=8, max_message_tokens=5, batch_size=3, part_rows=6, min_distinct=0
)


@pytest.fixture(scope="module")
def writer_of_text():
    torch.manual_seed(0)
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.3,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return LlamaForCausalLM(config).eval(), tokenizer


def test_a_row_does_not_depend_on_its_batch(writer_of_text):
    model, _ = writer_of_text
    prompts, seeds, temperatures = [[5, 6, 7], [9], [4, 4]], [11, 12, 13], [1.0, 0.0, 0.7]
    together = sample_batch(model, prompts, seeds, temperatures, 20, 12, stop_ids={3})
    alone = [
        sample_batch(model, [prompt], [seed], [temperature], 20, 12, stop_ids={3})[0]
        for prompt, seed, temperature in zip(prompts, seeds, temperatures, strict=True)
    ]
    assert together == alone


def test_a_finished_row_ends_with_its_stop_id(writer_of_text):
    model, _ = writer_of_text
    free = sample_batch(model, [[5], [6]], [1, 2], [1.0, 1.0], 20, 10, stop_ids=set())
    stop = free[0][2]
    stopped = sample_batch(model, [[5], [6]], [1, 2], [1.0, 1.0], 20, 10, stop_ids={stop})
    assert stopped[0] == free[0][: free[0].index(stop) + 1]
    assert stopped[1] == (free[1][: free[1].index(stop) + 1] if stop in free[1] else free[1])


def test_a_stopped_corpus_is_continued_to_the_same_rows(writer_of_text, tmp_path):
    CorpusWriter(*writer_of_text, tmp_path / "whole", OPTIONS).write(12)
    CorpusWriter(*writer_of_text, tmp_path / "parts", OPTIONS).write(6)
    CorpusWriter(*writer_of_text, tmp_path / "parts", OPTIONS).write(12)
    whole = read_corpus([tmp_path / "whole"])
    assert whole == read_corpus([tmp_path / "parts"])
    assert len({tuple(row.ids) for row in whole}) == len(whole)


def test_answers_to_prompts_start_behind_the_template(writer_of_text, tmp_path):
    _, tokenizer = writer_of_text
    CorpusWriter(*writer_of_text, tmp_path, OPTIONS, ["hi", "what?"]).write(50)
    rows = read_corpus([tmp_path])
    assert [row.kind for row in rows] == ["prompts", "prompts"]
    text = tokenizer.decode(rows[0].ids[: rows[0].a0])
    assert text == tokenizer.apply_chat_template(
        [{"role": "user", "content": "hi"}], tokenize=False, add_generation_prompt=True
    )
    assert rows[0].loss_start == rows[0].a0


def test_other_settings_are_refused(writer_of_text, tmp_path):
    CorpusWriter(*writer_of_text, tmp_path, OPTIONS)
    with pytest.raises(ValueError, match="other settings"):
        CorpusWriter(*writer_of_text, tmp_path, CorpusOptions(seed=1))


def test_loops_have_few_distinct_grams():
    assert distinct_share([1, 2, 3, 4] * 20) < 0.1
    assert distinct_share(list(range(30))) == 1
    assert distinct_share([1, 2]) == 1


def test_a_broken_line_is_named(tmp_path):
    with gzip.open(tmp_path / "part-00000.jsonl.gz", "wt") as file:
        file.write(json.dumps({"ids": [1], "kind": "x", "temp": 0, "a0": 0}) + "\n{\n")
    with pytest.raises(ValueError, match="line 2"):
        read_corpus([tmp_path])
    with pytest.raises(FileNotFoundError, match="no corpus at"):
        read_corpus([tmp_path / "absent"])


def test_a_self_written_message_is_learned_from_too():
    assert Row([0] * 40, "magpie", 0.0, 30).loss_start == 22
    assert Row([0] * 40, "gsm8k", 0.0, 30).loss_start == 30
