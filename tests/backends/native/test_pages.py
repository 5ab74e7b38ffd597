"""Memory for weights: separate addresses, and release after use."""

import mmap
import weakref

import pytest
import torch

from jakiro.backends.native import pages

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int8)

pytestmark = pytest.mark.skipif(not hasattr(mmap, "MAP_ANONYMOUS"), reason="no anonymous memory maps")


@pytest.fixture
def chunks(monkeypatch):
    """Return weak references to all allocated memory, in small chunks."""
    monkeypatch.setattr(pages, "_rest", torch.empty(0, dtype=torch.uint8))
    monkeypatch.setattr(pages, "_CHUNK", 2**16)
    references = []

    class Memory(mmap.mmap):
        def __init__(self, *_, **__) -> None:
            references.append(weakref.ref(self))

    monkeypatch.setattr(pages.mmap, "mmap", Memory)
    return references


def test_weights_share_chunks_and_keep_their_numbers(chunks):
    weights = [torch.randn(shape).to(dtype) for shape in ((3, 5), (70, 33), (200, 300), (1, 1)) for dtype in DTYPES]
    copies = [pages.in_large_pages(weight) for weight in weights]
    for weight, copy in zip(weights, copies, strict=True):
        assert torch.equal(copy, weight) and copy.dtype == weight.dtype and copy.data_ptr() % 64 == 0
    assert 1 < len(chunks) < len(weights)


def test_memory_is_released_with_its_last_weight(chunks):
    first, second = (pages.in_large_pages(torch.ones(2**12)) for _ in range(2))
    later = pages.in_large_pages(torch.ones(2**14))
    assert len(chunks) == 2
    del first
    assert chunks[0]() is not None
    del second
    assert chunks[0]() is None and torch.equal(later, torch.ones(2**14))


def test_weights_are_stored_on_systems_without_large_pages(monkeypatch):
    class Memory(mmap.mmap):
        def madvise(self, *_) -> None:
            raise OSError("no such pages")

    monkeypatch.setattr(pages, "_rest", torch.empty(0, dtype=torch.uint8))
    monkeypatch.setattr(pages.mmap, "mmap", Memory)
    assert torch.equal(pages.in_large_pages(torch.arange(5)), torch.arange(5))
