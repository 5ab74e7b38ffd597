"""A page with a fake model in its own process, for tests that end it.

`python -m tests.app.serve_fake PORT PACE [SECONDS]`; the model is loaded after so many seconds.
"""

import sys
import time

from app.devices.local import LocalDevice
from app.page import build as page
from app.serving.limits import Limits
from tests.app.fake import FakeGenerator, default_answer


def main() -> None:
    port, pace, seconds = int(sys.argv[1]), *map(float, [*sys.argv[2:], "0"][:2])

    def load() -> FakeGenerator:
        time.sleep(seconds)
        return FakeGenerator(default_answer() * 4, pace=pace)

    blocks = page.build(LocalDevice(load), Limits())
    page.launch(blocks, host="127.0.0.1", port=port, quiet=True)


if __name__ == "__main__":
    main()
