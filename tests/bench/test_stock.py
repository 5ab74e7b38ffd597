"""transformers' own generate as an opponent, on the default target."""

from jakiro.bench.questions import Question
from jakiro.bench.runner import Lane
from jakiro.bench.stock import StockRunner
from jakiro.config import SamplingParams

QUESTION = Question("1", "math", ("Count from 1 to 5.",))


def test_generate_is_timed_from_the_first_token_on():
    runner = StockRunner(None, "cpu", "float32")
    messages = [{"role": "user", "content": QUESTION.turns[0]}]
    plain, text = runner(Lane("hf-generate"), messages, SamplingParams(max_new_tokens=6), QUESTION, 0)
    assert len(plain.token_ids) <= 6 and text
    assert (plain.num_steps, plain.num_accepted) == (plain.decoded, 0)
    assert plain.seconds > 0 and plain.comparable
    lookup, same = runner(Lane("hf-prompt-lookup"), messages, SamplingParams(max_new_tokens=6), QUESTION, 0)
    assert lookup.token_ids == plain.token_ids and same == text
    assert lookup.num_accepted >= 0
    sampled, _ = runner(Lane("hf-generate"), messages, SamplingParams(1.0, max_new_tokens=3), QUESTION, 0)
    assert not sampled.comparable
