"""Token ids that llama.cpp gives for the texts of the tokenizer tests: the stored ids are still right.

`python -m lab.tests.peers.test_kept_ids` writes the ids again; it needs llama-cpp-python and the default model's file.
"""

import importlib.util
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from jakiro.loading.embedded import find_gguf
from tests.gguf_vocabularies import DATA, KEPT, NAMES, TEXTS, keys_of, small_vocabulary, vocabulary_file

pytestmark = pytest.mark.skipif(importlib.util.find_spec("llama_cpp") is None, reason="needs llama-cpp-python")


def llama_ids(path: Path) -> list[list[int]]:
    """Return the ids of each text, with special tokens parsed and no tokens added."""
    from llama_cpp import Llama

    model = Llama(str(path), vocab_only=True, verbose=False)
    return [model.tokenize(text.encode(), add_bos=False, special=True) for text in TEXTS]


@pytest.mark.parametrize("name", NAMES)
def test_stored_ids_equal_those_of_llama_cpp(name, tmp_path):
    assert llama_ids(vocabulary_file(tmp_path / "small.gguf", keys_of(name))) == DATA["ids"][name]


def write() -> None:
    DATA["tokens"], DATA["merges"] = small_vocabulary()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "small.gguf"
        DATA["ids"] = {name: llama_ids(vocabulary_file(path, keys_of(name))) for name in NAMES}
        DATA["ids"]["default model"] = llama_ids(find_gguf(Path(folder)))
    KEPT.write_text(json.dumps(DATA, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
