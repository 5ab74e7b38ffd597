"""A page with a fake model in its own process, for tests that end it: `python -m tests.app.serve_fake PORT PACE`."""

import sys

from app.devices.local import LocalDevice
from app.page import build as page
from app.serving.limits import Limits
from tests.app.fake import FakeGenerator, default_answer


def main() -> None:
    port, pace = int(sys.argv[1]), float(sys.argv[2])
    blocks = page.build(LocalDevice(lambda: FakeGenerator(default_answer() * 4, pace=pace)), Limits())
    page.launch(blocks, host="127.0.0.1", port=port, quiet=True)


if __name__ == "__main__":
    main()
