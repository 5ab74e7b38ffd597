"""Sampled text has the target's distribution, which is enumerated for ten words, at temperatures ≠ 1 and top-p < 1.

The result is exact only if each part is exact: the accepted candidates, the bonus token after a rejection, and the
bonus token after a leaf.
"""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from jakiro.backends.outcome import read_outcome
from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.core.tree import ancestor_mask
from jakiro.core.verify import verify
from jakiro.drafters.base import Resources
from jakiro.generator import JakiroGenerator
from jakiro.models.target import TargetModel
from tests.marks import rarely
from tests.support import DEVICE, processors, tiny_head, tiny_model, tree_of, warpers, word_tokenizer

NUM_WORDS = 10


def warped_probs(logits, sampling):
    """Return the probabilities that transformers would sample from, in float64."""
    return warpers(sampling)(None, logits.float()).double().softmax(-1)


def assert_follows(counts, probs):
    """Check that counts follow probabilities with a chi-square test, and that no impossible outcome occurred.

    Outcomes with an expected count below five are pooled. The bound is five standard deviations of the chi-square
    distribution above its mean.
    """
    total = sum(counts.values())
    impossible = [outcome for outcome in counts if probs.get(outcome, 0.0) == 0.0]
    assert not impossible, impossible
    rare_seen, rare_expected, statistic, cells = 0.0, 0.0, 0.0, 0
    for outcome, prob in probs.items():
        expected = prob * total
        if expected < 5:
            rare_seen, rare_expected = rare_seen + counts[outcome], rare_expected + expected
            continue
        statistic, cells = statistic + (counts[outcome] - expected) ** 2 / expected, cells + 1
    if rare_expected >= 5:
        statistic, cells = statistic + (rare_seen - rare_expected) ** 2 / rare_expected, cells + 1
    freedom = cells - 1
    assert freedom >= 2
    assert statistic < freedom + 5 * math.sqrt(2 * freedom), f"chi-square {statistic:.1f} with {freedom} cells"


SAMPLINGS = {
    "temperature": SamplingParams(temperature=0.7),
    "nucleus": SamplingParams(temperature=1.4, top_p=0.8),
    "top-k and nucleus": SamplingParams(temperature=0.8, top_p=0.9, top_k=5),
    "min-p": SamplingParams(temperature=1.4, min_p=0.3),
}
# Settings that change logits depending on the preceding text
PENALISED = {
    "repetition": SamplingParams(1.1, min_p=0.05, repetition_penalty=1.8),
    "presence and frequency": SamplingParams(1.2, presence_penalty=1.5, frequency_penalty=1.9),
    "runs": SamplingParams(1.0, no_repeat_ngram_size=2),
    "bias": SamplingParams(0.9, logit_bias={2: 1.5, 4: -2.0}, suppress_tokens=(7,), repetition_penalty=1.3),
}


def with_seed(sampling, seed, max_new_tokens=256):
    return replace(sampling, seed=seed, max_new_tokens=max_new_tokens)


# Logits of a target that depend only on the last word; the tree below has likely and unlikely words
TABLE = torch.randn((NUM_WORDS, NUM_WORDS), generator=torch.Generator().manual_seed(4)).mul(0.8).to(DEVICE)
START = 3


def table_tree(probs):
    """Return a tree of likely and unlikely words below the root, likely ones below the first two, one at depth 3."""
    first = probs[START].argsort(descending=True).tolist()
    tokens, parents = [START, *first[:3], first[-1]], [-1, 0, 0, 0, 0]
    for parent in (1, 2):
        for token in probs[tokens[parent]].argsort(descending=True).tolist()[:2]:
            tokens.append(token)
            parents.append(parent)
    tokens.append(int(probs[tokens[5]].argmax()))
    parents.append(5)
    return tree_of(tokens, parents)


