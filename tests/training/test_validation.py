from types import SimpleNamespace

import pytest
import torch

from jakiro.training.corpus import Row
from jakiro.training.losses import LossWeights, Objective
from jakiro.training.validation import agreement, branch_rows, held_out, report
from tests.training.tiny import tiny_cache, tiny_head, tiny_target


def test_agreement_of_the_first_depth_counted_by_hand(tmp_path):
    target = tiny_target()
    head, cache = tiny_head(target), tiny_cache(tmp_path, target)
    found = agreement(Objective(head, LossWeights()), held_out(cache, [4], target.lm_head.weight), num_steps=1)
    batch = cache.batch([4])
    ids, features = batch.ids[0], batch.features[0]
    right = []
    with torch.no_grad():
        for position in range(2, len(ids) - 1):
            rows = torch.arange(position)[None]
            output = head(head.embed(ids[None, 1 : position + 1]), features[None, :position], rows)
            guess = head.logits(output.features[0, -1]).argmax()
            right.append(guess == (features[position] @ target.lm_head.weight.T).argmax())
    assert found["main_1/top1"] == pytest.approx(float(torch.stack(right).float().mean()))


def test_tau_of_trees_of_two_nodes_is_one_plus_the_first_guesses_hits(tmp_path):
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
    found = report(Objective(head, LossWeights()), cache, rows, data, budgets=(2,))
    assert found["tau/greedy/2"] == pytest.approx(1 + hits / steps)


def test_the_report_holds_every_number(tmp_path):
    target = tiny_target()
    head, cache = tiny_head(target), tiny_cache(tmp_path, target)
    rows = [Row(cache.batch([index]).ids[0].tolist(), "prompts", float(index % 2), 3, 3) for index in range(4)]
    data = held_out(cache, range(4), target.lm_head.weight)
    numbers = report(Objective(head, LossWeights()), cache, rows, data, budgets=(8,))
    assert {"tau/greedy/8", "main_5/top3", "experts/differ"} <= set(numbers)
    assert numbers["tau/greedy/8"] >= 1


def test_the_contrastive_branch_is_read_two_positions_back_and_the_main_one_back():
    """Row p of a pass guesses the choice at p + 1 by the main branch, and the one at p + 2 by the contrastive."""
    rows = torch.arange(20.0).view(1, 20, 1)
    output = SimpleNamespace(features=rows, contrastive=rows + 100)
    objective = SimpleNamespace(
        head=SimpleNamespace(config=SimpleNamespace(fusion="summed")), unroll=lambda batch, num_steps, _: [output]
    )
    found = branch_rows(objective, None, torch.zeros(3, dtype=torch.long), torch.tensor([2, 7, 19]), 1)
    assert [(branch, step, features.flatten().tolist()) for branch, step, features, _ in found] == [
        ("main", 1, [1, 6, 18]),
        ("contrastive", 1, [100, 105, 117]),
    ]
