"""Where an answer ends, and which text its tokens complete."""

import pytest

from jakiro.engine.answer_text import AnswerText
from jakiro.text import TokenText
from tests.support import byte_tokenizer

TOKENIZER = byte_tokenizer()
EOS = TOKENIZER.eos_token_id


def ids_of(text):
    return TOKENIZER(text, add_special_tokens=False)["input_ids"]


def answer(stops=(), limit=8):
    return AnswerText(TokenText(TOKENIZER), {EOS}, stops, limit, "context")


@pytest.mark.parametrize(
    ("stops", "committed", "own", "text", "reason"),
    [
        ((), ids_of("abc"), ids_of("abc"), "abc", None),
        ((), [*ids_of("ab"), EOS, *ids_of("c")], [*ids_of("ab"), EOS], "ab", "eos"),
        ((), ids_of("abcdefghij"), ids_of("abcdefgh"), "abcdefgh", "context"),
        (("cd",), ids_of("abcdef"), ids_of("abcd"), "ab", "stop"),
        (("cx",), ids_of("abc"), ids_of("abc"), "ab", None),
        (("cx",), [*ids_of("abc"), EOS], [*ids_of("abc"), EOS], "abc", "eos"),
    ],
)
def test_an_answer_ends_at_the_first_stop_token_stop_text_or_limit(stops, committed, own, text, reason):
    growing = answer(stops)
    assert growing.take(committed) == own and growing.num_tokens == len(own)
    assert (growing.text(), growing.end_reason) == (text, reason)
    assert growing.text() == ""


@pytest.mark.parametrize("stops", [(), ("never",)])
def test_half_a_character_waits_for_the_token_that_completes_it(stops):
    growing, ids = answer(stops), ids_of("aé")
    growing.take(ids[:2])
    assert growing.text() == "a"
    growing.take(ids[2:])
    assert growing.text() == "é"
