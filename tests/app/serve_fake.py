"""A page with a fake model in its own process, for tests that kill it: `python -m tests.app.serve_fake PORT PACE`."""

import sys

from app.devices.local import LocalDevice
from app.page import build as page
from tests.app.fake import FakeGenerator, default_answer


def main(port: str, pace: str) -> None:
    device = LocalDevice(lambda: FakeGenerator(default_answer() * 4, pace=float(pace)))
    page.launch(page.build(device), host="127.0.0.1", port=int(port), quiet=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
