"""A local replacement for the Hugging Face Hub that can cut, corrupt or delay its responses."""

import hashlib
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub.constants

from jakiro.loading import hub_file
from jakiro.loading.hub_file import HubFile

BYTES = bytes(range(256)) * 64
COMMIT = "c0ffee" * 6 + "c0ff"
FILE = HubFile("somebody/models", "model.gguf", COMMIT, len(BYTES), hashlib.sha256(BYTES).hexdigest())


class StandIn(BaseHTTPRequestHandler):
    """Handler that serves ranges of `server.sends`.

    Each number in `server.ends` cuts one of the next responses after so many bytes. The second half of a response is
    sent as soon as `server.gate` is set.
    """

    def do_GET(self):
        server = self.server
        if "/resolve/" not in self.path:
            return self.send_error(404)
        server.asked.append((self.path, self.headers["Range"]))
        first = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
        body = server.sends[first:]
        self.send_response(206 if server.ranges else 200)
        body = body if server.ranges else server.sends
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        body = body[: server.ends.pop(0) if server.ends else None]
        self.wfile.write(body[: len(body) // 2])
        server.gate.wait(600)
        self.wfile.write(body[len(body) // 2 :])
        self.close_connection = True

    def log_message(self, *_):
        pass


@contextmanager
def stand_in_hub(monkeypatch, folder):
    """Run the replacement server instead of the Hub; caches are stored in the folder."""
    monkeypatch.setenv("JAKIRO_CACHE", str(folder / "cache"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(folder / "hub"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    server.asked, server.ends, server.sends, server.ranges, server.gate = [], [], BYTES, True, threading.Event()
    server.gate.set()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
    template = address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(hub_file, "_CHUNK_BYTES", 1024)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.gate.set()
    server.shutdown()
    server.server_close()
