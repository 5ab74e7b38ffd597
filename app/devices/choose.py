"""Which device runs the answers: one in this process, a borrowed GPU on ZeroGPU, or workers of a Ray cluster."""

import argparse
import importlib.util
from collections.abc import Callable

from app.devices import zero as zero_device
from app.devices.base import Device
from app.devices.local import LocalDevice
from app.words import page as words
from jakiro.drafting.base import Method


def device_for(
    arguments: argparse.Namespace, load_generator: Callable[[], object], methods: tuple[Method, ...] = ()
) -> Device:
    """The device that the command line asks for, or that this machine is; nothing is loaded yet.

    Args:
        load_generator: loads the pair into this process, for the device that is here.
        methods: further drafting methods; workers of a cluster have been started with theirs.

    Raises:
        ValueError: workers asked for without Ray.
    """
    if arguments.workers:
        if importlib.util.find_spec("ray") is None:
            raise ValueError(words.RAY_MISSING)
        if arguments.template_arguments:
            raise ValueError(words.RAY_TEMPLATE_ARGUMENTS)
        from app.devices.ray_device import RayDevice

        return RayDevice(arguments.workers)
    if not zero_device.is_here():
        return LocalDevice(load_generator)
    # Spaces prepares torch for processes without a GPU when its package is imported
    import spaces

    def read_pair():
        from jakiro.zoo import loading

        dtype = arguments.dtype or zero_device.DTYPE
        pair = (arguments.target, arguments.head)
        options = loading.LoadOptions(
            *pair, "cpu", dtype, arguments.numerics, "full", capture_at_load=False, methods=methods,
            template_arguments=arguments.template_arguments,
        )  # fmt: skip
        return loading.read_pair(options)

    return zero_device.ZeroDevice(read_pair, spaces.GPU)
