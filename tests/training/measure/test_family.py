"""What sets the methods apart: acceptance rules on made-up distributions, and texts that would have changed."""

import pytest
import torch

from jakiro.config import SamplingParams, TreeConfig
from jakiro.methods.mcsd import StaticDrafter
from jakiro.training.measure.acceptance import COUNTS, RULES, accepted_shares, pair, write_chart
from jakiro.training.measure.replay import replay
from jakiro.training.measure.what_if import what_if
from tests.support import tiny_head, tiny_model, tiny_target
from tests.training.measure.test_evaluation import answers_of, lucky

TREE = TreeConfig(width=6, depth=3, nodes=11)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_the_choice_s_own_branch_is_what_decoding_accepts(temperature, tmp_path):
    model, target = tiny_model(), tiny_target()
    sampling = SamplingParams(temperature, seed=5, max_new_tokens=24)
    drafter, others = StaticDrafter(lucky(tiny_head(target))), 0
    for answer in answers_of(model, tmp_path, sampling):
        found = what_if(target, drafter, answer, sampling, 4, TREE)
        steps = list(replay(drafter, answer.ids, answer.features, answer.start, answer.end, sampling, TREE))
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
