"""A folder with SentencePiece's own model and nothing else, as Vicuna was published, encodes as its trainer does."""

import json

import sentencepiece

from jakiro.zoo.weights import load_tokenizer

SENTENCES = ["The sky is blue because of the air.", "Why is the sea blue?", "A bird sees the sea.", "Hello there, you."]


def test_a_sentencepiece_model_encodes_as_published(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 50), model_prefix=str(tmp_path / "tokenizer"), vocab_size=320,
        model_type="bpe", byte_fallback=True, hard_vocab_limit=False, minloglevel=2, unk_id=0, bos_id=1, eos_id=2,
        pad_id=-1, normalization_rule_name="identity", remove_extra_whitespaces=False,
    )  # fmt: skip
    (tmp_path / "tokenizer.vocab").unlink()
    about = {
        "tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>",
        "add_bos_token": True, "add_eos_token": False, "legacy": True,
    }  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(about))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 320}))
    published = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "tokenizer.model"))
    tokenizer = load_tokenizer(str(tmp_path))
    for text in (*SENTENCES, "Ünknown 🐦 signs\nand two  spaces"):
        assert tokenizer(text)["input_ids"] == [1, *published.encode(text)]
        assert tokenizer.decode(published.encode(text)) == text
