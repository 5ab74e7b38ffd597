from dataclasses import replace

import pytest
import torch

from jakiro.heads.checkpoint import save_head
from jakiro.heads.jakiro import JakiroConfig
from jakiro.heads.jakiro.network import JakiroHead
from lab.training.masks import elect, load_masks, masked_head, save_masks

SQUARE = "layers.0.self_attn.q_proj.weight"


def tiny_head(calibration=None, seed=0):
    """Return a random head with float16 values, like a loaded one; queries are a 2 × 2 matrix."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 2, "vocab_size": 8, "expert_intermediate_size": 3}
    config = JakiroConfig(num_attention_heads=1, num_key_value_heads=1, calibration=calibration or {}, **sizes)
    return JakiroHead(config).half().float().requires_grad_(False)


def tuned(base, seed):
    """Return a head trained from the base with its own calibration; a third of the weights did not change."""
    generator = torch.Generator().manual_seed(seed)
    head = JakiroHead(replace(base.config, calibration={"main/1/greedy": float(seed)}))
    head.load_state_dict(base.state_dict())
    for parameter in head.requires_grad_(False).parameters():
        factor = 1 + 0.2 * torch.randn(parameter.shape, generator=generator).clamp(-2, 2)
        factor[torch.rand(parameter.shape, generator=generator) < 1 / 3] = 1
        parameter.copy_((parameter * factor).half())
    return head


def moved(base, rows):
    head = JakiroHead(base.config).requires_grad_(False)
    head.load_state_dict(base.state_dict())
    head.state_dict()[SQUARE].add_(torch.tensor(rows))
    return head


def equal(first, second):
    ours, theirs = first.state_dict(), second.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture
def base():
    return tiny_head({"main/1/greedy": 1.5})


@pytest.fixture
def heads(base):
    return {"maths": tuned(base, 1), "tasks": tuned(base, 2)}


@pytest.fixture
def by_hand():
    base = tiny_head()
    base.state_dict()[SQUARE].copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    rows = {
        "a": [[0.5, -0.25], [0.5, 0.0]],
        "b": [[0.5, 0.75], [-0.5, -1.0]],
        "c": [[-0.75, 0.0], [0.0, -0.25]],
    }
    return base, {domain: moved(base, values) for domain, values in rows.items()}


def test_sign_magnitude_masks_and_scales_are_those_computed_by_hand(by_hand):
    merged = elect(*by_hand)
    # Upper left: 0.5 + 0.5 − 0.75 > 0, so that the largest magnitude, −0.75, does not count. Lower left: a tie.
    assert merged.unified[SQUARE].tolist() == [[0.5, 0.75], [0.0, -1.0]]
    assert merged.unified[SQUARE].dtype == torch.float16
    assert merged.masks["a"][SQUARE].tolist() == [[True, False], [False, False]]
    assert merged.masks["b"][SQUARE].tolist() == [[True, True], [False, True]]
    assert merged.masks["c"][SQUARE].tolist() == [[False, False], [False, True]]
    assert merged.scales == {"a": 1.25 / 0.5, "b": 2.75 / 2.25, "c": 1.0}


def test_a_domain_s_head_is_the_base_plus_rescaled_masked_deltas(by_hand):
    base, heads = by_hand
    merged = elect(base, heads)
    head = masked_head(base, merged, "a")
    assert head.state_dict()[SQUARE].tolist() == [[1 + 2.5 * 0.5, 2.0], [3.0, 4.0]]
    assert masked_head(base, merged, "c").state_dict()[SQUARE].tolist() == [[1.0, 2.0], [3.0, 3.0]]
    assert all(torch.equal(head.state_dict()[name], base.state_dict()[name]) for name in set(merged.unified) - {SQUARE})
    assert base.state_dict()[SQUARE].tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_masks_of_a_single_domain_restore_its_head(base, heads):
    head = heads["maths"]
    merged = elect(base, {"maths": head})
    assert merged.scales == {"maths": 1.0}
    start, end = base.state_dict(), head.state_dict()
    for name, mask in merged.masks["maths"].items():
        assert torch.equal(mask, start[name] != end[name])
    assert any((~mask).any() for mask in merged.masks["maths"].values())
    again = masked_head(base, merged, "maths")
    assert equal(again, head)
    assert again.config == head.config


def test_of_two_domains_with_opposite_deltas_one_has_the_weight(base, heads):
    merged = elect(base, heads)
    disagreed = 0
    for name, start in base.named_parameters():
        first, second = (heads[domain].state_dict()[name] - start for domain in heads)
        ours, theirs = (merged.masks[domain][name] for domain in heads)
        against = (first * second < 0) & (first != -second)
        disagreed += int(against.sum())
        assert not (ours & theirs)[against].any()
        assert (ours | theirs)[against].all()
        assert torch.equal(ours[against], (first.abs() > second.abs())[against])
        assert (ours & theirs)[first * second > 0].all()
    assert disagreed > 5


def test_a_delta_too_small_for_float16_is_in_no_mask():
    base = tiny_head()
    base.state_dict()[SQUARE].zero_()
    smallest, smaller = 2.0**-24, 2.0**-26
    merged = elect(base, {"a": moved(base, [[smallest, smaller], [0.0, 0.0]]), "b": moved(base, [[0.0] * 2] * 2)})
    assert merged.unified[SQUARE].tolist() == [[smallest, 0.0], [0.0, 0.0]]
    assert merged.masks["a"][SQUARE].tolist() == [[True, False], [False, False]]
    assert merged.scales == {"a": (smallest + smaller) / smallest, "b": 1.0}


def test_masks_from_disk_give_the_same_heads(base, heads, tmp_path):
    save_head(base, tmp_path / "base")
    # Deltas outside float16 are rounded before saving, not by saving
    rough = {"maths": heads["maths"], "tasks": tiny_head(seed=3, calibration={"main/1/greedy": 1 / 3})}
    rough["tasks"].state_dict()[SQUARE].mul_(1 + 2**-13)
    for name, merged in (("exact", elect(base, heads)), ("rough", elect(base, rough))):
        save_masks(merged, tmp_path / name, tmp_path / "base")
        again = load_masks(tmp_path / name, tmp_path / "base")
        assert again.scales == merged.scales and again.calibrations == merged.calibrations
        for domain in merged.scales:
            ours, theirs = masked_head(base, merged, domain), masked_head(base, again, domain)
            assert equal(ours, theirs) and ours.config == theirs.config
            assert not equal(ours, base)
