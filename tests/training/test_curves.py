"""training.html holds what tensorboard's files hold."""

import json
import re

import pytest

from jakiro.training.curves import write_curves

for _package in ("plotly", "tensorboard"):
    pytest.importorskip(_package, reason="the extra [train] is not installed")


def test_curves_of_a_resumed_run_are_one_line_and_steps_done_again_count_once(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    for steps, value in (((1, 2, 3), 4.0), ((3, 4), 2.0)):
        with SummaryWriter(str(tmp_path)) as writer:
            for step in steps:
                writer.add_scalar("validation/<b>tau</b>", value, step)
    text = write_curves(tmp_path).read_text(encoding="utf-8")
    (figure,) = json.loads(re.search(r'id="figures">(.*?)</script>', text, re.DOTALL)[1])["dark"]
    assert figure["data"][0]["x"] == [1, 2, 3, 4]
    assert figure["data"][0]["y"] == [4.0, 4.0, 2.0, 2.0]
    assert "<h2>validation/&lt;b&gt;tau" in text and "<b>tau" not in text
