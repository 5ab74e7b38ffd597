"""Why a model did not load, in one sentence that says what to do."""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jakiro.system import is_out_of_memory, reason_of

_UNWRITABLE = {errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS}


@contextmanager
def one_sentence(what: str, source: str, part: str) -> Iterator[None]:
    """Around whatever reads a part of a model with other people's code, which raises what it likes.

    Args:
        what: "target model" or "draft head".
        source: its Hub id or folder.
        part: what is read: "config", "tokenizer", "weights".

    Raises:
        ValueError: in one sentence, whatever was raised, unless memory ran out.
    """
    try:
        yield
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ValueError(f"The {what} {source} could not be loaded: {_why(source, part, error)}.") from error


def _why(source: str, part: str, error: Exception) -> str:
    from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

    # transformers wraps the Hub's own errors
    causes = list(_causes(error))
    if any(isinstance(cause, GatedRepoError) for cause in causes):
        return (
            f"it is gated; ask for access on https://huggingface.co/{source}, then run “hf auth login” here with an "
            "account that has it"
        )
    if any(isinstance(cause, RepositoryNotFoundError) for cause in causes):
        return (
            "there is no such folder here, and the Hugging Face Hub has no such model, or it is private; check the "
            "name, and for a private one run “hf auth login” here"
        )
    # An ordinary ValueError: its advice is to pass this argument
    if "trust_remote_code" in str(error):
        return (
            "it needs Python code of its own, which Jakiro never runs; choose a model whose architecture and tokenizer "
            "transformers has"
        )
    local = Path(source).is_dir()
    refused = next((each for each in causes if isinstance(each, OSError) and each.errno in _UNWRITABLE), None)
    if refused is not None and not local:
        return (
            f"what is fetched cannot be written to {refused.filename or 'the cache'}: {os.strerror(refused.errno)}; "
            "free space there, allow this user to write, or name another folder in HF_HOME"
        )
    reason = reason_of(error)
    if "connect" in reason.lower() and not local:
        return (
            "there is no such folder here, the Hugging Face Hub can't be reached, and the files aren't in its local "
            "cache"
        )
    if isinstance(error, ImportError):
        command = re.search(r"pip install (?:-\S+ )*[\w.\[\]-]+", str(error))
        install = f"run “{command[0]}”" if command else "install it"
        return f"it needs a package that is not installed ({reason}); {install}, or choose weights that need none"
    return f"its {part} cannot be read ({reason}); fetch or copy its files again, or choose another model"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
