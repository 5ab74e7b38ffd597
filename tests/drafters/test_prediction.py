"""Predicted outputs: the chain follows the predicted text, and the answer always equals plain decoding."""

import random

import pytest
import torch

from jakiro.config import Grammar, SamplingParams, TreeConfig
from jakiro.drafters.base import Committed, Context
from jakiro.drafters.prediction import PROPOSER, PredictionSession
from tests.support import REPETITIVE, tiny_generator


def session(prediction: list[int], first: int) -> PredictionSession:
    ids = [90, 91, first]
    return PredictionSession(Context(ids, torch.tensor(ids), torch.zeros(2, 1), prediction_ids=tuple(prediction)))


def commit(active: PredictionSession, *token_ids: int) -> list[int]:
    active.observe(Committed(list(token_ids), torch.tensor(token_ids), torch.zeros(len(token_ids), 1)))
    return active.chain()[0]


def test_chain_follows_the_prediction_and_resumes_after_a_divergence():
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    active = session(text, first=1)
    assert active.chain()[0] == text[1:9]
    assert commit(active, 2, 3) == [4, 5, 6, 7, 8, 9]
    assert commit(active, 50) == [], "3, 50 does not occur in the text"
    assert commit(active, 6) == [], "a single token is not a match"
    assert commit(active, 7) == [8, 9]
    assert commit(active, 8, 9) == [], "the text is at its end"


def test_chain_follows_the_longest_match():
    active = session([1, 2, 3, 10, 5, 2, 3, 20], first=60)
    assert active.chain()[0] == []
    assert commit(active, 5, 2, 3) == [20]
    second = session([1, 2, 3, 10, 5, 2, 3, 20], first=1)
    assert commit(second, 60, 1, 2, 3) == [10, 5, 2, 3, 20]


def test_answer_with_another_first_token_is_not_drafted():
    assert session([1, 2, 3], first=7).chain() == ([], [])
    assert session([], first=7).chain() == ([], [])


def test_rewind_replays_the_answer():
    active = session([1, 2, 3, 4, 5, 6], first=1)
    commit(active, 2, 3, 4)
    active.rewind(4)
    assert active.chain()[0] == [3, 4, 5, 6]


@pytest.fixture(scope="module")
def generators():
    return {head: tiny_generator(head) for head in ("summed", None)}


def mutated(text: str, dice: random.Random) -> str:
    letters = list(text)
    for _ in range(dice.randrange(4)):
        letters[dice.randrange(len(letters))] = dice.choice("abc xyz")
    return "".join(letters[dice.randrange(3) :])


def test_answers_with_a_prediction_equal_plain_decoding(generators, monkeypatch):
    """Compare 100 random requests: method, settings and prediction."""
    dice, accepted = random.Random(82), 0
    for number in range(100):
        generator = generators[dice.choice(["summed", None])]
        methods = (
            [None, "jakiro", "jakiro+prompt_lookup", "prompt_lookup"] if generator.head else [None, "prompt_lookup"]
        )
        monkeypatch.setattr(generator.target, "stop_ids", {*range(97, 97 + dice.choice([0, 3, 40]))})
        sampling = SamplingParams(
            dice.choice([0, 0, 0.8]),
            dice.choice([1, 0.9]),
            seed=number,
            max_new_tokens=dice.choice([1, 7, 24]),
            min_new_tokens=dice.choice([0, 0, 3, 20]),
            ignore_eos=dice.choice([False, False, True]),
            no_repeat_ngram_size=dice.choice([0, 0, 3]),
        )
        tree = dice.choice([TreeConfig(width=3, depth=4, nodes=9), TreeConfig(width=2, depth=9, nodes=16)])
        plain = generator.run(REPETITIVE, sampling, "autoregressive")
        expected = mutated(plain.text or "abc", dice) or "x"
        trace = generator.run(REPETITIVE, sampling, dice.choice(methods), tree=tree, prediction=expected)
        assert (trace.token_ids, trace.end_reason, trace.text) == (plain.token_ids, plain.end_reason, plain.text)
        ends = [position for position, token_id in enumerate(plain.token_ids) if token_id in generator.target.stop_ids]
        assert sampling.ignore_eos or all(position + 1 >= sampling.min_new_tokens for position in ends)
        accepted += sum(
            step.nodes[index].proposer == PROPOSER or PROPOSER in step.nodes[index].also_proposed_by
            for step in trace.steps
            for index in step.accepted_path
        )
    assert accepted > 40


def test_ignore_eos_continues_after_an_end_token_and_excludes_grammars(generators, monkeypatch):
    generator = generators["summed"]
    monkeypatch.setattr(generator.target, "stop_ids", set())
    free = generator.run("Why?", SamplingParams(max_new_tokens=12))
    monkeypatch.setattr(generator.target, "stop_ids", {free.token_ids[2]})
    ended = generator.run("Why?", SamplingParams(max_new_tokens=12))
    longer = generator.run("Why?", SamplingParams(max_new_tokens=12, ignore_eos=True))
    assert (len(ended.token_ids), ended.end_reason) == (3, "eos")
    assert (longer.token_ids, longer.end_reason) == (free.token_ids, "length")
    with pytest.raises(ValueError, match="ignore_eos cannot be combined with a grammar"):
        SamplingParams(ignore_eos=True, grammar=Grammar("json"))
