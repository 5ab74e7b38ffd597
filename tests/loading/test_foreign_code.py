"""Python code in a model's folder never runs, and models that need it are refused."""

import io
import json
import sys

import pytest
import torch

from jakiro.heads.checkpoint import load_head, save_head
from jakiro.loading import weights
from jakiro.loading.loader import LoadOptions, load_parts
from tests.support import save_target, tiny_head, tiny_target

REFUSED = (
    r"^The target model .* could not be loaded: it needs Python code of its own, which Jakiro never runs; [^\n]*\.$"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a folder with a module `foreign`, which writes a file when run; standard input confirms every question."""
    save_target(tmp_path)
    mark = tmp_path / "ran"
    code = (
        "from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast\n"
        f"open({str(mark)!r}, 'w').close()\n"
        "class ForeignConfig(LlamaConfig):\n    model_type = 'foreign'\n"
        "class ForeignModel(LlamaForCausalLM):\n    pass\n"
        "class ForeignTokenizer(PreTrainedTokenizerFast):\n    pass\n"
        "def generate(model, **named):\n    pass\n"
    )
    (tmp_path / "foreign.py").write_text(code)
    (tmp_path / "custom_generate").mkdir()
    (tmp_path / "custom_generate" / "generate.py").write_text(code)
    yes = io.StringIO("y\n" * 9)
    monkeypatch.setattr(sys, "stdin", yes)
    yield tmp_path
    assert not mark.exists() and yes.tell() == 0


def change(folder, file, **values):
    """Write values into a JSON file of the folder."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_config_with_its_own_code_is_refused(folder):
    change(folder, "config.json", model_type="foreign", auto_map={"AutoConfig": "foreign.ForeignConfig"})
    with pytest.raises(ValueError, match=REFUSED):
        weights.load_config(str(folder))
    with pytest.raises(ValueError, match=REFUSED):
        load_parts(LoadOptions(str(folder), "none", "cpu", "float32"))


def test_model_with_its_own_code_is_refused(folder):
    """The config is supported by transformers, but its kind of model generates no text."""
    change(folder, "config.json", model_type="siglip", auto_map={"AutoModelForCausalLM": "foreign.ForeignModel"})
    with pytest.raises(ValueError, match=REFUSED):
        weights.load_target(str(folder))


@pytest.mark.parametrize(
    "map", [["foreign.ForeignTokenizer", None], {"AutoTokenizer": ["foreign.ForeignTokenizer", None]}]
)
def test_tokenizer_with_its_own_code_is_refused(folder, map):
    change(folder, "tokenizer_config.json", tokenizer_class="ForeignTokenizer", auto_map=map)
    with pytest.raises(ValueError, match=REFUSED):
        weights.load_tokenizer(str(folder))


def test_custom_generation_code_is_ignored(folder):
    (folder / "generation_config.json").write_text(json.dumps({"custom_generate": str(folder), "max_length": 9}))
    model, _, _ = weights.load_target(str(folder), dtype="float32")
    output = model.generate(torch.arange(4)[None], max_new_tokens=2, do_sample=False)
    assert output.shape[1] > 4


def test_supported_model_is_read_without_its_code(folder):
    foreign = {"AutoConfig": "foreign.ForeignConfig", "AutoModelForCausalLM": "foreign.ForeignModel"}
    change(folder, "config.json", auto_map=foreign)
    model, tokenizer, _ = weights.load_target(str(folder), dtype="float32")
    assert type(model).__module__.startswith("transformers.") and tokenizer.chat_template


def test_head_with_its_own_code_is_refused(folder, tmp_path_factory):
    head = tmp_path_factory.mktemp("head")
    save_head(tiny_head(tiny_target()), head)
    (head / "foreign.py").write_text((folder / "foreign.py").read_text())
    foreign = {"AutoConfig": "foreign.ForeignConfig", "AutoModel": "foreign.ForeignModel"}
    change(head, "config.json", model_type="foreign", auto_map=foreign)
    with pytest.raises(ValueError) as caught:
        load_head(head)
    assert "\n" not in str(caught.value) and "auto_map" in str(caught.value)
