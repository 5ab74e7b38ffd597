"""Small random pairs in each published EAGLE-3 form, by every door: the head alone, the command line, the page."""

import pytest
import torch

from jakiro.cli import main as cli
from jakiro.config import SamplingParams
from jakiro.generator import JakiroGenerator
from jakiro.methods import PLAIN
from tests.heads.test_eagle3 import as_speculators
from tests.heads.test_foreign import write_folder
from tests.support import HIDDEN_SIZE, TOKENIZER_SIZE, TREE, byte_tokenizer, tiny_model

DRAFTED = 90
FORMS = ("official safetensors", "official bin", "speculators")


def official(seed: int = 5) -> tuple[dict, dict]:
    """Config and tensors of a random head for the tiny model, as the authors publish one."""
    torch.manual_seed(seed)
    size, inner, head = HIDDEN_SIZE, 2 * HIDDEN_SIZE, HIDDEN_SIZE // 4
    shapes = {
        "fc": (size, 3 * size), "lm_head": (DRAFTED, size), "midlayer.self_attn.q_proj": (size, 2 * size),
        "midlayer.self_attn.k_proj": (2 * head, 2 * size), "midlayer.self_attn.v_proj": (2 * head, 2 * size),
        "midlayer.self_attn.o_proj": (size, size), "midlayer.mlp.gate_proj": (inner, size),
        "midlayer.mlp.up_proj": (inner, size), "midlayer.mlp.down_proj": (size, inner),
    }  # fmt: skip
    tensors = {f"{name}.weight": 0.15 * torch.randn(shape) for name, shape in shapes.items()}
    for name in ("input_layernorm", "hidden_norm", "post_attention_layernorm"):
        tensors[f"midlayer.{name}.weight"] = torch.ones(size)
    tensors["norm.weight"] = torch.ones(size)
    kept = torch.randperm(TOKENIZER_SIZE)[:DRAFTED].sort().values
    tensors["d2t"] = kept - torch.arange(DRAFTED)
    tensors["t2d"] = torch.zeros(TOKENIZER_SIZE, dtype=torch.bool).index_fill(0, kept, True)
    values = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": size,
        "intermediate_size": inner, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
        "vocab_size": TOKENIZER_SIZE, "draft_vocab_size": DRAFTED, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    }  # fmt: skip
    return values, tensors


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """A folder with a target and a head in each form."""
    folder = tmp_path_factory.mktemp("pairs")
    tiny_model(layers=8).save_pretrained(folder / "tiny-target")
    byte_tokenizer().save_pretrained(folder / "tiny-target")
    values, tensors = official()
    for form in FORMS:
        if form == "speculators":
            about, named = as_speculators(values, tensors)
            about["speculators_config"] = {"verifier": {"name_or_path": str(folder / "tiny-target")}}
            write_folder(folder / form, named, about)
        else:
            write_folder(folder / form, tensors, values, "pytorch_model.bin" if "bin" in form else "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def loaded(pairs):
    """A generator for each form."""
    target = str(pairs / "tiny-target")
    return {form: JakiroGenerator.from_pretrained(target, str(pairs / form), device="cpu") for form in FORMS}


def test_each_form_gives_the_same_head(loaded):
    first, *others = (generator.drafter(generator.usual) for generator in loaded.values())
    weights = first.head.state_dict()
    assert weights
    for other in others:
        for name, tensor in other.head.state_dict().items():
            assert torch.equal(tensor, weights[name]), name


def test_ids_equal_plain_decoding_s_over_seven_hundred_tokens(loaded):
    generator = loaded["speculators"]
    assert generator.usual.name == "eagle3"
    compared = 0
    for number in range(40):
        sampling = SamplingParams((0.0, 0.7, 1.0)[number % 3], seed=number, max_new_tokens=200)
        plain = generator.run(f"Hi {number}", sampling, PLAIN.name)
        drafted = generator.run(f"Hi {number}", sampling, tree=TREE)
        assert drafted.header.method == "eagle3" and drafted.token_ids == plain.token_ids
        compared += len(plain.token_ids)
        if compared >= 700 and number >= 2:
            break
    assert compared >= 700


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        cli.main([*arguments, "--device", "cpu", "--max-new-tokens", "12", "--prompt", "Hi"])
    captured = capsys.readouterr()
    return left.value.code or 0, captured.out, captured.err


def test_a_head_whose_config_names_no_target_asks_for_one(pairs, capsys):
    code, _, said = run(capsys, "generate", "--head", str(pairs / "official bin"))
    assert code == 2 and "choose a head trained for this target" in said and "names no target" in said
