"""Fixtures of the test suite; their helpers are in support.py.

Torch is imported by the fixtures that need it, so that other tests start quickly.
"""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

# Gradio uses the first free port from here; each worker has its own range, so that two never choose the same port
worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
os.environ.setdefault("GRADIO_SERVER_PORT", str(7860 + 100 * worker))

settings.register_profile(
    "jakiro", deadline=None, derandomize=True, print_blob=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("jakiro")


@pytest.fixture(scope="session")
def generator():
    """Return a generator of a tiny target with a random summed head."""
    from tests.support import tiny_generator

    return tiny_generator("summed")


@pytest.fixture(scope="session")
def scripted():
    """Return a generator whose drafter proposes the target's choice and errs in 30 % of the cases."""
    from tests.support import scripted_generator

    return scripted_generator()


@pytest.fixture(scope="session")
def both_passes():
    """Return two generators for each head: with growing passes, compiled if possible, and with static buffers."""
    from tests.backends.static import static_generator
    from tests.support import tiny_generator

    return {head: (tiny_generator(head), static_generator(head)) for head in ("summed", "eagle3", "dflash")}


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Return the folder of a cache that only this test uses."""
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def without_compiled_functions(monkeypatch):
    """Use only torch operations, as on a GPU. The replacement for CUDA graphs can only replay these."""
    from jakiro.ops import kernels

    monkeypatch.setattr("jakiro.ops.linear.native_works", lambda: False)
    monkeypatch.setattr("jakiro.ops.kernels.current", lambda: kernels.TORCH)


@pytest.fixture
def cuda(monkeypatch, without_compiled_functions):
    """Return the replacement for CUDA graph capture, see `FakeCuda`."""
    from tests.backends.fake_graphs import FakeCuda

    return FakeCuda(monkeypatch)


@pytest.fixture
def tags(tmp_path, monkeypatch, without_compiled_functions):
    """Return a simulated GPU and a tiny pair to load onto it, see `DeviceTags`."""
    from tests.device_tags import with_a_pair

    return with_a_pair(tmp_path, monkeypatch)


@pytest.fixture
def on_a_pretended_gpu(monkeypatch, without_compiled_functions):
    """Return a simulated GPU without a pair; tiny models created inside the mode are placed on it."""
    from tests.device_tags import PRETENDED, simulate_gpu

    monkeypatch.setattr("tests.support.DEVICE", PRETENDED)
    return simulate_gpu(monkeypatch)


@pytest.fixture(autouse=True)
def _seeded():
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
