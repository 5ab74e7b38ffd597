from types import SimpleNamespace

import pytest
import torch
from torch import nn

from jakiro.training import validation
from jakiro.training.corpus import Row
from jakiro.training.losses import LossWeights, Objective
from jakiro.training.validation import HeldOut, agreement, branch_features, held_out, log_q, report
from tests.training.tiny import tiny_cache, tiny_head, tiny_target


def test_agreement_of_the_first_depth_equals_a_count_by_hand(tmp_path):
    target = tiny_target()
    head, cache = tiny_head(target), tiny_cache(tmp_path, target)
    scores = agreement(Objective(head, LossWeights()), held_out(cache, [4], target.lm_head.weight), num_steps=1)
    batch = cache.batch([4])
    ids, features = batch.ids[0], batch.features[0]
    right = []
    with torch.no_grad():
        for position in range(2, len(ids) - 1):
            rows = torch.arange(position)[None]
            output = head(head.embed(ids[None, 1 : position + 1]), features[None, :position], rows)
            prediction = head.logits(output.features[0, -1]).argmax()
            right.append(prediction == (features[position] @ target.lm_head.weight.T).argmax())
    assert scores["main_1/top1"] == pytest.approx(float(torch.stack(right).float().mean()))


def test_tau_of_trees_of_two_nodes_is_one_plus_the_hit_rate(tmp_path):
    target = tiny_target()
    head, cache = tiny_head(target), tiny_cache(tmp_path, target)
    batch = cache.batch([0])
    ids, features = batch.ids[0], batch.features[0]
    root, steps, hits = 3, 0, 0
    with torch.no_grad():
        while root < len(ids) - 1:
            output = head(head.embed(ids[None, 1 : root + 1]), features[None, :root], torch.arange(root)[None])
            hit = int(head.logits(output.features[0, -1]).argmax()) == int(ids[root + 1])
            steps, hits, root = steps + 1, hits + hit, root + 1 + hit
    rows = [Row(ids.tolist(), "prompts", 0.0, 3, 3)]
    data = held_out(cache, [0], target.lm_head.weight)
    scores = report(Objective(head, LossWeights()), cache, rows, data, budgets=(2,))
    assert scores["tau/greedy/2"] == pytest.approx(1 + hits / steps)


def test_contrastive_branch_is_read_two_positions_back_and_the_main_branch_one():
    """Row p of a pass predicts the choice at p + 1 in the main branch, and at p + 2 in the contrastive branch."""
    rows = torch.arange(20.0).view(1, 20, 1)
    output = SimpleNamespace(features=rows, contrastive=rows + 100)
    objective = SimpleNamespace(head=SimpleNamespace(mixes_experts=False), unroll=lambda batch, num_steps, _: [output])
    results = branch_features(objective, None, torch.zeros(3, dtype=torch.long), torch.tensor([2, 7, 19]), 1)
    assert [(branch, step, features.flatten().tolist()) for branch, step, features, _ in results] == [
        ("main", 1, [1, 6, 18]),
        ("contrastive", 1, [100, 105, 117]),
    ]


def test_decoupled_experts_and_their_weights_are_read_one_position_back():
    rows = torch.arange(20.0).view(1, 20, 1)
    output = SimpleNamespace(
        features=torch.stack([rows, rows + 100]), router_weights=torch.cat([rows, rows + 100], -1), contrastive=None
    )
    objective = SimpleNamespace(head=SimpleNamespace(mixes_experts=True), unroll=lambda batch, num_steps, _: [output])
    ((branch, step, features, log),) = branch_features(
        objective, None, torch.zeros(2, dtype=torch.long), torch.tensor([2, 7]), 1
    )
    assert (branch, step) == ("main", 1) and features.flatten().tolist() == [1, 6, 101, 106]
    assert log.exp() == pytest.approx(torch.tensor([[1.0, 101.0], [6.0, 106.0]]))


def test_parallel_levels_are_read_one_position_back():
    def levels(head, ids, features):
        return (torch.arange(20.0).view(1, 20, 1) + level for level in (0, 100, 200))

    head = nn.Module()
    head.mixes_experts = False
    batch = SimpleNamespace(ids=None, inputs=torch.zeros(1, 21, 1))
    objective = Objective(head, LossWeights(), levels)
    results = branch_features(objective, batch, torch.zeros(2, dtype=torch.long), torch.tensor([2, 7]), 2)
    assert [(step, features.flatten().tolist()) for _, step, features, _ in results] == [(1, [1, 6]), (2, [101, 106])]


def test_logits_of_a_draft_are_divided_by_the_temperature():
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    actual = log_q(SimpleNamespace(logits=lambda features: features), logits, None, temperature=2.0)
    assert torch.allclose(actual, (logits / 2).log_softmax(-1))


def test_top1_and_top3_count_the_most_probable_tokens(monkeypatch):
    logits = torch.tensor([[3.0, 2, 1, 0], [3, 2, 1, 0], [3, 2, 1, 0], [0, 1, 9, 3]])
    monkeypatch.setattr(validation, "learnable_positions", lambda batch, num_steps: torch.ones(1, 4, dtype=torch.bool))
    monkeypatch.setattr(validation, "branch_features", lambda *_: [("main", 1, logits, None)])
    head = SimpleNamespace(draft_token_ids=torch.arange(4), logits=lambda rows: rows)
    data = HeldOut([None], [torch.tensor([[0, 1, 3, 2]])], torch.eye(4))
    assert agreement(SimpleNamespace(head=head), data) == {"main_1/top1": 2 / 4, "main_1/top3": 3 / 4}
