"""Models that repeat themselves: n-gram bans, biases and penalties act on nearly every token of their text.

A random model seldom repeats four tokens. Here the next token depends on the last one only, so that the text runs in a
circle, or a bias of 12 on a few tokens makes the text consist of them.
"""

import os
import random

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.drafters.registry import METHODS, PLAIN
from jakiro.generator import JakiroGenerator
from jakiro.models.target import TargetModel
from tests.support import byte_tokenizer, heads_of, tiny_generator, tiny_model, tiny_resources

PROMPTS = (" a", "a", "abab", "the cat sat on the mat; the cat sat on the mat; the cat sat", "Why is the sky blue?")
CASES = [(name, head) for name, method in METHODS.items() if name != PLAIN.name for head in heads_of(method)]


def circling_generator(head: str, seed: int) -> JakiroGenerator:
    """Return a generator with target layers that add nothing, so that only the last token determines the next one."""
    model = tiny_model(seed)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    target = TargetModel(model, byte_tokenizer(), "circling", "0" * 64)
    return JakiroGenerator(tiny_resources(target, head, METHODS))


def random_sampling(dice: random.Random) -> SamplingParams:
    """Return random settings; each is set in about a third of them, n-gram bans in most."""
    temperature = dice.choice([0, 0, 0.3, 0.7, 1.0, 1.6])
    favoured = dice.sample(range(97, 123), dice.randint(1, 4)) if dice.random() < 0.6 else []
    return SamplingParams(
        temperature,
        top_p=dice.choice([1.0, 1.0, 0.9, 0.5]),
        top_k=dice.choice([0, 0, 1, 5, 40]),
        min_p=dice.choice([0, 0, 0.05]),
        seed=dice.randrange(2**32),
        max_new_tokens=dice.choice([8, 40, 80]),
        repetition_penalty=dice.choice([1, 1, 1.1, 0.8]),
        presence_penalty=dice.choice([0, 0, 0.5, -0.5]),
        frequency_penalty=dice.choice([0, 0, 0.3]),
        no_repeat_ngram_size=dice.choice([0, *range(1, 13)]),
        logit_bias={token_id: dice.choice([6.0, 12.0]) for token_id in favoured},
        suppress_tokens=dice.choice([(), (), tuple(range(0, 200, 3))]),
    )


def count_compared_tokens(num_tokens: int, seed: int) -> int:
    """Compare drafted texts with plain decoding for at least `num_tokens` tokens; return the number compared."""
    dice, compared, repeated = random.Random(seed), 0, 0
    heads = sorted({head for _, head in CASES})
    generators = {
        head: (tiny_generator(head), circling_generator(head, 0), circling_generator(head, 1)) for head in heads
    }
    while compared < num_tokens:
        sampling, prompt, raw = random_sampling(dice), dice.choice(PROMPTS), dice.random() < 0.7
        tree = TreeConfig(dice.randint(1, 5), dice.choice([1, 2, 2, 3, 8]), dice.choice([2, 6, 18, 24]))
        model = dice.randrange(3)
        plain = generators["summed"][model].run(prompt, sampling, PLAIN.name, raw=raw)
        repeated += len({*plain.token_ids}) < len(plain.token_ids) / 2
        for method, head in dice.sample(CASES, 4):
            trace = generators[head][model].run(prompt, sampling, method, tree, raw=raw)
            assert trace.token_ids == plain.token_ids, (method, head, model, prompt, raw, sampling, tree)
            assert trace.end_reason == plain.end_reason
            compared += len(trace.token_ids)
    assert repeated, "some texts must repeat tokens"
    return compared


def test_drafted_texts_of_repetitive_models_equal_plain_decoding():
    assert count_compared_tokens(700, seed=0) >= 700


@pytest.mark.rare
def test_many_random_texts_equal_plain_decoding():
    """JAKIRO_RANDOM_TOKENS sets the number: 200,000 take about half an hour on one core."""
    count = int(os.environ.get("JAKIRO_RANDOM_TOKENS", "6000"))
    assert count_compared_tokens(count, seed=1) >= count


@pytest.mark.parametrize(("method", "head"), CASES)
@pytest.mark.parametrize("size", [4, 6, 9])
def test_ban_longer_than_the_prompt_keeps_the_text_of_plain_decoding(method, head, size):
    """The smallest case that once differed: one prompt token and a bias that repeats one token."""
    sampling = SamplingParams(max_new_tokens=16, no_repeat_ngram_size=size, logit_bias={101: 12.0})
    generator, tree = tiny_generator(head), TreeConfig(width=4, depth=8, nodes=24)
    plain = generator.run("a", sampling, PLAIN.name, raw=True)
    assert plain.token_ids.count(101) > size
    assert generator.run("a", sampling, method, tree, raw=True).token_ids == plain.token_ids
