"""Which device runs the answers: one in this process, a borrowed GPU on ZeroGPU, or workers of a Ray cluster."""

import argparse
import importlib.util

from app import words, zero_device
from app.device import Device
from app.local_device import LocalDevice


def device_for(arguments: argparse.Namespace) -> Device:
    """The device that the command line and the surroundings ask for; nothing is loaded yet.

    Raises:
        ValueError: workers asked for without Ray.
    """
    if arguments.workers:
        if importlib.util.find_spec("ray") is None:
            raise ValueError(words.RAY_MISSING)
        from app.ray_device import RayDevice

        return RayDevice(arguments.workers)
    pair = (arguments.target, arguments.head)
    if zero_device.is_here():
        # Spaces prepares torch for processes without a GPU when its package is imported
        import spaces

        def read_pair():
            from jakiro.loading import read_pair

            return read_pair(*pair, "cpu", arguments.dtype or zero_device.DTYPE, arguments.numerics)

        return zero_device.ZeroDevice(read_pair, spaces.GPU)

    def load():
        from jakiro import JakiroGenerator

        return JakiroGenerator.from_pretrained(*pair, arguments.device, arguments.dtype, arguments.numerics)

    return LocalDevice(load)
