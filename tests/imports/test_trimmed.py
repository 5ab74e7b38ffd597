"""A target is loaded without torch's compiler, and computes what it computes with it."""

import subprocess
import sys

import pytest
import torch
from torch.fx.experimental import symbolic_shapes
from transformers import AutoModelForCausalLM

from jakiro.imports.trimmed import _OF_KNOWN_SIZES
from tests.support import byte_tokenizer, tiny_model

PROGRAM = """
import sys
from jakiro.imports.trimmed import without_compiler_and_distribution

with without_compiler_and_distribution():
    from jakiro import JakiroGenerator

    generator = JakiroGenerator.from_pretrained(sys.argv[1], "none", device="cpu")
assert generator.run("ab", method="autoregressive").steps
print(*sorted(sys.modules))
import torch
from torch.fx.experimental.symbolic_shapes import expect_true
from transformers import AutoModelForCausalLM
from transformers.masking_utils import TransformGetItemToIndex

assert "sympy" in sys.modules and expect_true.__module__ == "torch.fx.experimental.symbolic_shapes"
assert torch.compiler.disable(len).__module__ and "torch._dynamo" in sys.modules
with TransformGetItemToIndex():
    pass
with torch.inference_mode():
    logits = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()(torch.arange(9)[None]).logits
torch.save(logits, sys.argv[2])
"""


def test_a_target_is_loaded_without_torch_s_compiler_and_computes_as_ever(tmp_path):
    model, logits = tmp_path / "model", tmp_path / "logits.pt"
    tiny_model().save_pretrained(model)
    byte_tokenizer().save_pretrained(model)
    command = [sys.executable, "-c", PROGRAM, str(model), str(logits)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    heavy = {"torch._dynamo", "sympy", "torch.distributed.tensor", "torch.fx.experimental.symbolic_shapes"}
    assert not heavy & set(found.stdout.split())
    with torch.inference_mode():
        expected = AutoModelForCausalLM.from_pretrained(model).eval()(torch.arange(9)[None]).logits
    assert torch.equal(torch.load(logits, weights_only=True), expected)


@pytest.mark.filterwarnings("ignore:guard_size_oblivious will be removed")
def test_the_stand_in_answers_about_sizes_as_torch_does():
    asked = {
        "sym_and": [(True, False), (True,), (True, True, True)],
        "sym_or": [(False, True), (False,)],
        "sym_eq": [(3, 3), (3, 4), ((2, 3), [2, 3]), ((2, 3), (3, 2)), ((2,), (2, 3))],
        "guarding_hint_or_throw": [(7,), (True,)],
        "has_guarding_hint": [(7,)],
        "is_nested_int": [(7,)],
        "expect_true": [(True,), (False, 1)],
    }
    for name, answer in _OF_KNOWN_SIZES.items():
        for sizes in asked.get(name, [(True,), (False,)]):
            assert answer(*sizes) == getattr(symbolic_shapes, name)(*sizes), (name, sizes)
