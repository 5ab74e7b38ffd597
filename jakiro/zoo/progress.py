"""Weight-loading progress: transformers counts tensors, this passes the share on to a listener."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_listener: ContextVar[Callable[[float], None] | None] = ContextVar("listener", default=None)
_COUNTED = "Loading weights"  # what transformers calls its count over tensors


@contextmanager
def told_to(listener: Callable[[float], None]) -> Iterator[None]:
    """Inside this block, loading in this thread tells `listener` the share of weights read, from 0 to 1."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def counted() -> Iterator[None]:
    """Inside this block, transformers' own count reaches the listener of this thread, if there is one."""
    listener = _listener.get()
    if listener is None:
        yield
        return
    from transformers.utils import logging

    def hook(factory, args, kwargs):
        bar = factory(*args, **kwargs)
        return _Counting(bar, len(args[0]), listener) if kwargs.get("desc") == _COUNTED and args else bar

    before = logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


class _Counting:
    """A progress bar that also tells its share."""

    def __init__(self, bar, total: int, listener: Callable[[float], None]) -> None:
        self._bar, self._total, self._listener = bar, total, listener

    def __iter__(self):
        for number, item in enumerate(self._bar, start=1):
            yield item
            self._listener(number / self._total)

    def __getattr__(self, name: str):
        return getattr(self._bar, name)
