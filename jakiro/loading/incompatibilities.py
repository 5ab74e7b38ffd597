"""Why a model did not load, in one sentence that says what to do."""

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
    """The first names of a long list, and how many more there are."""
    more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


@contextmanager
def one_sentence(what: str, source: str, part: str) -> Iterator[None]:
    """Around whatever reads a part of a model with other people's code, which raises what it likes.

    Args:
        what: "target model" or "draft head".
        source: its Hub id or folder.
        part: what is read: "config", "tokenizer", "weights".

    Raises:
        ValueError: in one sentence, whatever was raised, unless memory ran out or the start was cancelled.
    """
    try:
        yield
    except Cancelled:
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ValueError(f"The {what} {source} could not be loaded: {_why(source, part, error)}.") from error


def _why(source: str, part: str, error: Exception) -> str:
    # transformers wraps the Hub's own errors
    causes = list(_causes(error))
    local = Path(source).exists()
    said = None if local else _of_the_hub(source, causes)
    if said is not None:
        return said
    # An ordinary ValueError: its advice is to pass this argument
    if "trust_remote_code" in str(error):
        return (
            "it needs Python code of its own, which Jakiro never runs; choose a model whose architecture and tokenizer "
            "transformers has"
        )
    refused = next((each for each in causes if isinstance(each, OSError) and each.errno in _UNWRITABLE), None)
    if refused is not None and not local:
        return (
            f"the download cannot be written to {refused.filename or 'the cache'}: {os.strerror(refused.errno)}; "
            "free space there, allow this user to write, or name another folder in HF_HOME"
        )
    reason = reason_of(error)
    if isinstance(error, ImportError):
        command = re.search(r"pip install (?:-\S+ )*[\w.\[\]-]+", str(error))
        install = f"run “{command[0]}”" if command else "install it"
        return f"it needs a package that is not installed ({reason}); {install}, or choose weights that need none"
    return f"its {part} cannot be read ({reason}); fetch or copy its files again, or choose another model"


def _of_the_hub(source: str, causes: list[BaseException]) -> str | None:
    """What huggingface_hub's own errors mean; None where there are none of those known here."""
    from httpx2 import TransportError
    from huggingface_hub import constants, errors

    def among(*kinds) -> BaseException | None:
        return next((cause for cause in causes if isinstance(cause, kinds)), None)

    if among(errors.GatedRepoError):
        return (
            f"it is gated; ask for access on https://huggingface.co/{source.partition('@')[0]}, then run “hf auth "
            "login” here with an account that has it, or put its token into HF_TOKEN"
        )
    if among(errors.RevisionNotFoundError):
        return f"the Hugging Face Hub has no such revision of it; check what stands after “@” in {source}"
    if among(errors.RepositoryNotFoundError):
        return (
            "there is no such folder here, and the Hugging Face Hub has no such model, or it is private; check the "
            "name, and for a private one run “hf auth login” here, or put a token into HF_TOKEN"
        )
    refused = among(errors.HfHubHTTPError)
    if refused is not None and getattr(refused.response, "status_code", None) == HTTPStatus.UNAUTHORIZED:
        return "the Hugging Face Hub rejects the token; correct HF_TOKEN, or run “hf auth login” here again"
    if among(errors.RemoteEntryNotFoundError):
        return "its repository lacks a file that a model needs; choose one with config.json and weights"
    if constants.HF_HUB_OFFLINE and among(errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError):
        return "its files aren't in the local cache, and HF_HUB_OFFLINE forbids downloading them; unset it or copy them"
    if among(TransportError):
        return "the Hugging Face Hub can't be reached, or the connection broke; start again to go on where it ended"
    if among(errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        return (
            "there is no such folder here, the Hugging Face Hub can't be reached, and the files aren't in its local "
            "cache"
        )
    return None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
