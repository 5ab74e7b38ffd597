"""RoPE settings of a GGUF file that multiply each other."""

from math import log

import pytest

from jakiro.loading.gguf_model import read_gguf_model
from tests.gguf_files import write_gguf
from tests.support import tiny_model


@pytest.mark.parametrize(("attention", "factor"), [(1.25, 4.0), (0.5, 8.0), (1.0, 4.0), (1.25, 1.0)])
def test_yarn_multiplies_the_attention_factor_of_the_file_with_its_own(attention, factor, tmp_path):
    """llama.cpp uses attn_factor · (1 + 0.1 · log factor); the second part is 1 for a factor of 1 or less."""
    keys = {
        ".rope.scaling.type": "yarn",
        ".rope.scaling.factor": factor,
        ".rope.scaling.attn_factor": attention,
        ".rope.scaling.original_context_length": 64,
    }
    config = read_gguf_model(write_gguf(tmp_path / "model.gguf", tiny_model(), keys)).config
    expected = attention * (1 + 0.1 * log(factor))
    assert config["rope_parameters"]["attention_factor"] == pytest.approx(expected)
