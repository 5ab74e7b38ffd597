import math
from types import SimpleNamespace

import pytest
import torch

from jakiro.heads.checkpoint import save_head
from jakiro.training.validation import HeldOut
from lab.training import experts as module
from lab.training.experts import expert_facts, experts
from tests.support import save_target
from tests.training.tiny import tiny_cache, tiny_head, tiny_target


def test_statistics_of_two_experts_equal_counts_by_hand(monkeypatch):
    """Three positions: both experts right, only the second, only the first."""
    guesses = torch.tensor([[0, 0, 1, 3, 0], [0, 0, 2, 1, 0]])
    residual = torch.zeros((1, 5, 4))
    residual[0, 4, 2] = 10.0  # read where a row is taken for the next one
    output = SimpleNamespace(
        residual=residual, expert_outputs=torch.eye(4)[guesses][:, None],
        router_weights=torch.tensor([[[0.0, 1.0], [0.5, 0.5], [1.0, 0.0], [0.25, 0.75], [0.0, 1.0]]]),
    )  # fmt: skip
    is_compared = torch.tensor([[False, False, True, True, True]])
    monkeypatch.setattr(module, "learnable_positions", lambda batch, num_steps: is_compared)
    monkeypatch.setattr(module, "Objective", lambda *_: SimpleNamespace(unroll=lambda *_: iter([output])))
    head = SimpleNamespace(num_experts=2, draft_token_ids=torch.arange(4), logits=lambda rows: rows)
    facts = expert_facts(head, HeldOut([None], [torch.tensor([[9, 9, 0, 2, 3]])], torch.eye(4)))
    entropy = (1 + 0 - 0.25 * math.log2(0.25) - 0.75 * math.log2(0.75)) / 3
    expected = {
        "differ": 2 / 3, "union_top1": 1.0, "best_expert_top1": 2 / 3, "gain": 1 / 3, "entropy": entropy,
        "mean_weight_0": (0.5 + 1 + 0.25) / 3,
    }  # fmt: skip
    assert facts == pytest.approx({f"experts/{name}": number for name, number in expected.items()}, abs=1e-6)


def test_the_command_prints_the_statistics_of_each_head(tmp_path, capsys):
    target = tiny_target()
    tiny_cache(tmp_path / "features", target)
    save_target(tmp_path / "target", target)
    save_head(tiny_head(target, "decoupled"), tmp_path / "two")
    save_head(tiny_head(target, kind="eagle"), tmp_path / "one")
    options = {"target": str(tmp_path / "target"), "rows": 4}
    experts(tmp_path / "features", [str(tmp_path / "two")], **options)
    assert "two: experts/differ " in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"one has one expert; use heads with two"):
        experts(tmp_path / "features", [str(tmp_path / "one")], **options)
