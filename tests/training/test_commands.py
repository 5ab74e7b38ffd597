import gc
import json
import re
import shutil
import weakref
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from jakiro import JakiroGenerator, SamplingParams
from jakiro.cli.main import app
from jakiro.drafters.registry import METHODS
from jakiro.heads.checkpoint import load_head, save_head
from jakiro.heads.eagle3 import Eagle3Config
from jakiro.heads.jakiro import JakiroConfig
from jakiro.heads.kinds import make_head
from jakiro.loading import loader
from jakiro.system import assets_folder
from jakiro.training import train as train_module
from jakiro.training.answers import AnswerFolder
from jakiro.training.calibrate import CalibrateConfig, calibrate
from jakiro.training.corpus import Row, read_corpus, read_manifest, write_part
from jakiro.training.losses import LossWeights
from jakiro.training.schedule import TrainingOptions
from tests.marks import often
from tests.support import byte_tokenizer, save_target, with_own_head
from tests.training.tiny import byte_target


@pytest.fixture(scope="module")
def target_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    save_target(folder, byte_target(num_layers=5))
    return folder


def invoke(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def succeed(*arguments):
    """Run a command that must succeed."""
    result = invoke(*arguments)
    assert result.exit_code == 0, result.exception


@pytest.fixture(scope="module")
def corpus_folder(target_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    options = ("--rows", 12, "--max-new-tokens", 20, "--max-message-tokens", 8, "--min-distinct", 0)
    succeed("corpus", folder, "--target", target_folder, *options)
    return folder


def test_corpus_of_made_messages_uses_passages_of_another_corpus(target_folder, corpus_folder, tmp_path):
    limits = ("--rows", 2, "--max-new-tokens", 4, "--min-distinct", 0)
    succeed("corpus", tmp_path, "--target", target_folder, "--made", "--passages", corpus_folder, *limits)
    assert len(read_corpus([tmp_path])) == 2


def test_corpus_of_a_base_model_is_refused_with_the_remedy(target_folder, tmp_path):
    shutil.copytree(target_folder, tmp_path / "base")
    (tmp_path / "base" / "chat_template.jinja").unlink()
    result = invoke("corpus", tmp_path / "corpus", "--target", tmp_path / "base", "--rows", 2)
    assert "has no chat template, as base models have none; give its instruction-tuned version" in str(result.exception)


SHIPPED = assets_folder() / "heads" / "smollm2-135m-instruct-summed"
TRAIN = ("--max-steps", 3, "--batch-tokens", 256, "--expert-width", 8, "--validation-rows", 4, "--draft-vocab", 100)


@pytest.fixture(scope="module")
def first(target_folder, corpus_folder, tmp_path_factory):
    """Return a folder with a trained `head` and the features in `work`."""
    folder = tmp_path_factory.mktemp("first")
    arguments = ["train", corpus_folder, "--target", target_folder, "--out", folder / "head", *TRAIN[:4], *TRAIN[6:]]
    succeed(*arguments, "--work", folder / "work", "--expert-width", 16)
    return folder


@pytest.mark.parametrize("method", often(("medusa",), [method.name for method in with_own_head()]))
def test_head_of_every_method_is_trained_calibrated_exported_and_measured(
    own_cache, method, first, target_folder, corpus_folder, tmp_path
):
    arguments = ["train", corpus_folder, "--target", target_folder, "--out", tmp_path / "head", *TRAIN]
    folders = ("--work", tmp_path / "own", "--features", first / "work" / "features")
    succeed(*arguments, *folders, "--method", method)
    head = load_head(tmp_path / "head")
    assert head.config.kind == METHODS[method].needs.head[0] and "main/1/greedy" in head.config.calibration
    few = ("--target", target_folder, "--texts", 3, "--max-new-tokens", 6)
    succeed("calibrate", tmp_path / "head", corpus_folder, *few)
    assert "main/1/sampled-0.7-kept" in load_head(tmp_path / "head").config.calibration
    card = (tmp_path / "head" / "README.md").read_text()
    assert f"| method | {method} |" in card and "| minutes, steps | 0.0, 3 |" in card and "| main_1/top1 | " in card
    assert f"| Parameters | {sum(parameter.numel() for parameter in head.parameters()):,} |" in card
    small = tmp_path / "small"
    succeed("export", "--head", tmp_path / "head", "--format", "int8", "--out", small)
    assert (small / "README.md").read_text() == card and (small / "manifest.json").is_file()
    numbers = tmp_path / "tau.json"
    measured = ("--answers", tmp_path / "answers", "--limit", 1, "--max-new-tokens", 8, "--nodes", 8, "--out", numbers)
    succeed("evaluate", "--head", small, "--target", target_folder, *measured)
    assert {score["method"] for score in json.loads(numbers.read_text())["scores"]} == {method}
    generator = JakiroGenerator.from_pretrained(str(target_folder), str(small), "cpu", "float32")
    sampling = SamplingParams(max_new_tokens=8, temperature=1.0)
    drafted, plain = (generator.run("hi", sampling, method=name) for name in (method, "autoregressive"))
    assert drafted.token_ids == plain.token_ids


@pytest.fixture
def train(target_folder, corpus_folder, tmp_path):
    """Return a function that trains a head in `head` and `work` of the test's folder and returns the result."""
    folders = ("--target", target_folder, "--out", tmp_path / "head", "--work", tmp_path / "work")
    return lambda *options, corpus=corpus_folder: invoke("train", corpus, *folders, *options)


def test_training_continues_a_head_with_its_width_and_vocabulary(first, train, tmp_path):
    options = ("--features", first / "work" / "features", "--init", first / "head", "--learning-rate", 1e-9)
    result = train(*TRAIN[:4], *TRAIN[6:8], *options)
    assert result.exit_code == 0, result.exception
    head, start = load_head(tmp_path / "head"), load_head(first / "head")
    assert head.config.fusion == start.config.fusion == "decoupled"
    assert "| method | jakiro |" in (first / "head" / "README.md").read_text()
    assert head.config.expert_intermediate_size == 16 and torch.equal(head.draft_token_ids, start.draft_token_ids)
    for name, weight in head.named_parameters():
        torch.testing.assert_close(weight, start.get_parameter(name), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--method", "eagle2"),
            r"layers.0.mlp_moe.experts.0.\S+ of shape none, the options require \(16, 16\); use the",
        ),
        (("--method", "medusa"), r"fc.bias of shape \(16,\), the options require none; use the same method"),
        (
            ("--fusion", "summed"),
            r"down_proj.weight of shape none, the options require \(16, 16\); use the same method",
        ),
        (("--expert-width", 8), r"of shape \(16, 16\), the options require \(8, 16\); use the same method"),
    ],
)
def test_head_of_another_shape_is_refused_before_any_computation(
    options, sentence, first, train, tmp_path, monkeypatch
):
    monkeypatch.setattr(loader.weights, "load_target", None)
    result = train(*TRAIN[:4], *TRAIN[6:8], "--init", first / "head", *options)
    assert isinstance(result.exception, ValueError) and re.search(sentence, str(result.exception))
    assert not (tmp_path / "work").exists()


