import pytest
import torch

from lab.training.layer_search import LayerStack, best_speed, break_even, leave_out
from tests.support import tiny_model

IDS = torch.arange(40).view(2, 20) * 13 % 250


def test_a_layer_that_adds_nothing_is_left_out_first_without_a_loss():
    model = tiny_model(layers=5)
    for linear in (model.model.layers[2].self_attn.o_proj, model.model.layers[2].mlp.down_proj):
        linear.weight.zero_()
    with torch.inference_mode():
        stack = LayerStack(model, IDS, skipped=4, rows=200, half=False)
        first, second, third = leave_out(stack, fewest=2)
    assert first.layers == (0, 1, 3, 4)
    assert first.agreement == 1.0 and first.total_variation == pytest.approx(0.0, abs=1e-5)
    assert set(third.layers) < set(second.layers) < set(first.layers)
    assert third.layers == (0, 4), "the first and the last layer stay"
    assert second.total_variation > 0.01


def test_the_full_stack_equals_the_model_on_the_draft_s_rows():
    model = tiny_model(layers=3)
    with torch.inference_mode():
        stack = LayerStack(model, IDS, skipped=4, rows=200, half=False)
        logits = model(input_ids=IDS).logits[:, 4:, :200].flatten(0, 1)
    torch.testing.assert_close(stack.wanted, logits.log_softmax(-1), rtol=1e-4, atol=1e-4)


def test_break_even_and_speed_by_hand():
    # 4 ms for the draft and 11 ms for two rows against 10 ms: the step must accept half a token
    assert break_even(4.0, 10.0, 11.0) == pytest.approx(0.5)
    speed, length = best_speed(0.5, 4.0, (10.0, 11.0))
    assert (speed, length) == (pytest.approx(1.0), 1)
    speed, length = best_speed(0.8, 1.0, (10.0, 10.0, 10.0))
    assert (speed, length) == (pytest.approx((1 + 0.8 + 0.64) * 10 / 12), 2)
