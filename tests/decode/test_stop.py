"""The end of an answer's text: stop strings, stop tokens, limits and incomplete characters."""

import pytest

from jakiro.config import SamplingParams
from jakiro.drafters.registry import DEFAULT, PLAIN
from jakiro.text import UntilStop
from jakiro.trace import Trace
from tests.support import TREE, scripted_generator


@pytest.mark.parametrize(
    ("stops", "pieces", "text"),
    [
        (["lo w"], ["Hel", "lo wor", "ld"], "Hel"),
        (["###"], ["a#", "b##", "c##", "#d"], "a#b##c"),
        (["abcd", "bc"], ["ab", "c", "d"], "a"),
        (["abcd", "bc"], ["abcd"], ""),
        (["xyz"], ["wx", "y"], "wxy"),
        (["aab"], ["aa", "ab"], "a"),
    ],
)
def test_text_ends_before_the_first_stop_string_and_its_beginning_is_held_back(stops, pieces, text):
    until, result = UntilStop(stops), ""
    for piece in pieces:
        result += until.push(piece)
        assert text.startswith(result)
        if until.found:
            break
    assert result + until.finish() == text


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_every_method_ends_at_the_same_token_with_the_same_text(temperature):
    generator = scripted_generator()
    sampling = SamplingParams(temperature, seed=3, max_new_tokens=60)
    complete = generator.run("Why?", sampling, PLAIN.name)
    text = complete.text
    for start in (0, len(text) // 3, len(text) - 3):
        stop = text[start : start + 3]
        ending = SamplingParams(temperature, seed=3, max_new_tokens=60, stop=(stop,))
        plain = generator.run("Why?", ending, PLAIN.name)
        assert plain.text == text[: text.find(stop)] and plain.end_reason == "stop"
        assert plain.token_ids == complete.token_ids[: len(plain.token_ids)]
        drafted = generator.run("Why?", ending, DEFAULT.name, TREE)
        assert (drafted.text, drafted.token_ids, drafted.end_reason) == (plain.text, plain.token_ids, "stop")
        assert Trace.from_json(drafted.to_json()) == drafted
        assert SamplingParams(**drafted.header.sampling) == ending
