"""Loading another pair on the same device: next to the old one if memory allows, otherwise in place of it."""

import pytest

from app.devices.local import LocalDevice
from app.words import page as words
from jakiro.loading.placement import NoRoom


class Generator:
    """A stub of a loaded pair."""

    profile = None

    def __init__(self, name):
        self.status = {"head": None, "target": name, "notices": ["its own"]}


def device_on_a_small_gpu():
    """Return a device with memory for one pair, and a function that makes loaders of others."""
    device = LocalDevice(lambda: Generator("old"))
    device.load(lambda *_: None)

    def loader(name, fits_alone=True, error=None):
        def load():
            if device.generator is not None:
                raise NoRoom(f"{name} needs more than is free", fits_alone)
            if error is not None:
                raise error
            return Generator(name)

        return load

    return device, loader


def test_without_memory_for_two_pairs_the_old_one_is_released_first_with_a_notice():
    device, loader = device_on_a_small_gpu()
    device.swap(loader("new"), lambda *_: None)
    assert device.status["target"] == "new"
    assert device.status["notices"] == ["its own", words.SWAP_ONE_AT_A_TIME]


def test_a_pair_that_is_too_large_for_the_device_leaves_the_old_one_untouched():
    device, loader = device_on_a_small_gpu()
    before = device.generator
    with pytest.raises(NoRoom):
        device.swap(loader("larger", fits_alone=False), lambda *_: None)
    assert device.generator is before and device.status["notices"] == ["its own"]


def test_the_old_pair_is_loaded_again_where_the_other_one_fails_in_its_place():
    device, loader = device_on_a_small_gpu()
    with pytest.raises(ValueError, match="no such file"):
        device.swap(loader("broken", error=ValueError("no such file")), lambda *_: None)
    assert device.status["target"] == "old"