def outcome_of(tree, sampling, root_position):
    """Return the outcome of verifying one tree against the table."""
    noise, mask = KeyedNoise(sampling.seed), ancestor_mask(tree.parents, tree.max_depth)
    return read_outcome(tree, verify(tree, mask, TABLE[tree.token_ids], sampling, noise, root_position))


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_verified_paths_and_their_bonus_follow_the_enumerated_distribution(sampling):
    probs = warped_probs(TABLE, sampling)
    tree = table_tree(probs)
    parents, tokens = tree.parents.tolist(), tree.token_ids.tolist()
    children = {(parents[node], tokens[node]): node for node in range(1, len(tokens))}

    expected: dict[tuple[int, ...], float] = {}

    def enumerate_from(node, words, prob):
        for word, p in enumerate(probs[tokens[node]].tolist()):
            child = children.get((node, word))
            if child is None:
                expected[(*words, word)] = prob * p
            else:
                enumerate_from(child, (*words, word), prob * p)

    enumerate_from(0, (), 1.0)
    assert sum(expected.values()) == pytest.approx(1.0)
    counts, ends = Counter(), Counter()
    for seed in range(2000):
        outcome = outcome_of(tree, with_seed(sampling, seed), root_position=seed % 7)
        counts[(*outcome.accepted_ids, outcome.bonus_token_id)] += 1
        ends[outcome.accepted_path[-1] if outcome.accepted_path else 0] += 1
    assert_follows(counts, expected)
    leaf = len(tokens) - 1
    assert ends[leaf] > 20 and ends[0] > 100


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_bonus_after_a_leaf_follows_the_warped_distribution(sampling):
    probs = warped_probs(TABLE, sampling)
    word = int(probs[START].argmax())
    tree, counts = tree_of([START, word], [-1, 0]), Counter()
    for seed in range(1500):
        outcome = outcome_of(tree, with_seed(sampling, seed), root_position=11)
        if outcome.accepted_path == [1]:
            counts[outcome.bonus_token_id] += 1
    assert sum(counts.values()) > 200
    assert_follows(counts, {index: p for index, p in enumerate(probs[word].tolist()) if p > 0})


@pytest.fixture(scope="module")
def words():
    """Return a stock ten-word model, and a generator with a copy of it as target."""
    model = tiny_model(seed=2, vocab_size=NUM_WORDS, hidden_size=16, layers=1)
    target = TargetModel(tiny_model(seed=2, vocab_size=NUM_WORDS, hidden_size=16, layers=1), word_tokenizer())
    return model, JakiroGenerator(Resources(target, tiny_head(target)))


PROMPT = "the small cat"


@torch.no_grad()
def enumerated_text(model, sampling, length):
    """Return the probability of every text of `length` words, by a stock model and transformers' processors."""
    prompt = word_tokenizer()(PROMPT)["input_ids"]
    joint = {(): 1.0}
    for _ in range(length):
        ids = torch.tensor([[*prompt, *text] for text in joint], device=DEVICE)
        scores = processors(sampling)(ids, model(input_ids=ids).logits[:, -1].float())
        counts = torch.tensor([[text.count(word) for word in range(NUM_WORDS)] for text in joint], device=DEVICE)
        scores = scores - sampling.frequency_penalty * counts - sampling.presence_penalty * (counts > 0)
        rows = zip(joint.items(), warped_probs(scores, sampling).tolist(), strict=True)
        joint = {(*text, word): prob * p for (text, prob), row in rows for word, p in enumerate(row) if p > 0}
    return joint


FIRST_PENALISED, *FURTHER_PENALISED = PENALISED.values()


@pytest.mark.parametrize(
    "sampling",
    [
        SAMPLINGS["top-k and nucleus"],
        FIRST_PENALISED,
        *(rarely(sampling) for sampling in FURTHER_PENALISED),
    ],
)
def test_whole_answers_follow_the_enumerated_distribution(words, sampling):
    model, generator = words
    tree, counts, steps = TreeConfig(width=3, depth=3, nodes=8), Counter(), []
    for seed in range(500):
        trace = generator.run(PROMPT, with_seed(sampling, seed, max_new_tokens=3), tree=tree, raw=True)
        counts[tuple(trace.token_ids)] += 1
        steps += trace.steps
    expected = enumerated_text(model, sampling, 3)
    assert sum(expected.values()) == pytest.approx(1.0)
    assert_follows(counts, expected)
    for position in range(3):
        single = Counter()
        for text, prob in expected.items():
            single[text[position]] += prob
        assert_follows(Counter(text[position] for text in counts.elements()), single)
    assert any(step.accepted_path for step in steps) and any(not step.accepted_path for step in steps)


@pytest.mark.rare
def test_bound_detects_an_answer_without_its_penalties(words):
    model, generator = words
    free = SamplingParams(1.2, max_new_tokens=3)
    answers = [generator.run(PROMPT, with_seed(free, seed, 3), raw=True).token_ids for seed in range(500)]
    for sampling in PENALISED.values():
        with pytest.raises(AssertionError):
            assert_follows(Counter(map(tuple, answers)), enumerated_text(model, sampling, 3))


def test_bound_detects_a_bonus_sampled_without_warping():
    sampling = SAMPLINGS["top-k and nucleus"]
    probs = {index: p for index, p in enumerate(warped_probs(TABLE, sampling)[START].tolist()) if p > 0}
    unwarped = SamplingParams(temperature=1.4)
    counts = Counter(
        outcome_of(tree_of([START], [-1]), with_seed(unwarped, seed), 5).bonus_token_id for seed in range(500)
    )
    with pytest.raises(AssertionError):
        assert_follows(counts, probs)
    possible = Counter({index: number for index, number in counts.items() if index in probs})
    with pytest.raises(AssertionError, match="chi-square"):
        assert_follows(possible, probs)
