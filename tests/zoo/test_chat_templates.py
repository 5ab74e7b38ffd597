"""What is found out about a target's chat template when it is loaded, and what it is told."""

import pytest

from jakiro import JakiroGenerator
from jakiro.trace import Trace
from tests.support import byte_tokenizer, tiny_model

LAST_ONLY = "{{ messages[-1].content }}{% if thinking %}<think>{% endif %}"


@pytest.fixture
def loaded(tmp_path):
    """Loads a tiny target with this template."""

    def load(template: str, **options) -> JakiroGenerator:
        tokenizer = byte_tokenizer()
        tiny_model().save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        (tmp_path / "chat_template.jinja").write_text(template, encoding="utf-8")
        return JakiroGenerator.from_pretrained(str(tmp_path), "none", device="cpu", dtype="float32", **options)

    return load


def prompted(generator: JakiroGenerator, **options) -> str:
    """What the model reads of a question; the trace counts its tokens."""
    count = generator.run("Why?", method="autoregressive", **options).header.num_prompt_tokens
    assert count == generator.num_prompt_tokens("Why?", template_arguments=options.get("template_arguments"))
    return count - len("Why?")


def test_what_a_template_leaves_out_is_a_notice(loaded):
    notices = loaded(LAST_ONLY).status["notices"]
    assert any("leaves out the system prompt and an earlier question and an earlier answer" in each for each in notices)
    assert not any("leaves out" in each for each in loaded(byte_tokenizer().chat_template).status["notices"])


def test_a_template_that_drops_the_question_is_refused_before_weights_are_read(loaded, tmp_path):
    with pytest.raises(ValueError, match="does not write the question that it is given"):
        loaded("{{ messages[0].role }}")


def test_a_template_is_told_what_the_load_and_the_prompt_say(loaded):
    generator = loaded(LAST_ONLY, template_arguments={"thinking": True})
    assert prompted(generator) == len("<think>")
    assert prompted(generator, template_arguments={"thinking": False}) == 0
    for refused in ({"chat_template": "x"}, {"thinking": [1]}):
        with pytest.raises(ValueError, match="emplate"):
            loaded(LAST_ONLY, template_arguments=refused)
        with pytest.raises(ValueError, match="emplate"):
            generator.run("Why?", method="autoregressive", template_arguments=refused)


def test_a_trace_says_what_the_template_was_told(loaded):
    def told(*arguments, **options):
        asked = options | ({"template_arguments": arguments[0]} if arguments else {})
        trace = generator.run("Why?", method="autoregressive", **asked)
        assert Trace.from_json(trace.to_json()).header == trace.header
        return trace.header.template_arguments

    generator = loaded(LAST_ONLY)
    assert told() is None and told({"thinking": False}) == {"thinking": False}
    assert "template_arguments" not in generator.run("Why?", method="autoregressive").to_dict()["header"]
    generator = loaded(LAST_ONLY, template_arguments={"thinking": True, "date": "today"})
    assert told() == {"thinking": True, "date": "today"}
    assert told({"thinking": False}) == {"thinking": False, "date": "today"}
    assert told(raw=True) is None, "no template was told anything"
