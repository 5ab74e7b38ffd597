"""Weights of a target by its name: their hash, and one clear sentence if they cannot be loaded."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from safetensors.torch import save_file

from jakiro.loading import registry, weights
from jakiro.loading.loader import LoadOptions, load_parts


def raising(cause):
    def unreachable(*arguments, **options):
        raise OSError("We couldn't reach it.\nSecond line. Third sentence.") from cause

    return unreachable


def test_unavailable_model_is_reported_in_one_sentence(monkeypatch):
    offline = LocalEntryNotFoundError("An error happened while trying to locate the file.\nSecond line.")
    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", raising(offline))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", Mock(side_effect=offline))
    unreachable = "could not be loaded: there is no such folder here, the Hugging Face Hub can't be reached, .*\\.$"
    with pytest.raises(ValueError, match=f"^The target model a/b {unreachable}"):
        weights.load_tokenizer("a/b")
    with pytest.raises(ValueError, match=f"^The draft head a/b {unreachable}"):
        registry.resolve(head="a/b")


def test_hash_does_not_depend_on_the_distribution_of_tensors_over_files(own_cache, tmp_path):
    tensors = {"b": torch.arange(6.0).reshape(2, 3), "a": torch.ones(4, dtype=torch.bfloat16)}
    for name in ("one", "two", "other"):
        (tmp_path / name).mkdir()
    save_file(tensors, tmp_path / "one" / "model.safetensors", metadata={"format": "pt"})
    save_file({"a": tensors["a"]}, tmp_path / "two" / "x.safetensors")
    save_file({"b": tensors["b"]}, tmp_path / "two" / "y.safetensors")
    save_file({"b": tensors["b"], "a": -tensors["a"]}, tmp_path / "other" / "model.safetensors")
    single, split, changed = (weights.weights_sha256(tmp_path / name) for name in ("one", "two", "other"))
    assert single == split != changed
    assert weights.weights_sha256(tmp_path / "one") == single
    assert len(list((tmp_path / "cache" / "hashes").iterdir())) == 3
    assert weights.weights_sha256(tmp_path) is None


@pytest.mark.parametrize("damage", ["", '{"sha256": "5f', "[]", "{}"])
def test_incomplete_hash_file_is_recomputed_with_a_warning(own_cache, damage, tmp_path, caplog):
    save_file({"a": torch.ones(4)}, tmp_path / "model.safetensors")
    digest = weights.weights_sha256(tmp_path)
    (file,) = (tmp_path / "cache" / "hashes").iterdir()
    content = file.read_text()
    file.write_text(damage)
    assert weights.weights_sha256(tmp_path) == digest and file.read_text() == content
    assert caplog.messages == [f"The stored hash in {file} is damaged or incomplete; hashing the weights again."]
    assert weights.weights_sha256(tmp_path) == digest and len(caplog.messages) == 1


def refused_by_the_hub(kind, status):
    """Return the error that the Hub's client raises for a response with this status."""
    response = SimpleNamespace(headers={}, status_code=status, request=None)
    return kind(f"{status} Client Error.", response=response)


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        (
            refused_by_the_hub(GatedRepoError, 403),
            "it is gated; request access on https://huggingface.co/meta-llama/Ll",
        ),
        (refused_by_the_hub(RepositoryNotFoundError, 404), "the Hugging Face Hub has no such model, or it is private"),
        (refused_by_the_hub(HfHubHTTPError, 401), "the Hugging Face Hub rejects the token; correct HF_TOKEN, or"),
    ],
    ids=["gated", "missing", "token"],
)
def test_gated_and_missing_models_explain_how_to_obtain_them(cause, words, monkeypatch):
    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", raising(cause))
    with pytest.raises(ValueError) as caught:
        load_parts(LoadOptions("llama2-chat-7b", "none", "cpu", "float32"))
    assert words in str(caught.value) and "“hf auth login”" in str(caught.value) and "\n" not in str(caught.value)


def test_revision_is_sent_to_the_hub_and_a_wrong_one_is_named(monkeypatch):
    requests = []

    def unknown(source, **options):
        requests.append((source, options["revision"]))
        raise OSError("something long.") from refused_by_the_hub(RevisionNotFoundError, 404)

    monkeypatch.setattr("transformers.AutoConfig.from_pretrained", unknown)
    with pytest.raises(ValueError, match="no such revision of it; check the part after “@” in a/b@refs/pr/1"):
        weights.load_config("a/b@refs/pr/1")
    with pytest.raises(ValueError, match="no such revision"):
        weights.load_config("a/b")
    assert requests == [("a/b", "refs/pr/1"), ("a/b", "main")]


def test_offline_mode_is_named(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr(
        "transformers.AutoConfig.from_pretrained", raising(LocalEntryNotFoundError("Not in the cache."))
    )
    with pytest.raises(ValueError, match="aren't in the local cache, and HF_HUB_OFFLINE forbids downloading them"):
        weights.load_config("a/b")
