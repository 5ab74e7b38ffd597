"""The session of a draft head: its cache follows the target's, and drafted rows are removed."""

import pytest
import torch

from jakiro.config import SamplingParams
from jakiro.core.noise import KeyedNoise
from jakiro.drafters.base import DraftRequest
from jakiro.drafters.head import HeadDrafter
from jakiro.drafters.registry import DEFAULT
from tests.support import (
    DEVICE,
    HEADS,
    HIDDEN_SIZE,
    TREE,
    committed,
    prompt_ids,
    prompt_of,
    tiny_generator,
    tiny_head,
    tiny_target,
)

LIMITS = DraftRequest(TREE)

NUM_PROMPT = 20


@pytest.fixture(scope="module")
def target():
    return tiny_target()


def features_of(count, seed=0):
    return torch.randn((count, HIDDEN_SIZE), generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def ids_of(count, seed=0):
    return torch.randint(0, 250, (count,), generator=torch.Generator().manual_seed(seed)).to(DEVICE)


@pytest.mark.parametrize("head", HEADS)
def test_cache_after_commits_equals_fresh_prefill(head):
    generator, sampling = tiny_generator(head), SamplingParams(1.0, seed=3, max_new_tokens=40)
    stream = generator.stream("Why?", sampling, tree=TREE)
    for _ in range(6):
        next(stream)
        stream._session.catch_up()
        ids = torch.tensor([*prompt_ids("Why?"), *stream.trace.token_ids], device=DEVICE)
        features, _ = generator.target.prefill(ids[:-1], generator.target.new_cache(len(ids)))
        fresh = generator.drafter(DEFAULT).start(prompt_of(ids, features), sampling, KeyedNoise(3))
        fresh.catch_up()
        cache, expected = stream._session.cache, fresh.cache
        assert cache.length == expected.length
        rows = cache.store.rows[..., : cache.length, :], expected.store.rows[..., : cache.length, :]
        torch.testing.assert_close(*rows, atol=1e-4, rtol=1e-4)


def test_session_proposes_the_same_tree_after_a_rewind(target):
    prompt, ids, features = prompt_of(ids_of(NUM_PROMPT + 1), features_of(NUM_PROMPT)), ids_of(6, 1), features_of(6, 1)
    session = HeadDrafter(tiny_head(target)).start(prompt, SamplingParams(), KeyedNoise(0))
    session.observe(committed(ids[:2], features[:2]))
    session.propose(LIMITS)
    session.observe(committed(ids[2:5], features[2:5]))
    first = session.propose(LIMITS).tree
    session.observe(committed(ids[5:], features[5:]))
    session.propose(LIMITS)
    session.rewind(NUM_PROMPT + 1 + 2)
    session.observe(committed(ids[2:5], features[2:5]))
    tree = session.propose(LIMITS).tree
    assert torch.equal(tree.token_ids, first.token_ids) and torch.equal(tree.parents, first.parents)
    torch.testing.assert_close(tree.scores, first.scores, atol=1e-4, rtol=1e-4)
