"""The method that docs/architecture.md writes in thirty lines is one."""

import re
from pathlib import Path

from jakiro.config import SamplingParams
from jakiro.methods import METHODS, PLAIN
from tests.support import tiny_generator

PAGE = Path(__file__).resolve().parents[2] / "docs" / "architecture.md"


def test_the_example_of_a_method_decodes_losslessly(monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(code, names)
    method = names["METHOD"]
    monkeypatch.setitem(METHODS, method.name, method)
    generator = tiny_generator()
    for sampling in (SamplingParams(max_new_tokens=24), SamplingParams(1.0, seed=2, max_new_tokens=24)):
        trace = generator.run("abcabcabc", sampling, method.name)
        assert trace.token_ids == generator.run("abcabcabc", sampling, PLAIN.name).token_ids
        assert {node.proposer for step in trace.steps for node in step.nodes} == {"root", method.proposers[0].id}
    assert len([line for line in code.splitlines() if line]) <= 32
