"""Weight-loading progress: transformers counts tensors, this passes the share on to whoever listens."""

from collections.abc import Iterator
from contextlib import contextmanager

from jakiro import starting

_COUNTED = "Loading weights"  # what transformers calls its count over tensors


@contextmanager
def counted() -> Iterator[None]:
    """Inside this block, transformers' own count reaches the listener of this thread, if there is one."""
    if not starting.listens():
        yield
        return
    from transformers.utils import logging

    def hook(factory, args, kwargs):
        bar = factory(*args, **kwargs)
        return _Counting(bar, len(args[0])) if kwargs.get("desc") == _COUNTED and args else bar

    before = logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


class _Counting:
    """A progress bar that also tells its share."""

    def __init__(self, bar, total: int) -> None:
        self._bar, self._total = bar, total

    def __iter__(self):
        for number, item in enumerate(self._bar, start=1):
            yield item
            if number < self._total:
                starting.tell(starting.READ, number / self._total)

    def __getattr__(self, name: str):
        return getattr(self._bar, name)
