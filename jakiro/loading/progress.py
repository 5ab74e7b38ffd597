"""Progress of loading weights: transformers' count of tensors is passed on to the listener."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from jakiro import progress

# Description of transformers' progress bar over tensors
_DESCRIPTION = "Loading weights"


@contextmanager
def counted() -> Iterator[None]:
    """Report transformers' count of tensors inside the block to the listener of this thread, if there is one."""
    from transformers.utils import logging

    def hook(factory, args, kwargs):
        if kwargs.get("desc") == _DESCRIPTION and args:
            args, kwargs = (_report_share(args[0]), *args[1:]), {"total": len(args[0])} | kwargs
        return factory(*args, **kwargs)

    previous = logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        logging.set_tqdm_hook(previous)


def _report_share(items: Collection) -> Iterator:
    """Yield the items; report the finished share before each item except the first."""
    for number, item in enumerate(items):
        if number:
            progress.tell(progress.READ, number / len(items))
        yield item
