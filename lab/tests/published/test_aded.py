"""ADED: candidates of the table and of the answer, their order, and the text of plain decoding."""

import math

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.noise import KeyedNoise
from jakiro.drafters.base import Committed, Context, DraftRequest
from lab import KNOWN
from lab.published.aded import LIVE, TABLE, TrigramDrafter
from lab.published.trigrams import TrigramTable, fingerprint
from tests.support import assert_is_a_tree, tiny_generator

QUESTION = "the cat sat on the mat; the cat sat on the mat; the cat sat"
LIMITS = DraftRequest(TreeConfig(width=3, depth=3, nodes=8))


def prompt(*token_ids):
    ids = list(token_ids)
    return Context(ids, torch.tensor(ids), torch.zeros(len(ids) - 1, 4))


def session(texts, *token_ids, sampling=None, **options):
    table = TrigramTable.counted(texts, 10, least_count=1)
    return TrigramDrafter(table, **options).start(prompt(*token_ids), sampling or SamplingParams(), KeyedNoise(0))


def committed(*token_ids):
    return Committed(list(token_ids), torch.tensor(token_ids), torch.zeros(len(token_ids), 4))


def test_the_most_frequent_successors_are_proposed_by_level():
    tree = session([[1, 2, 3, 4]] * 5 + [[1, 2, 5]], 1, 2).propose(LIMITS).tree
    assert_is_a_tree(tree)
    nodes = list(zip(tree.token_ids.tolist(), tree.parents.tolist(), tree.depths.tolist(), strict=True))
    assert nodes == [(2, -1, 0), (3, 0, 1), (5, 0, 1), (4, 1, 2)]
    assert tree.proposers.tolist() == [-1, TABLE, TABLE, TABLE]
    assert tree.scores[1] > tree.scores[2]


def test_trigrams_of_the_answer_are_proposed_and_both_sources_are_named():
    drafting = session([[1, 2, 3]], 1, 2, 6, 1, 2)
    tree = drafting.propose(LIMITS).tree
    proposers = dict(zip(tree.token_ids.tolist(), tree.proposers.tolist(), strict=True))
    assert proposers[6] == LIVE and proposers[3] == TABLE
    drafting.observe(committed(3, 1, 2))
    tree = drafting.propose(LIMITS).tree
    also = dict(zip(tree.token_ids.tolist(), tree.also.tolist(), strict=True))
    assert also[3] == 1 << LIVE and also[6] == 0


def test_estimates_follow_how_often_the_choice_was_among_the_successors():
    drafting = session([[1, 2, 3]], 1, 2, live=False)

    def estimate():
        return math.exp(float(drafting.propose(LIMITS).tree.scores[1]))

    unjudged = estimate()
    for _ in range(20):
        drafting.observe(committed(3, 1, 2))
    often = estimate()
    for _ in range(100):
        drafting.observe(committed(9, 1, 2))
    assert estimate() < unjudged < often < 1


def test_above_temperature_zero_the_target_s_noise_ranks_the_candidates():
    texts = [[1, 2, token_id] for token_id in (3, 4, 5, 6, 7)]
    shares = torch.full((5,), math.log(1 / 5))
    for seed in range(12):
        sampling = SamplingParams(1.0, seed=seed)
        tree = session(texts, 1, 2, sampling=sampling, live=False).propose(LIMITS).tree
        ranked = shares + KeyedNoise(seed).at(torch.tensor(2), torch.arange(3, 8))
        expected = (ranked.sort(descending=True).indices[:3] + 3).tolist()
        order = tree.scores[1:].sort(descending=True).indices
        assert tree.token_ids[1:][order].tolist() == expected


def test_a_table_of_another_tokenizer_is_refused_and_other_methods_still_run(tmp_path, monkeypatch):
    path = tmp_path / "table.npz"
    monkeypatch.setattr("lab.published.aded.find_table", lambda name: path)
    generator = tiny_generator("summed", methods=KNOWN)
    TrigramTable.empty(10).save(path)
    with pytest.raises(ValueError, match=r"was counted with another tokenizer than .*; count it again"):
        generator.stream(QUESTION, method="aded")
    assert generator.run(QUESTION, SamplingParams(max_new_tokens=4)).token_ids
    tokenizer = generator.tokenizer
    TrigramTable.counted([[1, 2, 3]], len(tokenizer), fingerprint(tokenizer), least_count=1).save(path)
    assert generator.drafter(KNOWN["aded"]).info["name"] == "table"
