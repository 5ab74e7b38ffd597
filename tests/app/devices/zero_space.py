"""A page on ZeroGPU in its own process: `python -m tests.app.devices.zero_space PORT FOLDER`.

The package `spaces` finds no torch, so it moves nothing to a GPU, and the forked process computes on the CPU. The
variable SPACES_ZERO_DEVICE_API_URL names the test's scheduler. Steps are slow, so that a test can act in the middle of
an answer.
"""

import sys
import time
from pathlib import Path

STEP_SECONDS = 0.1
SECONDS_ASKED = 60


def main() -> None:
    sys.modules["torch"] = None
    import spaces

    del sys.modules["torch"]
    from app.devices import zero
    from app.page import build as page
    from app.serving.limits import Limits
    from jakiro.loading import loader
    from jakiro.models.target import TargetModel

    port, folder = int(sys.argv[1]), Path(sys.argv[2])
    zero.seconds_for = lambda *_: SECONDS_ASKED
    score = TargetModel.score

    def slow_score(*arguments, **options):
        time.sleep(STEP_SECONDS)
        return score(*arguments, **options)

    TargetModel.score = slow_score
    options = loader.LoadOptions(
        str(folder / "target"), str(folder / "head"), "cpu", "float32", "exact", graphs=False, capture_at_load=False
    )
    device = zero.ZeroDevice(lambda: loader.read_pair(options), spaces.GPU, device="cpu")
    page.launch(page.build(device, Limits()), host="127.0.0.1", port=port, quiet=True)


if __name__ == "__main__":
    main()
