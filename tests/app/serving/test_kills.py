"""What the next visitor sees after a process was killed, and where the cache takes nothing."""

import errno
import json
import os
import urllib.request

import pytest

from app.tools.load import ask
from app.words import page as words
from jakiro.system import cache_folder, write_atomically
from tests.api.served import wait_until
from tests.app.conftest import served
from tests.app.serving.test_held import SECONDS, state


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (errno.ENOSPC, "No space left on device; free space there"),
        (None, "Not a directory; a file stands where a folder is needed, move it away"),
    ],
    ids=["full", "a file"],
)
def test_a_cache_that_takes_nothing_is_told_to_visitors_with_what_to_do(refusal, sentence, tmp_path, monkeypatch):
    """The page is up, says why there is no model, and names no folder above the cache."""
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    if refusal is None:
        (tmp_path / "cache").write_text("")

    def load():
        if refusal is not None:
            monkeypatch.setattr("pathlib.Path.write_bytes", refused)
        write_atomically(cache_folder() / "models" / "weights", b"")

    def refused(path, data):
        raise OSError(refusal, os.strerror(refusal), str(path))

    with served(load) as (_, address):
        wait_until(lambda: state(address) == "failed", SECONDS)
        with urllib.request.urlopen(f"{address}status", timeout=SECONDS) as answer:
            chip = json.load(answer)["chip"]
        assert chip["text"] == words.CHIP_FAILED
        assert sentence in chip["title"] and chip["title"].endswith("in JAKIRO_CACHE.")
        assert str(tmp_path) not in json.dumps(chip)
        assert ask(address, "Why?").error == chip["title"]
        with urllib.request.urlopen(address, timeout=SECONDS) as page:
            assert page.status == 200
