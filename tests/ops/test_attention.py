"""Exact attention: correct, and independent of the order of keys and of the number of rows."""

import pytest
import torch

from jakiro.models.attention_modes import exact_attention
from tests.support import DEVICE

HEADS, KV_HEADS, ROWS, KEYS, HEAD_DIM = 6, 2, 9, 70, 16


def inputs(dtype, keys=KEYS, spread=1.0):
    generator = torch.Generator().manual_seed(3)

    def random(*shape):
        return (torch.randn(shape, generator=generator) * spread).to(device=DEVICE, dtype=dtype)

    mask = torch.rand((1, 1, ROWS, keys), generator=generator).to(DEVICE) < 0.6
    mask[..., 0] = True
    return (
        random(1, HEADS, ROWS, HEAD_DIM),
        random(1, KV_HEADS, keys, HEAD_DIM),
        random(1, KV_HEADS, keys, HEAD_DIM),
        mask,
    )


def eager(query, key, value, mask, scaling, softcap=None):
    """Return textbook attention, computed in float64."""
    groups = HEADS // KV_HEADS
    key, value = key.double().repeat_interleave(groups, 1), value.double().repeat_interleave(groups, 1)
    scores = query.double() @ key.transpose(2, 3) * scaling
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    return (scores.masked_fill(~mask, -torch.inf).softmax(-1) @ value).transpose(1, 2)


@pytest.mark.parametrize(("scaling", "softcap"), [(None, None), (0.5, None), (0.3, 2.0)])
def test_output_equals_an_eager_float64_reference(scaling, softcap):
    query, key, value, mask = inputs(torch.float32, spread=2.0)
    attended, weights = exact_attention(None, query, key, value, mask, scaling=scaling, softcap=softcap)
    expected = eager(query, key, value, mask, scaling or HEAD_DIM**-0.5, softcap)
    assert weights is None and attended.shape == (1, ROWS, HEADS, HEAD_DIM) and attended.dtype == torch.float32
    torch.testing.assert_close(attended.double(), expected, atol=2e-6, rtol=2e-6)


def test_bfloat16_inputs_give_the_correctly_rounded_result():
    query, key, value, mask = inputs(torch.bfloat16)
    expected = eager(query, key, value, mask, HEAD_DIM**-0.5)
    attended = exact_attention(None, query, key, value, mask)[0]
    assert attended.dtype == torch.bfloat16
    # One unit in the last place is allowed, for sums next to a rounding boundary
    assert (attended == expected.bfloat16()).float().mean() > 0.995
    torch.testing.assert_close(attended.double(), expected, atol=1e-3, rtol=2**-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_does_not_depend_on_the_order_of_keys(dtype):
    query, key, value, mask = inputs(dtype)
    expected = exact_attention(None, query, key, value, mask)[0]
    for seed in range(8):
        order = torch.randperm(KEYS, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
        shuffled = exact_attention(None, query, key[:, :, order], value[:, :, order], mask[..., order])[0]
        assert torch.equal(shuffled, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_output_does_not_depend_on_the_number_of_rows_and_masked_keys(dtype):
    query, key, value, mask = inputs(dtype)
    mask[..., 50:] = False
    expected = exact_attention(None, query, key, value, mask)[0]
    for first, last in [(0, 1), (2, 4), (1, 9)]:
        rows = exact_attention(None, query[:, :, first:last], key, value, mask[:, :, first:last])[0]
        assert torch.equal(rows, expected[:, first:last])
    shorter = exact_attention(None, query, key[:, :, :50], value[:, :, :50], mask[..., :50])[0]
    assert torch.equal(shorter, expected)


@pytest.mark.parametrize("storage", [torch.float32, torch.float64])
def test_inputs_are_not_changed(storage):
    query, key, value, mask = inputs(torch.float32)
    tensors = [query, key.to(storage), value.to(storage), mask]
    copies = [tensor.clone() for tensor in tensors]
    exact_attention(None, *tensors, softcap=3.0)
    assert all(torch.equal(tensor, copy) for tensor, copy in zip(tensors, copies, strict=True))


def test_sinks_and_missing_masks_are_refused_by_name():
    query, key, value, mask = inputs(torch.float32)
    with pytest.raises(ValueError, match="attention sinks"):
        exact_attention(None, query, key, value, mask, s_aux=torch.zeros(HEADS, device=DEVICE))
    for wrong in (None, mask.float()):
        with pytest.raises(ValueError, match="explicit bool mask"):
            exact_attention(None, query, key, value, wrong)
