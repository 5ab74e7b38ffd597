"""Targets in the stored bits of a GGUF file: the model of the file without conversion, and unchanged text."""

import pytest
import torch
from transformers import AutoConfig

from jakiro.config import SamplingParams, TreeConfig
from jakiro.generator import JakiroGenerator
from jakiro.loading.gguf_model import read_gguf_model, stock_model
from jakiro.models.probes import star_tree
from jakiro.models.stored import StoredModel
from jakiro.models.target import TargetModel
from jakiro.ops import kernels
from jakiro.ops.blocks import BLOCKS
from jakiro.ops.linear import round_linears
from tests import needs
from tests.gguf_files import random_model, write_gguf
from tests.support import byte_tokenizer, save_target, tiny_head

pytestmark = needs.compiled_functions
SIZES = {
    "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "max_position_embeddings": 512,
    "initializer_range": 0.08,
}  # fmt: skip
SHAPES = {
    "llama": ("llama", {}),
    "tied": ("llama", {"tie_word_embeddings": True}),
    "biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "qwen2": ("qwen2", {}),
}


def write_model(path, kind: str = "Q5_0", shape: str = "llama"):
    """Write a GGUF file of a random model."""
    model_type, settings = SHAPES[shape]
    return write_gguf(path / "model.gguf", random_model(model_type, 0.05, **SIZES | settings), kind=kind)


def stored_target(path) -> TargetModel:
    read = read_gguf_model(path)
    return TargetModel(StoredModel(AutoConfig.for_model(**read.config), read.weights), byte_tokenizer())


def assert_same_model(path) -> None:
    target, model = stored_target(path), stock_model(read_gguf_model(path), torch.float32)
    assert target.compiled and target.bit_identical
    ids = torch.randint(0, 256, (90,), generator=torch.Generator().manual_seed(1))
    cache = target.new_cache(100)
    features, last = target.prefill(ids[:80], cache)
    with torch.inference_mode():
        expected = model(input_ids=ids[None], output_hidden_states=True)
    spread = expected.logits.std()
    assert (features - expected.hidden_states[-1][0, :80]).abs().amax() <= 2e-3 * features.abs().amax()
    assert (last[0] - expected.logits[0, 79]).abs().amax() <= 2e-3 * spread
    scores = target.score(star_tree(ids[80:82], 2), cache)
    assert (scores.logits - expected.logits[0, 80:82]).abs().amax() <= 2e-3 * spread


@pytest.mark.parametrize("kind", [*BLOCKS, "F32", "F16", "BF16"])
def test_file_of_each_type_equals_its_float32_model(kind, tmp_path):
    assert_same_model(write_model(tmp_path, kind))


@pytest.mark.parametrize("shape", SHAPES)
def test_biases_ties_and_head_order_are_read_from_the_file(shape, tmp_path):
    assert_same_model(write_model(tmp_path, "Q8_0", shape))


@pytest.fixture
def generator(own_cache, tmp_path):
    return JakiroGenerator.from_pretrained(str(write_model(tmp_path, "Q4_1", "tied")), device="cpu")


def test_file_is_used_without_conversion(generator, tmp_path):
    assert isinstance(generator.target.model, StoredModel) and generator.target.compiled
    (folder,) = (tmp_path / "cache" / "models").iterdir()
    assert not list(folder.glob("*.safetensors")) and (folder / "tokenizer.json").is_file()
    assert generator.status["weight_bits"] == 8


def test_file_larger_than_memory_is_refused_before_its_weights_are_read(own_cache, tmp_path, monkeypatch):
    path = write_model(tmp_path, "Q4_1", "tied")
    monkeypatch.setattr("jakiro.loading.placement.free_memory", lambda device: 10**5)
    with pytest.raises(ValueError, match=r"needs about 1\.4 MB for its weights, and this machine has 0\.1 MB free"):
        JakiroGenerator.from_pretrained(str(path), device="cpu")


@pytest.mark.parametrize("reduced", [None, 90])
def test_head_reads_the_rows_of_the_file(reduced, tmp_path):
    target = stored_target(write_model(tmp_path, "Q8_0"))
    head = tiny_head(target, draft_vocab_size=reduced)
    ids = torch.arange(40)
    assert torch.equal(head.embed(ids), target.embedding.rows(ids))
    assert torch.equal(head.output_weight, target.output_weight.rows(head.draft_token_ids))
    assert kernels.current().tree_growth(head.pack(), TreeConfig()) is not None


@pytest.mark.parametrize("tied", [True, False])
def test_safetensors_target_in_8_bits_equals_the_rounded_model(tied, tmp_path):
    model = random_model("llama", 0.0, **SIZES, tie_word_embeddings=tied)
    save_target(tmp_path, model)
    loaded = JakiroGenerator.from_pretrained(str(tmp_path), device="cpu", dtype="8bit")
    assert loaded.target.compiled and loaded.target.bit_identical and loaded.status["weight_bits"] == 8
    round_linears(model)
    ids = torch.arange(50) + 40
    with torch.inference_mode():
        expected = model(input_ids=ids[None]).logits[0, -1]
    last = loaded.target.prefill(ids, loaded.target.new_cache(50))[1][0]
    assert (last - expected).abs().amax() <= 2e-3 * expected.std()
    for temperature in (0, 1.0):
        sampling = SamplingParams(temperature, seed=1, max_new_tokens=40)
        texts = [loaded.run("abababab", sampling, method).token_ids for method in ("autoregressive", "prompt_lookup")]
        assert texts[0] == texts[1]


def test_file_is_rounded_with_a_notice_without_compiled_code(own_cache, tmp_path, monkeypatch):
    monkeypatch.setattr("jakiro.loading.loader.native_works", lambda: False)
    loaded = JakiroGenerator.from_pretrained(str(write_model(tmp_path)), device="cpu")
    assert not isinstance(loaded.target.model, StoredModel)
    assert any("rounded to bfloat16" in notice for notice in loaded.notices)
