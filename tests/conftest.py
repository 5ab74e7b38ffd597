"""Fixtures for the whole suite; what they are made of is in support.py."""

import os

import pytest
import torch
from hypothesis import HealthCheck, settings

from jakiro.ops import kernels
from tests.support import scripted_generator, tiny_generator

# Gradio takes the first free port from this one on; workers that looked from the same one on would find it together
worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
os.environ.setdefault("GRADIO_SERVER_PORT", str(7860 + 100 * worker))

settings.register_profile(
    "jakiro", deadline=None, derandomize=True, print_blob=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("jakiro")


@pytest.fixture(scope="session")
def generator():
    """A tiny target with a random summed head."""
    return tiny_generator("summed")


@pytest.fixture(scope="session")
def scripted():
    """A tiny target whose drafter proposes its own choice and errs three times in ten."""
    return scripted_generator()


@pytest.fixture(scope="session")
def both_passes():
    """By head: passes that grow with the text, compiled where they can be, and passes at fixed addresses."""
    from tests.backends.static import static_generator

    return {head: (tiny_generator(head), static_generator(head)) for head in ("summed", "eagle3", "dflash")}


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """The folder of a cache that is the test's own."""
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def without_compiled_functions(monkeypatch):
    """Torch's operations alone: what slots run on a GPU, and what a recorder in CUDA's place can repeat."""
    monkeypatch.setattr("jakiro.ops.linear.native_works", lambda: False)
    monkeypatch.setattr("jakiro.ops.kernels.current", lambda: kernels.TORCH)


@pytest.fixture
def cuda(monkeypatch, without_compiled_functions):
    """What stands in for CUDA's captures, see `FakeCuda`."""
    from tests.backends.fake_graphs import FakeCuda

    return FakeCuda(monkeypatch)


@pytest.fixture
def tags(tmp_path, monkeypatch, without_compiled_functions):
    """A pretended GPU and a tiny pair to load onto it, see `DeviceTags`."""
    from tests.device_tags import with_a_pair

    return with_a_pair(tmp_path, monkeypatch)


@pytest.fixture
def on_a_pretended_gpu(monkeypatch, without_compiled_functions):
    """The same without a pair: tiny models that are made inside of the mode lie on the pretended GPU."""
    from tests.device_tags import PRETENDED, pretended

    monkeypatch.setattr("tests.support.DEVICE", PRETENDED)
    return pretended(monkeypatch)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
