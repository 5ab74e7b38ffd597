"""Draft heads of the Hub, downloads replaced: what is fetched and what is not, and the target that a head brings."""

import json
import shutil

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from safetensors.torch import load_file, save_file

from jakiro.heads.checkpoint import head_sha256, load_head
from jakiro.zoo import table as zoo
from tests.heads.test_foreign import official_config, official_tensors, write_folder


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A repository's folder, its files cached as of commit c0ffee; what is asked for is listed: id, file, revision."""
    folder, cache, asked = tmp_path / "repository", tmp_path / "c0ffee", []
    cache.mkdir()

    def download(repo_id, filename, revision=None):
        asked.append((repo_id, filename, revision))
        if not (folder / filename).is_file():
            raise EntryNotFoundError(f"404: {filename}")
        return shutil.copy(folder / filename, cache / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return folder, asked


def test_config_comes_first_then_weights_of_its_commit(hub):
    folder, asked = hub
    write_folder(folder, official_tensors("jakiro"), official_config(), "pytorch_model.bin")
    pair = zoo.resolve("vicuna-7b-v1.3")
    name = "Hhaiduo/Jakiro-Vicuna-7B-v1.3"
    assert pair.head_name == name and load_head(pair.head_path).config.contrastive
    weights = ("head.safetensors", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
    assert asked == [(name, "config.json", None), *((name, each, "c0ffee") for each in weights)]
    del asked[:]
    zoo.resolve("vicuna-7b-v1.3")
    assert asked == [(name, "config.json", None), (name, "pytorch_model.bin", "c0ffee")]


def sharded(folder, index_name, ending, save):
    """Writes a head in two shards beside its config; returns its folder in one file."""
    whole = write_folder(folder.parent / "whole", official_tensors("jakiro"), official_config(), "model.safetensors")
    tensors = load_file(whole / "model.safetensors")
    names = sorted(tensors)
    shards = {f"a{ending}": names[::2], f"b{ending}": names[1::2]}
    folder.mkdir()
    for shard, held in shards.items():
        save({name: tensors[name] for name in held}, folder / shard)
    index = {"weight_map": {name: shard for shard, held in shards.items() for name in held}}
    (folder / index_name).write_text(json.dumps(index))
    (folder / "config.json").write_text((whole / "config.json").read_text())
    return whole


@pytest.mark.parametrize(
    ("index_name", "ending", "save"),
    [("model.safetensors.index.json", ".safetensors", save_file), ("pytorch_model.bin.index.json", ".bin", torch.save)],
)
def test_a_head_in_shards_is_fetched_whole_and_is_the_same_head(hub, index_name, ending, save):
    folder, asked = hub
    whole = sharded(folder, index_name, ending, save)
    pair = zoo.resolve("vicuna-7b-v1.3", "somebody/head")
    assert [file for _, file, _ in asked[-3:]] == [index_name, f"a{ending}", f"b{ending}"]
    came, expected = (load_head(each).state_dict() for each in (pair.head_path, whole))
    assert came.keys() == expected.keys() and all(came[name].equal(expected[name]) for name in came)
    before = head_sha256(pair.head_path)
    save({"other": came["fc.weight"]}, pair.head_path / f"b{ending}")
    assert head_sha256(pair.head_path) != before
    (pair.head_path / f"b{ending}").unlink()
    with pytest.raises(ValueError, match=f"b{ending}, which {index_name} names, is missing"):
        load_head(pair.head_path)


def test_a_kind_that_is_not_run_is_refused_before_its_weights_are_fetched(hub):
    folder, asked = hub
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"speculators_model_type": "peagle"}))
    with pytest.raises(ValueError, match="a P-EAGLE head, which Jakiro does not run"):
        zoo.resolve(head="somebody/head")
    assert [file for _, file, _ in asked] == ["config.json"]


def test_a_repository_without_weights_and_one_that_is_not_whole_in_the_cache(hub, monkeypatch):
    folder, _ = hub
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(official_config()))
    with pytest.raises(ValueError, match="The draft head somebody/head holds no weights; expected one of head"):
        zoo.resolve(head="somebody/head")

    def offline(repo_id, filename, revision=None):
        if filename != "config.json":
            raise LocalEntryNotFoundError("not in the cache")
        return str(folder / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(ValueError, match="can't be reached, and the files aren't in its local cache"):
        zoo.resolve(head="somebody/head")


@pytest.mark.parametrize(
    "values",
    [
        {"target_name": "somebody/target"},
        official_config()
        | {"speculators_model_type": "eagle3", "speculators_config": {"verifier": {"name_or_path": "somebody/target"}}},
    ],
    ids=["ours", "speculators"],
)
@pytest.mark.parametrize("where", ["folder", "Hub"])
def test_a_head_alone_brings_the_target_that_its_config_names(where, values, hub):
    folder, _ = hub
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "model.safetensors").touch()
    pair = zoo.resolve(head=str(folder) if where == "folder" else "somebody/head")
    assert (pair.target_name, pair.target_path_or_hub_id) == ("somebody/target", "somebody/target")
    assert pair.head_path == folder.parent / ("c0ffee" if where == "Hub" else "repository")


def test_a_target_that_a_head_names_and_nobody_has_is_said(hub):
    folder, _ = hub
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"target_name": "/no/such"}))
    with pytest.raises(
        ValueError, match=r"no folder /no/such .* The draft head .*repository names this target; give one"
    ):
        zoo.resolve(head=str(folder))


@pytest.mark.parametrize(
    ("head", "target"),
    [
        ("yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "meta-llama/Llama-3.1-8B-Instruct"),
        ("RedHatAI/Qwen3-8B-speculator.eagle3", "Qwen/Qwen3-8B"),
        ("z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_the_table_knows_today_s_pairs(head, target, monkeypatch, tmp_path):
    monkeypatch.setattr(zoo, "fetch_head", lambda name: tmp_path / name)
    assert zoo.resolve(head=head).target_path_or_hub_id == target