def test_head_is_recalibrated_on_unread_rows(own_cache, first, target_folder, corpus_folder, tmp_path):
    out = shutil.copytree(first / "head", tmp_path / "head")
    trained, weights = json.loads((out / "config.json").read_text()), (out / "head.safetensors").read_bytes()
    config = CalibrateConfig(str(out), (str(corpus_folder),), target=str(target_folder), texts=3, max_new_tokens=6)
    calibrate(config)
    fitted = json.loads((out / "config.json").read_text())
    added = set(fitted["calibration"]) - set(trained["calibration"])
    assert {"main/1/greedy-kept", "main/1/sampled-0.7-kept", "main/2/sampled-kept"} <= added
    assert all(name.endswith("-kept") and 0 < fitted["calibration"][name] <= 1 for name in added)
    assert fitted | {"calibration": 0} == trained | {"calibration": 0}
    assert (out / "head.safetensors").read_bytes() == weights
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps(manifest | {"held_out": []}))
    with pytest.raises(ValueError, match="is among the 0 that"):
        calibrate(config)
    calibrate(replace(config, unread=True))


def test_contrastive_branch_is_calibrated(own_cache, target_folder, corpus_folder, tmp_path):
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "expert_intermediate_size": 16}
    config = JakiroConfig(vocab_size=byte_target(num_layers=1).config.vocab_size, fusion="summed", **sizes)
    save_head(make_head(config), tmp_path)
    calibrate(CalibrateConfig(str(tmp_path), (str(corpus_folder),), str(target_folder), 4, 2, 6, unread=True))
    assert {"contrastive/2/sampled", "contrastive/2/sampled-kept"} <= set(load_head(tmp_path).config.calibration)


