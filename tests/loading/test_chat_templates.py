"""Chat templates: their arguments, the messages they omit, and the templates of published models."""

import copy
import json

import pytest
import sentencepiece

from jakiro import JakiroGenerator
from jakiro.loading.registry import ENTRIES, chat_template_of
from jakiro.loading.templates import TEMPLATES
from jakiro.loading.weights import load_tokenizer
from jakiro.text import encode_messages
from jakiro.trace import Trace
from tests.support import byte_tokenizer, save_target

LAST_ONLY = "{{ messages[-1].content }}{% if thinking %}<think>{% endif %}"


@pytest.fixture
def loaded(tmp_path):
    """Return a function that loads a tiny target with a chat template."""

    def load(template: str, **options) -> JakiroGenerator:
        save_target(tmp_path)
        (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
        return JakiroGenerator.from_pretrained(str(tmp_path), "none", device="cpu", dtype="float32", **options)

    return load


def test_messages_that_a_template_omits_are_named_in_a_notice(loaded):
    notices = loaded(LAST_ONLY).status["notices"]
    assert any("omits the system prompt and an earlier question and an earlier answer" in notice for notice in notices)
    assert not any("omits" in notice for notice in loaded(byte_tokenizer().chat_template).status["notices"])


def test_template_that_omits_the_question_is_refused_before_weights_are_read(loaded):
    with pytest.raises(ValueError, match="omits the user's message"):
        loaded("{{ messages[0].role }}")


def test_template_arguments_of_load_and_request_are_used_and_recorded(loaded):
    def use(**options):
        trace = generator.run("Why?", method="autoregressive", **options)
        assert Trace.from_json(trace.to_json()).header == trace.header
        if "raw" not in options:
            count = generator.num_prompt_tokens("Why?", template_arguments=options.get("template_arguments"))
            assert trace.header.num_prompt_tokens == count
        return trace.header.num_prompt_tokens - len("Why?"), trace.header.template_arguments

    off, length = {"thinking": False}, len("<think>")
    generator = loaded(LAST_ONLY)
    assert use() == (0, None) and use(template_arguments=off) == (0, off)
    assert "template_arguments" not in generator.run("Why?", method="autoregressive").to_dict()["header"]
    generator = loaded(LAST_ONLY, template_arguments={"thinking": True, "date": "today"})
    assert use() == (length, {"thinking": True, "date": "today"})
    assert use(template_arguments=off) == (0, {"thinking": False, "date": "today"})
    assert use(raw=True) == (0, None), "a raw prompt has no template"
    for arguments in ({"chat_template": "x"}, {"thinking": [1]}):
        with pytest.raises(ValueError, match="emplate"):
            loaded(LAST_ONLY, template_arguments=arguments)
        with pytest.raises(ValueError, match="emplate"):
            generator.run("Why?", method="autoregressive", template_arguments=arguments)


TALK = [
    {"role": "user", "content": "Hi!"},
    {"role": "assistant", "content": "Hello."},
    {"role": "user", "content": "Why?"},
]
SYSTEM = {"role": "system", "content": "Be brief."}
VICUNA = (
    "A chat between a curious user and an artificial intelligence assistant. "
    "The assistant gives helpful, detailed, and polite answers to the user's questions."
)
BOS, EOS = "<|endoftext|>", "<|im_end|>"


@pytest.mark.parametrize(
    ("template", "messages", "text"),
    [
        ("vicuna-v1.1", TALK[:1], f"{BOS}{VICUNA} USER: Hi! ASSISTANT:"),
        ("vicuna-v1.1", TALK, f"{BOS}{VICUNA} USER: Hi! ASSISTANT: Hello.{EOS}USER: Why? ASSISTANT:"),
        ("vicuna-v1.1", [SYSTEM, *TALK[:1]], f"{BOS}Be brief. USER: Hi! ASSISTANT:"),
        ("llama-2", TALK[:1], f"{BOS}[INST] Hi! [/INST]"),
        ("llama-2", TALK, f"{BOS}[INST] Hi! [/INST] Hello. {EOS}{BOS}[INST] Why? [/INST]"),
        (
            "llama-2",
            [SYSTEM, *TALK],
            f"{BOS}[INST] <<SYS>>\nBe brief.\n<</SYS>>\n\nHi! [/INST] Hello. {EOS}{BOS}[INST] Why? [/INST]",
        ),
    ],
)
def test_conversation_is_formatted_as_published(template, messages, text):
    tokenizer = copy.deepcopy(byte_tokenizer())
    tokenizer.chat_template = TEMPLATES[template]
    assert tokenizer.decode(encode_messages(tokenizer, messages), clean_up_tokenization_spaces=False) == text


@pytest.mark.parametrize("name", [name for name in ENTRIES if name.startswith(("vicuna", "llama2"))])
def test_published_targets_have_their_template_by_name_and_by_hub_id(name):
    expected = TEMPLATES["vicuna-v1.1" if name.startswith("vicuna") else "llama-2"]
    assert chat_template_of(name) == chat_template_of(ENTRIES[name].source) == expected


SENTENCES = ["The sky is blue because of the air.", "Why is the sea blue?", "A bird sees the sea.", "Hello there, you."]


def test_sentencepiece_model_encodes_as_published(tmp_path):
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
