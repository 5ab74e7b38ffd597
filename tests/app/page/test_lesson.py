"""The lesson's words, without a browser."""

import pytest

from app.words.lesson import STOPS


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop["title"])
def test_what_is_often_believed_is_one_sentence_and_nothing_that_is_so(stop):
    """A second sentence would correct the first one under a heading that calls both wrong."""
    assert stop["belief"].endswith(".") and ". " not in stop["belief"]
