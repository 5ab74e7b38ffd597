"""Weight-loading progress: transformers counts tensors, this passes the share on to the listener."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from jakiro import progress

_COUNTED = "Loading weights"  # what transformers calls its count over tensors


@contextmanager
def counted() -> Iterator[None]:
    """Inside this block, transformers' own count reaches the listener of this thread, if there is one."""
    from transformers.utils import logging

    def hook(factory, args, kwargs):
        if kwargs.get("desc") == _COUNTED and args:
            args, kwargs = (_told(args[0]), *args[1:]), {"total": len(args[0])} | kwargs
        return factory(*args, **kwargs)

    before = logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        logging.set_tqdm_hook(before)


def _told(items: Collection) -> Iterator:
    """The items; before every one but the first, the share done is reported."""
    for number, item in enumerate(items):
        if number:
            progress.tell(progress.READ, number / len(items))
        yield item
