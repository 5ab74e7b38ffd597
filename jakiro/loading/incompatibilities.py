"""Errors of loading a model, each in one sentence with the remedy."""

import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

from jakiro.progress import Cancelled
from jakiro.system import is_out_of_memory, reason_of

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}


def first_of(names: Sequence[str]) -> str:
    """Return the first three names of a list, and the number of the others."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


@contextmanager
def one_sentence(kind: str, source: str, part: str) -> Iterator[None]:
    """Report any error of another library, raised inside the block, in one sentence.

    Args:
        kind: "target model" or "draft head".
        source: its Hub id or folder.
        part: the part that is read: "config", "tokenizer", "weights".

    Raises:
        ValueError: any error occurred, except those of memory and a cancelled start.
    """
    try:
        yield
    except Cancelled:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ValueError(f"The {kind} {source} could not be loaded: {_reason(source, part, error)}.") from error


def _reason(source: str, part: str, error: Exception) -> str:
    # transformers wraps the errors of the Hub
    causes = list(_causes(error))
    is_local = Path(source).exists()
    hub_reason = None if is_local else _hub_reason(source, causes)
    if hub_reason is not None:
        return hub_reason
    # transformers' ValueError, which recommends this argument
    if "trust_remote_code" in str(error):
        return (
            "it needs Python code of its own, which Jakiro never runs; choose a model with an architecture and a "
            "tokenizer of transformers"
        )
    unwritable = next((cause for cause in causes if isinstance(cause, OSError) and cause.errno in _UNWRITABLE), None)
    if unwritable is not None and not is_local:
        return (
            f"the download cannot be written to {unwritable.filename or 'the cache'}: {os.strerror(unwritable.errno)}; "
            "free space there, allow this user to write, or name another folder in HF_HOME"
        )
    reason = reason_of(error)
    if isinstance(error, ImportError):
        command = re.search(r"pip install (?:-\S+ )*[\w.\[\]-]+", str(error))
        install = f"run “{command[0]}”" if command else "install it"
        return f"it needs a package that is not installed ({reason}); {install}, or choose weights that need none"
    return f"its {part} cannot be read ({reason}); fetch or copy its files again, or choose another model"


def _hub_reason(source: str, causes: list[BaseException]) -> str | None:
    """Return the reason of an error of huggingface_hub; None if there is no known one."""
    from httpx2 import TransportError
    from huggingface_hub import constants, errors

    def find(*kinds: type) -> BaseException | None:
        return next((cause for cause in causes if isinstance(cause, kinds)), None)

    if find(errors.GatedRepoError):
        return (
            f"it is gated; request access on https://huggingface.co/{source.partition('@')[0]}, then run “hf auth "
            "login” here with an account that has it, or put its token into HF_TOKEN"
        )
    if find(errors.RevisionNotFoundError):
        return f"the Hugging Face Hub has no such revision of it; check the part after “@” in {source}"
    if find(errors.RepositoryNotFoundError):
        return (
            "there is no such folder here, and the Hugging Face Hub has no such model, or it is private; check the "
            "name, and for a private one run “hf auth login” here, or put a token into HF_TOKEN"
        )
    http_error = find(errors.HfHubHTTPError)
    if http_error is not None and getattr(http_error.response, "status_code", None) == HTTPStatus.UNAUTHORIZED:
        return "the Hugging Face Hub rejects the token; correct HF_TOKEN, or run “hf auth login” here again"
    if find(errors.RemoteEntryNotFoundError):
        return "its repository has no file that a model needs; choose one with config.json and weights"
    if constants.HF_HUB_OFFLINE and find(errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError):
        return "its files aren't in the local cache, and HF_HUB_OFFLINE forbids downloading them; unset it or copy them"
    if find(TransportError):
        return "the Hugging Face Hub can't be reached, or the connection broke; start again to go on where it ended"
    if find(errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        return (
            "there is no such folder here, the Hugging Face Hub can't be reached, and the files aren't in its local "
            "cache"
        )
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and its causes."""
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
