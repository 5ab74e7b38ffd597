"""The choice of the device: a model in this process, a borrowed GPU on ZeroGPU, or workers of a Ray cluster."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace

from app.devices import zero as zero_device
from app.devices.base import Device
from app.devices.local import LocalDevice
from app.words import page as words
from jakiro.loading.options import LoadOptions


def device_for(workers: str | None, options: LoadOptions, load_generator: Callable[[], object]) -> Device:
    """Return the device for this command line or machine; nothing is loaded yet.

    Args:
        workers: address of a Ray cluster; its workers were started with their own methods and arguments.
        options: the pair, for a device that reads it itself.
        load_generator: loads the pair into this process.

    Raises:
        ValueError: `workers` is set, but Ray is not installed.
    """
    if workers:
        if importlib.util.find_spec("ray") is None:
            raise ValueError(words.RAY_MISSING)
        if options.template_arguments:
            raise ValueError(words.RAY_TEMPLATE_ARGUMENTS)
        from app.devices.ray_device import RayDevice

        return RayDevice(workers)
    if not zero_device.is_here():
        return LocalDevice(load_generator)
    # Spaces prepares torch for processes without a GPU when its package is imported
    import spaces

    def read_pair():
        from jakiro.loading import loader

        cpu_options = {"device": "cpu", "dtype": options.dtype or zero_device.DTYPE, "draft_precision": "full"}
        return loader.read_pair(replace(options, **cpu_options, side_by_side=1, capture_at_load=False))

    return zero_device.ZeroDevice(read_pair, spaces.GPU)
