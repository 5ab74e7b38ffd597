"""The same corpus is written through `jakiro serve` and by the library."""

import json

from jakiro import JakiroGenerator
from jakiro.training.corpus import CorpusConfig, CorpusOptions, read_corpus, write_corpus
from tests.server.served import served
from tests.support import save_target
from tests.training.tiny import byte_target


def test_rows_from_jakiro_serve_at_temperature_0_are_those_of_the_library(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    save_target(tmp_path / "target", byte_target(num_layers=2))
    (tmp_path / "key").write_text("sk-corpus\n")
    target = str(tmp_path / "target")
    prompts = tmp_path / "prompts.jsonl"
    questions = ({"question_id": n, "category": "x", "turns": [f"Say {n}, then éß!"]} for n in range(6))
    prompts.write_text("".join(json.dumps(question) + "\n" for question in questions))
    options = CorpusOptions(temperatures=(0.0,), max_new_tokens=24, min_distinct=0)
    shared = {"rows": 6, "options": options, "target": target, "prompts": str(prompts), "batch_size": 3}
    generator = JakiroGenerator.from_pretrained(target, "none", "cpu", "float32")
    with served(generator, keys=("sk-corpus",)) as (address, _):
        keyed = CorpusConfig(str(tmp_path / "a"), endpoint=address, api_key_file=str(tmp_path / "key"), **shared)
        assert write_corpus(keyed) > 0
    write_corpus(CorpusConfig(str(tmp_path / "b"), device="cpu", dtype="float32", **shared))
    rows = read_corpus([tmp_path / "a"])
    assert rows == read_corpus([tmp_path / "b"]) and len(rows) == 6
    assert "sk-corpus" not in (tmp_path / "a" / "manifest.json").read_text()