def test_eagle3_head_is_calibrated(own_cache, target_folder, corpus_folder, tmp_path):
    target, folder = byte_target(num_layers=5), tmp_path / "head"
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "expert_intermediate_size": 16}
    config = Eagle3Config(vocab_size=target.config.vocab_size, num_states=1, **sizes)
    assert config.layers_of(5) == (2,)
    save_head(make_head(config), folder)
    config = CalibrateConfig(str(folder), (str(corpus_folder),), str(target_folder), 4, 2, 6, unread=True)
    calibrate(config)
    fitted = load_head(folder).config.calibration
    assert {"main/1/greedy", "main/2/noise-0.7", "main/1/sampled-kept"} <= set(fitted)
    # A config in our format would not match weights of another project
    before = (folder / "config.json").read_bytes()
    with pytest.raises(ValueError, match=r"The config of .* names no target; give --target, the model for which"):
        calibrate(replace(config, target=None))
    (folder / "head.safetensors").rename(folder / "model.safetensors")
    with pytest.raises(
        ValueError,
        match=r"in another project's format, .* convert it to Jakiro's format first, with export --format hub",
    ):
        calibrate(config)
    assert (folder / "config.json").read_bytes() == before


THINKING = (
    "{% for each in messages %}{{ each.role }}:{{ each.content }};{% endfor %}{% if thinking %}<think>{% endif %}"
)


def test_corpus_is_written_with_template_arguments(target_folder, tmp_path):
    target = tmp_path / "target"
    shutil.copytree(target_folder, target)
    (target / "chat_template.jinja").write_text(THINKING, encoding="utf-8")
    corpus = tmp_path / "corpus"

    def write(*arguments):
        options = ("--rows", 2, "--max-new-tokens", 6, "--max-message-tokens", 4, "--min-distinct", 0)
        return invoke("corpus", corpus, "--target", target, *options, *arguments)

    thinking = '{"thinking": true}'
    result = write("--template-arguments", thinking)
    assert result.exit_code == 0, result.output
    tokenizer = byte_tokenizer()
    rows = read_corpus([corpus])
    assert rows and all(tokenizer.decode(row.ids[: row.a0]).endswith("<think>") for row in rows)
    assert read_manifest(corpus)["settings"]["template_arguments"] == {"thinking": True}
    for changed in ((), ("--template-arguments", '{"thinking": false}')):
        refused = write(*changed)
        assert refused.exit_code and "made with other settings (template_arguments)" in str(refused.exception)
    assert write("--template-arguments", thinking).exit_code == 0


def test_training_releases_the_target(train, monkeypatch):
    """Otherwise it would stay in GPU memory."""
    seen, read = {}, loader.weights.load_target

    def load_target(*arguments, **options):
        model, *rest = read(*arguments, **options)
        seen["target"], seen["dtype"] = weakref.ref(model), arguments[2]
        return model, *rest

    def trainer(head, *_, **options):
        gc.collect()
        seen["kept"] = seen["target"]() is not None
        seen["tables"] = {head.embedding.dtype, head.output_weight.dtype}
        raise ValueError("far enough")

    # As on a GPU that supports bfloat16
    monkeypatch.setattr(train_module, "target_dtype", lambda device: torch.bfloat16)
    monkeypatch.setattr(loader.weights, "load_target", load_target)
    monkeypatch.setattr(train_module, "Trainer", trainer)
    assert "far enough" in str(train(*TRAIN).exception)
    assert not seen["kept"] and seen["dtype"] == torch.bfloat16 and seen["tables"] == {torch.float32}


