"""The method that docs/architecture.md writes in thirty lines comes in by the door for methods from outside."""

import re
import sys
from pathlib import Path

import pytest

from jakiro.config import SamplingParams
from jakiro.methods import METHODS, PLAIN, methods_from
from tests.support import tiny_generator

DOCS = Path(__file__).resolve().parents[2] / "docs"
CODE = (DOCS / "echo.py").read_text(encoding="utf-8")


@pytest.fixture
def echo(monkeypatch):
    """The example's methods, as `--methods-from echo` gives them."""
    monkeypatch.syspath_prepend(str(DOCS))
    yield methods_from(["echo"])
    sys.modules.pop("echo")


def test_the_example_of_a_method_decodes_losslessly(echo):
    (method,) = echo
    generator = tiny_generator(methods=METHODS.with_further(echo))
    assert method in generator.methods
    for sampling in (SamplingParams(max_new_tokens=24), SamplingParams(1.0, seed=2, max_new_tokens=24)):
        trace = generator.run("abcabcabc", sampling, method.name)
        assert trace.token_ids == generator.run("abcabcabc", sampling, PLAIN.name).token_ids
        assert {node.proposer for step in trace.steps for node in step.nodes} == {"root", method.proposers[0].id}


def test_the_page_quotes_it():
    assert re.findall(r"```python\n(.*?)```", (DOCS / "architecture.md").read_text(encoding="utf-8"), re.DOTALL) == [
        CODE
    ]
    assert len([line for line in CODE.splitlines() if line]) <= 33
