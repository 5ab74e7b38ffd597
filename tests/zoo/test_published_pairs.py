"""Small random pairs in each published EAGLE-3 form, by every door: the head alone, the command line, the page."""

import json

import pytest
import torch

from app.asking import Asking
from app.devices.local import answer_events
from app.serving.pairs import HERE, known_pairs
from jakiro.cli import main as cli
from jakiro.config import AUTOMATIC_TREE, SamplingParams
from jakiro.generator import JakiroGenerator
from jakiro.methods import DEFAULT, PLAIN
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


@pytest.mark.parametrize("form", FORMS)
def test_the_page_s_default_drafts_with_it(form, loaded):
    asked = Asking(
        ({"role": "user", "content": "Hi"},), SamplingParams(max_new_tokens=6), AUTOMATIC_TREE,
        (PLAIN.name, DEFAULT.name),
    )  # fmt: skip
    events = list(answer_events(loaded[form], asked, lambda: False))
    assert [method for kind, method, _ in events if kind == "header"] == [PLAIN.name, "eagle3"]
    assert {kind for kind, _, _ in events} == {"header", "step", "end"}


def test_the_picker_offers_each_head_with_its_target(pairs):
    found = {pair.name: pair for pair in known_pairs(pairs)}
    for form in FORMS:
        pair = found[f"tiny-target + {form}"]
        assert (pair.state, pair.target, pair.head) == (HERE, str(pairs / "tiny-target"), str(pairs / form))


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as left:
        cli.main([*arguments, "--device", "cpu", "--max-new-tokens", "12", "--prompt", "Hi"])
    captured = capsys.readouterr()
    return left.value.code or 0, captured.out, captured.err


def test_the_command_line_answers_and_races_with_the_head_alone(pairs, capsys, tmp_path):
    head, trace = str(pairs / "speculators"), tmp_path / "trace.json"
    code, _, said = run(capsys, "generate", "--head", head, "--trace", str(trace))
    assert code == 0, said
    header = json.loads(trace.read_text(encoding="utf-8"))["header"]
    assert (header["method"], header["target"]["name"]) == ("eagle3", str(pairs / "tiny-target"))
    code, out, said = run(capsys, "race", "--head", head)
    assert code == 0 and "EAGLE-3" in out + said, said


def test_a_head_whose_config_names_no_target_asks_for_one(pairs, capsys):
    code, _, said = run(capsys, "generate", "--head", str(pairs / "official bin"))
    assert code == 2 and "choose a head trained for this target" in said and "names no target" in said
