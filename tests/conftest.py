"""Fixtures of the whole suite. Torch is imported by the fixtures that need it, so that other tests start quickly."""

import os
import sys

import pytest
from hypothesis import HealthCheck, settings

# Gradio takes the first free port from this one; two workers with the same first port would choose the same one
worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
os.environ.setdefault("GRADIO_SERVER_PORT", str(7860 + 100 * worker))

settings.register_profile(
    "jakiro", deadline=None, derandomize=True, print_blob=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("jakiro")


@pytest.fixture(scope="session")
def generator():
    """A tiny target with a random summed head."""
    from tests.support import tiny_generator

    return tiny_generator("summed")


@pytest.fixture(scope="session")
def scripted():
    """A tiny target whose drafter proposes the target's choice and errs in three of ten cases."""
    from tests.support import scripted_generator

    return scripted_generator()


@pytest.fixture(scope="session")
def both_passes():
    """By head: a generator whose passes grow with the text, and one with passes at fixed addresses."""
    from tests.backends.static import static_generator
    from tests.support import tiny_generator

    return {head: (tiny_generator(head), static_generator(head)) for head in ("summed", "eagle3", "dflash")}


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """Folder of a cache that only this test uses."""
    monkeypatch.setenv("JAKIRO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def without_compiled_functions(monkeypatch):
    """Select torch's operations: a GPU runs them, and the fake of CUDA graphs can replay only them."""
    from jakiro.ops import kernels

    monkeypatch.setattr("jakiro.ops.linear.native_works", lambda: False)
    monkeypatch.setattr("jakiro.ops.kernels.current", lambda: kernels.TORCH)


@pytest.fixture
def cuda(monkeypatch, without_compiled_functions):
    """A fake of CUDA graphs, see `FakeCuda`."""
    from tests.backends.fake_graphs import FakeCuda

    return FakeCuda(monkeypatch)


@pytest.fixture
def tags(tmp_path, monkeypatch, without_compiled_functions):
    """A fake GPU and a tiny pair to load onto it, see `DeviceTags`."""
    from tests.device_tags import with_a_pair

    return with_a_pair(tmp_path, monkeypatch)


@pytest.fixture
def on_a_pretended_gpu(monkeypatch, without_compiled_functions):
    """The fake GPU without a pair: tiny models that are made in this mode are stored on it."""
    from tests.device_tags import PRETENDED, pretended

    monkeypatch.setattr("tests.support.DEVICE", PRETENDED)
    return pretended(monkeypatch)


@pytest.fixture(autouse=True)
def _seeded():
    """Seed torch, if the test's module has imported it."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
