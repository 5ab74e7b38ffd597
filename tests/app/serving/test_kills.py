"""What the next visitor sees after a process was killed, and where the cache takes nothing."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request

import pytest

from app.devices.local import LocalDevice
from app.page import build as app_page
from app.tools.load import Call, ask
from app.words import page as words
from jakiro.system import cache_folder, write_atomically
from tests.app.serving.test_flood import QUESTION
from tests.app.serving.test_held import SECONDS, any_port, state
from tests.faults import ROOT


def start(port: int, *options: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.app.serve_fake", str(port), *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for(address: str, wanted: str) -> None:
    deadline = time.monotonic() + SECONDS
    while state(address) != wanted:
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.rare
@pytest.mark.parametrize("while_it", ["loads", "answers"])
def test_after_a_kill_the_next_start_answers_at_the_same_address(while_it):
    port = any_port()
    address = f"http://127.0.0.1:{port}/"
    server = start(port, "1", "600" if while_it == "loads" else "0")
    try:
        wait_for(address, "loading" if while_it == "loads" else "ready")
        if while_it == "answers":
            assert next(iter(Call(address, "generate", QUESTION, SECONDS)))[0] == "generating"
        server.kill()
        server.wait()
        server = start(port, "0")
        wait_for(address, "ready")
        assert ask(address, "Why?", 8).update["num_tokens"] == 8
    finally:
        server.kill()
        server.wait()


CONVERT = """
import sys, time
from tests.zoo.test_embedded import written
from jakiro.zoo import embedded
def convert(gguf, folder):
    written(folder)
    print("converting", flush=True)
    time.sleep(float(sys.argv[1]))
embedded.find_gguf = lambda temporary: temporary / "model.gguf"
embedded._convert = convert
print(embedded.embedded_target(), flush=True)
"""


@pytest.mark.rare
def test_a_conversion_that_was_killed_is_made_anew_by_the_next_start(tmp_path):
    environment = os.environ | {"JAKIRO_CACHE": str(tmp_path)}
    command = [sys.executable, "-c", CONVERT]
    killed = subprocess.Popen([*command, "600"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert killed.stdout.readline() == "converting\n"
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (left,) = (tmp_path / "models").iterdir()
    after = subprocess.run([*command, "0"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS)
    assert after.stdout.splitlines()[0] == "converting", after.stderr[-2000:]
    (folder,) = (tmp_path / "models").iterdir()
    assert folder != left and after.stdout.splitlines()[1] == str(folder)
    assert (folder / "model.safetensors").is_file()


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (errno.ENOSPC, "No space left on device; free space there"),
        (errno.EROFS, "Read-only file system; allow this user to write there"),
        (None, "Not a directory; a file stands where a folder is needed, move it away"),
    ],
    ids=["full", "read-only", "a file"],
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

    blocks = app_page.build(LocalDevice(load))
    address = app_page.launch(blocks, host="127.0.0.1", wait=False, quiet=True)
    try:
        wait_for(address, "failed")
        with urllib.request.urlopen(f"{address}status", timeout=SECONDS) as answer:
            chip = json.load(answer)["chip"]
        assert chip["text"] == words.CHIP_FAILED
        assert sentence in chip["title"] and chip["title"].endswith("in JAKIRO_CACHE.")
        assert str(tmp_path) not in json.dumps(chip)
        assert ask(address, "Why?").error == chip["title"]
        with urllib.request.urlopen(address, timeout=SECONDS) as page:
            assert page.status == 200
    finally:
        blocks.close()
