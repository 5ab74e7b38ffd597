"""Heads and files of the Hub, with replaced downloads: requests, resumption, errors, and the target of a head."""

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
    """Return a repository's folder, cached as of commit c0ffee, and the list of requests: id, file, revision."""
    folder, cache, requests = tmp_path / "repository", tmp_path / "c0ffee", []
    cache.mkdir()

    def download(repo_id, filename, revision=None):
        requests.append((repo_id, filename, revision))
        if not (folder / filename).is_file():
            raise EntryNotFoundError(f"404: {filename}")
        return shutil.copy(folder / filename, cache / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return folder, requests


def test_config_is_fetched_first_and_weights_of_the_same_commit(hub):
    folder, requests = hub
    write_folder(folder, official_tensors("jakiro"), official_config(), "pytorch_model.bin")
    pair = registry.resolve("vicuna-7b-v1.3")
    name = "Hhaiduo/Jakiro-Vicuna-7B-v1.3"
    assert pair.head_name == name and load_head(pair.head_path).config.contrastive
    weights = ("head.safetensors", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin")
    assert requests == [(name, "config.json", None), *((name, file, "c0ffee") for file in weights)]
    del requests[:]
    registry.resolve("vicuna-7b-v1.3")
    assert requests == [(name, "config.json", None), (name, "pytorch_model.bin", "c0ffee")]


@pytest.mark.parametrize(
    ("index_name", "ending", "save"),
    [("model.safetensors.index.json", ".safetensors", save_file), ("pytorch_model.bin.index.json", ".bin", torch.save)],
)
def test_sharded_head_is_fetched_completely(hub, index_name, ending, save):
    (folder, requests), tensors = hub, official_tensors("jakiro")
    complete = write_folder(folder.parent / "whole", tensors, official_config())
    names = sorted(tensors)
    folder.mkdir()
    for shard, names_in_shard in {f"a{ending}": names[::2], f"b{ending}": names[1::2]}.items():
        save({name: tensors[name] for name in names_in_shard}, folder / shard)
    shards = {name: f"{'ab'[number % 2]}{ending}" for number, name in enumerate(names)}
    (folder / index_name).write_text(json.dumps({"weight_map": shards}))
    shutil.copy(complete / "config.json", folder)
    pair = registry.resolve("vicuna-7b-v1.3", "somebody/head")
    assert [file for _, file, _ in requests[-3:]] == [index_name, f"a{ending}", f"b{ending}"]
    fetched, expected = (load_head(folder).state_dict() for folder in (pair.head_path, complete))
    assert fetched.keys() == expected.keys() and all(fetched[name].equal(expected[name]) for name in fetched)
    before = head_sha256(pair.head_path)
    save({"other": fetched["fc.weight"]}, pair.head_path / f"b{ending}")
    assert head_sha256(pair.head_path) != before
    (pair.head_path / f"b{ending}").unlink()
    with pytest.raises(ValueError, match=f"has no file b{ending}, which {index_name} lists"):
        load_head(pair.head_path)


def test_unsupported_kind_is_refused_before_its_weights_are_fetched(hub):
    folder, requests = hub
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"speculators_model_type": "peagle"}))
    with pytest.raises(ValueError, match="a P-EAGLE head, which Jakiro does not run"):
        registry.resolve(head="somebody/head")
    assert [file for _, file, _ in requests] == ["config.json"]


def test_repository_without_weights_and_incomplete_cache_are_refused(hub, monkeypatch):
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
def test_head_selects_the_target_that_its_config_names(where, values, hub):
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


def test_file_is_fetched_once_from_its_commit_with_progress(stand_in):
    reports = []
    assert FILE.cached_path is None
    with reporting_to(lambda *report: reports.append(report)):
        path = FILE.fetch()
    assert path.read_bytes() == BYTES and path == FILE.download_path == FILE.cached_path
    assert stand_in.asked == [(f"/somebody/models/resolve/{COMMIT}/model.gguf", "bytes=0-")]
    counted = [share for step, share, total in reports if step == FETCH and total == len(BYTES)]
    assert len(counted) == 16 and counted == sorted(counted) and counted[-1] == 1
    assert FILE.fetch() == path and len(stand_in.asked) == 1


