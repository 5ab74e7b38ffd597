"""Heads and files of the Hub, downloads replaced: what is fetched, resumed, refused, and the target a head brings."""

import json
import os
import shutil

import huggingface_hub
import pytest
import torch
from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError
from safetensors.torch import save_file

from jakiro.heads.checkpoint import head_sha256, load_head
from jakiro.loading import registry, weights
from jakiro.progress import FETCH, Cancelled, reporting_to
from tests.heads.test_foreign import official_config, official_tensors, write_folder
from tests.stand_in_hub import BYTES, COMMIT, FILE, stand_in_hub


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
    pair = registry.resolve("vicuna-7b-v1.3")
    name = "Hhaiduo/Jakiro-Vicuna-7B-v1.3"
    assert pair.head_name == name and load_head(pair.head_path).config.contrastive
    weights = ("head.safetensors", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
    assert asked == [(name, "config.json", None), *((name, each, "c0ffee") for each in weights)]
    del asked[:]
    registry.resolve("vicuna-7b-v1.3")
    assert asked == [(name, "config.json", None), (name, "pytorch_model.bin", "c0ffee")]


@pytest.mark.parametrize(
    ("index_name", "ending", "save"),
    [("model.safetensors.index.json", ".safetensors", save_file), ("pytorch_model.bin.index.json", ".bin", torch.save)],
)
def test_a_head_in_shards_is_fetched_whole_and_is_the_same_head(hub, index_name, ending, save):
    (folder, asked), tensors = hub, official_tensors("jakiro")
    whole = write_folder(folder.parent / "whole", tensors, official_config())
    names = sorted(tensors)
    folder.mkdir()
    for shard, held in {f"a{ending}": names[::2], f"b{ending}": names[1::2]}.items():
        save({name: tensors[name] for name in held}, folder / shard)
    shards = {name: f"{'ab'[number % 2]}{ending}" for number, name in enumerate(names)}
    (folder / index_name).write_text(json.dumps({"weight_map": shards}))
    shutil.copy(whole / "config.json", folder)
    pair = registry.resolve("vicuna-7b-v1.3", "somebody/head")
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
        registry.resolve(head="somebody/head")
    assert [file for _, file, _ in asked] == ["config.json"]


def test_a_repository_without_weights_and_one_that_is_not_whole_in_the_cache(hub, monkeypatch):
    folder, _ = hub
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(official_config()))
    with pytest.raises(ValueError, match="The draft head somebody/head holds no weights; expected one of head"):
        registry.resolve(head="somebody/head")

    def offline(repo_id, filename, revision=None):
        if filename != "config.json":
            raise LocalEntryNotFoundError("not in the cache")
        return str(folder / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(ValueError, match="can't be reached, and the files aren't in its local cache"):
        registry.resolve(head="somebody/head")


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
    pair = registry.resolve(head=str(folder) if where == "folder" else "somebody/head")
    assert (pair.target_name, pair.target_path_or_hub_id) == ("somebody/target", "somebody/target")
    assert pair.head_path == folder.parent / ("c0ffee" if where == "Hub" else "repository")


@pytest.fixture
def stand_in(monkeypatch, tmp_path):
    with stand_in_hub(monkeypatch, tmp_path) as server:
        yield server


def test_a_file_is_fetched_once_from_its_commit_and_its_bytes_are_told(stand_in):
    told = []
    assert FILE.cached_path is None
    with reporting_to(lambda *said: told.append(said)):
        found = FILE.fetch()
    assert found.read_bytes() == BYTES and found == FILE.download_path == FILE.cached_path
    assert stand_in.asked == [(f"/somebody/models/resolve/{COMMIT}/model.gguf", "bytes=0-")]
    counted = [share for step, share, total in told if step == FETCH and total == len(BYTES)]
    assert len(counted) == 16 and counted == sorted(counted) and counted[-1] == 1
    assert FILE.fetch() == found and len(stand_in.asked) == 1


def test_a_cut_download_says_so_and_the_next_start_goes_on_where_it_ended(stand_in):
    stand_in.ends = [5000]
    with pytest.raises(ValueError, match=r"the connection broke; start again.*put model\.gguf \(16,384 bytes\) into"):
        FILE.fetch()
    assert FILE.cached_path is None
    assert FILE.fetch().read_bytes() == BYTES
    first = int(stand_in.asked[1][1].removeprefix("bytes=").removesuffix("-"))
    assert 0 < first <= 5000


def test_a_server_that_knows_no_ranges_sends_it_whole(stand_in):
    stand_in.ends, stand_in.ranges = [5000], False
    with pytest.raises(ValueError):
        FILE.fetch()
    assert FILE.fetch().read_bytes() == BYTES


@pytest.mark.parametrize("sends", [BYTES[:-1] + b"x", BYTES + b"x", b"x" + BYTES])
def test_other_bytes_than_expected_are_refused_and_not_kept(stand_in, sends):
    stand_in.sends = sends
    with pytest.raises(ValueError, match="is not the expected file"):
        FILE.fetch()
    assert FILE.cached_path is None
    stand_in.sends = BYTES
    assert FILE.fetch().read_bytes() == BYTES


def test_a_damaged_file_of_the_right_size_is_fetched_again(stand_in):
    FILE.download_path.parent.mkdir(parents=True)
    FILE.download_path.write_bytes(b"x" * len(BYTES))
    assert FILE.fetch().read_bytes() == BYTES


def test_a_listener_that_gives_up_ends_the_download_and_what_came_stays(stand_in):
    def give_up(step, share, total):
        if total and share > 0.5:
            raise Cancelled

    with pytest.raises(Cancelled), reporting_to(give_up):
        FILE.fetch()
    assert FILE.cached_path is None
    assert FILE.fetch().read_bytes() == BYTES
    assert stand_in.asked[1][1] != "bytes=0-"


def test_no_network_is_one_sentence_that_says_where_the_file_belongs(stand_in):
    stand_in.shutdown()
    stand_in.server_close()
    with pytest.raises(ValueError, match=r"Hub can't be reached.*put model\.gguf .* into .*models\."):
        FILE.fetch()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_a_full_disk_is_one_sentence(stand_in):
    FILE.download_path.parent.mkdir(parents=True)
    FILE.download_path.with_name("model.gguf.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="free space there, or name another folder for the cache in JAKIRO_CACHE"):
        FILE.fetch()


def test_the_known_file_is_a_target_by_its_name_wherever_it_lies(stand_in):
    entry = registry.ENTRIES["qwen2.5-coder-0.5b-instruct"]
    pair = registry.resolve("qwen2.5-coder-0.5b-instruct", registry.NO_HEAD)
    assert pair.target_path_or_hub_id == str(entry.file.download_path)
    assert (
        registry.file_of("qwen2.5-coder-0.5b-instruct") is entry.file
        and registry.file_of(registry.DEFAULT_TARGET) is None
    )


@pytest.fixture
def without_hub(monkeypatch, tmp_path):
    """No network: requests fail, and are counted."""
    requests = []

    class Session:
        def head(self, url: str, **options) -> None:
            requests.append(url)
            raise OSError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: pytest.fail("a download was tried"))
    monkeypatch.chdir(tmp_path)
    return requests


def test_without_a_network_a_mistyped_folder_fails_after_one_request(without_hub, tmp_path):
    for load in (weights.load_config, lambda name: registry.resolve(head=name)):
        del without_hub[:]
        with pytest.raises(ValueError, match="there is no such folder here") as caught:
            load("runs/hed")
        assert len(without_hub) == 1
        assert f"the nearest existing folder is {tmp_path}" in str(caught.value) and "\n" not in str(caught.value)
