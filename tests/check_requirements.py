"""Installs requirements.txt alone into a new environment, starts the page there, asks one question and prints times.

Run by `make check-requirements`; PIP_CONSTRAINT may name a file that fixes torch's version, as it does on Spaces.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS, ANSWER_SECONDS = 300, 600
ASK = """
import sys
from gradio_client import Client
client = Client(sys.argv[1], verbose=False)
print(client.predict("Why is the sky blue?", max_new_tokens=8, api_name="/generate")["text"])
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = install(Path(folder))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        address = f"http://127.0.0.1:{port}/"
        environment = os.environ | {"GRADIO_SERVER_PORT": str(port), "PYTHONNOUSERSITE": "1"}
        environment.pop("PYTHONPATH", None)
        started = time.monotonic()
        page = subprocess.Popen([python, "app.py"], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        try:
            wait_for(address, page)
            say("the page answers", started)
            started = time.monotonic()
            asked = [python, "-c", ASK, address]
            text = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True, timeout=ANSWER_SECONDS).stdout
            say(f"the model is loaded and wrote “{text.strip()}”", started)
        finally:
            page.terminate()
            page.wait(60)


def install(folder: Path) -> str:
    """Path of the python that has requirements.txt and nothing else."""
    started = time.monotonic()
    venv.create(folder, with_pip=True)
    python = str(folder / ("Scripts" if os.name == "nt" else "bin") / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", "requirements.txt"], cwd=ROOT, check=True)
    say("installed", started)
    return python


def wait_for(address: str, page: subprocess.Popen) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        if page.poll() is not None:
            sys.exit(f"app.py ended by itself with {page.returncode}")
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                sys.exit(f"the page did not answer within {START_SECONDS} seconds")
            time.sleep(0.2)


def say(what: str, since: float) -> None:
    print(f"{time.monotonic() - since:6.1f} s  {what}", flush=True)  # noqa: T201 - what this program is for


if __name__ == "__main__":
    main()
