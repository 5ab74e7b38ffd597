"""Templates of published targets write the text that those models were trained on."""

import pytest

from jakiro.text import encode_messages
from jakiro.zoo.table import ENTRIES, chat_template_of
from jakiro.zoo.templates import TEMPLATES
from tests.support import byte_tokenizer

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


@pytest.fixture
def written():
    """A conversation as text, special tokens named."""
    import copy

    def write(template: str, messages: list[dict]) -> str:
        tokenizer = copy.deepcopy(byte_tokenizer())
        tokenizer.chat_template = TEMPLATES[template]
        return tokenizer.decode(encode_messages(tokenizer, messages), clean_up_tokenization_spaces=False)

    return write


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
def test_a_conversation_is_written_as_published(written, template, messages, text):
    assert written(template, messages) == text


@pytest.mark.parametrize("name", [name for name in ENTRIES if name.startswith(("vicuna", "llama2"))])
def test_published_targets_have_their_template_by_name_and_by_hub_id(name):
    expected = TEMPLATES["vicuna-v1.1" if name.startswith("vicuna") else "llama-2"]
    assert chat_template_of(name) == chat_template_of(ENTRIES[name].source) == expected
