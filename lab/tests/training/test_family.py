"""What sets the methods apart: acceptance rules on made-up distributions, and texts that would have changed."""

from types import SimpleNamespace

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.core.tree import DraftTree
from jakiro.training.replay import Answer, replay
from lab import KNOWN
from lab.published.gumiho.drafting import METHOD as GUMIHO
from lab.published.gumiho.drafting import SERIAL, staged_drafter
from lab.published.mcsd import static_drafter
from lab.training.acceptance import COUNTS, RULES, accepted_shares, pair, write_chart
from lab.training.hits import Hits, hits_by_source
from lab.training.shared_nodes import shared_nodes, shared_tails, written_by
from lab.training.what_if import what_if
from tests.support import head_fields, tiny_head, tiny_model, tiny_target
from tests.training.test_evaluation import answers_of, lucky

TREE = TreeConfig(width=6, depth=3, nodes=11)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_choice_s_own_branch_is_what_decoding_accepts(temperature, tmp_path):
    model, target = tiny_model(), tiny_target()
    sampling = SamplingParams(temperature, seed=5, max_new_tokens=24)
    drafter, others = static_drafter(lucky(tiny_head(target))), 0
    for answer in answers_of(model, tmp_path, sampling):
        found = what_if(target, drafter, answer, sampling, 4, TREE)
        steps = list(replay(drafter, answer, sampling, TREE))
        assert found.num_steps == len(steps)
        assert found.accepted == sum(len(step.accepted_path) for step in steps)
        assert found.longest >= found.accepted and (found.num_changed > 0) == (found.longest > found.accepted)
        others += found.num_changed
        alone = what_if(target, drafter, answer, sampling, 1, TREE)
        assert (alone.num_changed, alone.longest) == (0, found.accepted)
    assert others > 0


def test_more_candidates_are_kept_more_often_and_one_keyed_one_as_often_as_its_formula_says(tmp_path):
    p, q = pair(50, 2.0, 0.8)
    shares = accepted_shares(p, q, draws=4000)
    assert set(shares) == set(RULES)
    for values in shares.values():
        assert len(values) == len(COUNTS) and values == sorted(values)
    one = (1 / torch.maximum(p[None] / p[:, None], q[None] / q[:, None]).sum(1)).sum()
    assert shares[RULES[1]][0] == pytest.approx(float(one), abs=0.03)
    assert shares[RULES[2]][0] == shares[RULES[1]][0]
    assert shares[RULES[0]][0] == pytest.approx(1 - float((p - q).abs().sum() / 2), abs=0.03)
    assert shares[RULES[3]][0] == pytest.approx(float(p[q.argmax()]), abs=0.03)
    write_chart(tmp_path / "chart.html", {"made up": shares})
    assert all(rule in (tmp_path / "chart.html").read_text(encoding="utf-8") for rule in RULES)


def drawn(parents: list[int], token_ids: list[int], depths: list[int]) -> DraftTree:
    return DraftTree.unscored(*(torch.tensor(column) for column in (token_ids, parents, depths)), max(depths))


def test_shared_nodes_follow_the_leaves_of_shorter_paths():
    # 0 - 1 - 3 - 5 - 6
    #  \- 2 - 4
    tree = drawn([-1, 0, 0, 1, 2, 3, 5], [9, 11, 12, 13, 14, 15, 16], [0, 1, 1, 2, 2, 3, 4])
    tails = shared_tails(tree, serial=2)
    assert tails == {4: [5, 6]} and shared_tails(tree, serial=3) == {}
    # Right until the leaf, then the other path's tokens, then its last row's choice
    assert written_by(tree, tails, [12, 0, 14, 0, 15, 16, 8]) == [12, 14, 15, 16, 8]
    assert written_by(tree, tails, [12, 0, 14, 0, 7, 16, 8]) == [12, 14, 7]
    assert written_by(tree, {}, [12, 0, 14, 0, 15, 16, 8]) == [12, 14, 15]
    assert written_by(tree, tails, [11, 13, 0, 15, 0, 16, 8]) == [11, 13, 15, 16, 8]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_real_nodes_write_the_text_and_shared_ones_another(temperature, tmp_path):
    model, target = tiny_model(), tiny_target()
    sampling = SamplingParams(temperature, seed=5, max_new_tokens=24)
    drafter = staged_drafter(lucky(tiny_head(target, known=KNOWN, **head_fields(GUMIHO))))
    tree, changed = TreeConfig(width=6, depth=5, nodes=24), 0
    for answer in answers_of(model, tmp_path, sampling):
        steps = list(replay(drafter, answer, sampling, tree))
        real = shared_nodes(target, drafter, answer, sampling, tree, serial=tree.depth)
        assert (real.num_changed, real.num_leaves, real.leaves_changed) == (0, 0, 0)
        assert real.num_steps == len(steps)
        assert real.accepted == real.accepted_shared == sum(len(step.accepted_path) for step in steps)
        shared = shared_nodes(target, drafter, answer, sampling, tree, serial=SERIAL)
        assert shared.num_steps == real.num_steps and shared.accepted == real.accepted
        changed += shared.leaves_changed
    assert changed > 0


def test_hits_are_counted_by_source():
    # Prompt 1 2 3 1 2, answer 3 1 4 3 1 4
    answer = Answer(torch.tensor([1, 2, 3, 1, 2, 3, 1, 4, 3, 1, 4]), torch.zeros(11, 1), start=5, end=10)
    table = SimpleNamespace(after=lambda first, second: ([4], [1]) if (first, second) == (3, 1) else ([], []))
    num_places, found = hits_by_source([answer], table)
    assert num_places == 5
    # Places 6 to 10 follow the pairs 2 3, 3 1, 1 4, 4 3 and 3 1
    assert found["prompt"] == Hits(known=3, hit=1, alone=1)
    assert found["table"] == Hits(known=2, hit=2, alone=1)
    assert found["answer"] == Hits(known=1, hit=1, alone=0)