def test_interrupted_download_is_reported_and_resumed_by_the_next_start(stand_in):
    stand_in.ends = [5000]
    with pytest.raises(ValueError, match=r"the connection broke; start again.*put model\.gguf \(16,384 bytes\) into"):
        FILE.fetch()
    assert FILE.cached_path is None
    assert FILE.fetch().read_bytes() == BYTES
    first = int(stand_in.asked[1][1].removeprefix("bytes=").removesuffix("-"))
    assert 0 < first <= 5000


def test_server_without_ranges_sends_the_complete_file(stand_in):
    stand_in.ends, stand_in.ranges = [5000], False
    with pytest.raises(ValueError):
        FILE.fetch()
    assert FILE.fetch().read_bytes() == BYTES


@pytest.mark.parametrize("sends", [BYTES[:-1] + b"x", BYTES + b"x", b"x" + BYTES])
def test_unexpected_bytes_are_refused_and_not_stored(stand_in, sends):
    stand_in.sends = sends
    with pytest.raises(ValueError, match="is not the expected file"):
        FILE.fetch()
    assert FILE.cached_path is None
    stand_in.sends = BYTES
    assert FILE.fetch().read_bytes() == BYTES


def test_damaged_file_of_the_right_size_is_fetched_again(stand_in):
    FILE.download_path.parent.mkdir(parents=True)
    FILE.download_path.write_bytes(b"x" * len(BYTES))
    assert FILE.fetch().read_bytes() == BYTES


def test_cancelled_download_is_resumed_later(stand_in):
    def cancel(step, share, total):
        if total and share > 0.5:
            raise Cancelled

    with pytest.raises(Cancelled), reporting_to(cancel):
        FILE.fetch()
    assert FILE.cached_path is None
    assert FILE.fetch().read_bytes() == BYTES
    assert stand_in.asked[1][1] != "bytes=0-"


def test_missing_network_is_one_sentence_with_the_folder_of_the_file(stand_in):
    stand_in.shutdown()
    stand_in.server_close()
    with pytest.raises(ValueError, match=r"Hub can't be reached.*put model\.gguf .* into .*models\."):
        FILE.fetch()


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")
def test_full_disk_is_reported_in_one_sentence(stand_in):
    FILE.download_path.parent.mkdir(parents=True)
    FILE.download_path.with_name("model.gguf.part").symlink_to("/dev/full")
    with pytest.raises(OSError, match="free space there, or name another folder for the cache in JAKIRO_CACHE"):
        FILE.fetch()


def test_known_file_is_a_target_by_its_name(stand_in):
    entry = registry.ENTRIES["qwen2.5-coder-0.5b-instruct"]
    pair = registry.resolve("qwen2.5-coder-0.5b-instruct", registry.NO_HEAD)
    assert pair.target_path_or_hub_id == str(entry.file.download_path)
    assert (
        registry.file_of("qwen2.5-coder-0.5b-instruct") is entry.file
        and registry.file_of(registry.DEFAULT_TARGET) is None
    )


@pytest.fixture
def without_hub(monkeypatch, tmp_path):
    """Make all requests fail, and return the list of requests."""
    requests = []

    class Session:
        def head(self, url: str, **options) -> None:
            requests.append(url)
            raise OSError("Name or service not known")

    monkeypatch.setattr(huggingface_hub, "get_session", Session)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: pytest.fail("a download was tried"))
    monkeypatch.chdir(tmp_path)
    return requests


def test_mistyped_folder_fails_after_one_request_without_a_network(without_hub, tmp_path):
    for load in (weights.load_config, lambda name: registry.resolve(head=name)):
        del without_hub[:]
        with pytest.raises(ValueError, match="there is no such folder here") as caught:
            load("runs/hed")
        assert len(without_hub) == 1
        assert f"the nearest existing folder is {tmp_path}" in str(caught.value) and "\n" not in str(caught.value)