@pytest.mark.parametrize("command", ["train", "corpus", "evaluate", "calibrate"])
def test_missing_gpu_is_refused_before_anything_is_read(command, target_folder, corpus_folder, tmp_path, monkeypatch):
    monkeypatch.setattr(loader.weights, "load_target", None)
    arguments = {
        "train": [corpus_folder, "--out", tmp_path / "head", "--work", tmp_path / "work", *TRAIN],
        "corpus": [tmp_path / "corpus"],
        "evaluate": ["--head", SHIPPED],
        "calibrate": [SHIPPED, corpus_folder],
    }[command]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    result = invoke(command, *arguments, "--target", target_folder, "--device", "cuda")
    assert "“cuda” is not available: no GPU is visible here" in str(result.exception)


def test_too_short_held_out_texts_are_refused_before_training(train, tmp_path):
    write_part(tmp_path / "part-00000.jsonl.gz", [Row([5, 6, 7 + n], "prompts", 0.0, 1, 1) for n in range(9)])
    result = train(*TRAIN, corpus=tmp_path)
    assert "The first 4 held-out texts are too short to evaluate a head" in str(result.exception)


def test_damaged_answer_is_written_again(tmp_path):
    model, sampling = byte_target(num_layers=1), SamplingParams(max_new_tokens=4)
    folder = AnswerFolder(model, byte_tokenizer(), "0", tmp_path, 2)
    (before,) = folder.answers_to_ids([[5, 6]], sampling)
    (path,) = tmp_path.iterdir()
    cut = path.read_bytes()[:40]
    path.unlink()
    path.write_bytes(cut)
    (after,) = folder.answers_to_ids([[5, 6]], sampling)
    assert torch.equal(before.ids, after.ids) and torch.equal(before.features, after.features)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "Give either --time-budget, in minutes, or --max-steps."),
        (("--max-steps", 3, "--fusion", "other", "--validation-rows", 4), "fusion must be one of"),
        (
            ("--max-steps", 3, "--method", "medusa", "--fusion", "decoupled"),
            "--fusion has no effect on heads for medusa",
        ),
        (("--max-steps", 3, "--init", "none", "--validation-rows", 4), "There is no draft head for"),
        (("--max-steps", 3), "12 rows and 100 are held out"),
        (("--max-steps", 3, "--resume", "--validation-rows", 4), "Nothing to resume"),
    ],
)
def test_invalid_options_are_refused_in_one_sentence(train, arguments, sentence):
    result = train(*arguments)
    assert result.exit_code != 0
    assert sentence in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--rows", 0), "must be at least 1"),
        (("--temperatures", "0,warm"), "--temperatures takes a comma list of numbers; got 'warm' in it."),
        (("--min-distinct", 2), "The smallest share of distinct 4-grams must be from 0 to 1; got 2"),
    ],
)
def test_invalid_corpus_options_are_refused_in_one_sentence(tmp_path, arguments, sentence):
    # Options are checked before anything is read: this target does not exist
    result = invoke("corpus", tmp_path / "corpus", "--target", tmp_path / "none", *arguments)
    assert result.exit_code != 0
    assert sentence in str(result.exception)


def test_training_config_gives_the_head_of_the_command(target_folder, corpus_folder, tmp_path):
    options = TrainingOptions(max_steps=2, batch_tokens=256, num_validation=4, weights=LossWeights(contrastive=0.1))
    config = train_module.TrainConfig(
        (str(corpus_folder),), str(tmp_path / "config"), str(tmp_path / "work"), options, target=str(target_folder),
        expert_width=8, draft_vocab=100, final_report=False,
    )  # fmt: skip
    head = train_module.train(config)
    folders = ("--out", tmp_path / "command", "--work", tmp_path / "work", "--target", target_folder, "--no-report")
    shape = ("--max-steps", 2, *TRAIN[2:], "--contrastive-weight", 0.1)
    succeed("train", corpus_folder, *folders, *shape)
    for name, tensor in load_head(tmp_path / "command").named_parameters():
        assert torch.equal(tensor, head.get_parameter(name).half().float()), name
