"""Names on the Hugging Face Hub, optionally with a revision, and downloads of draft heads.

Importing this module loads nothing; its functions import huggingface_hub.
"""

import functools
import json
import re
from pathlib import Path

from jakiro.heads.config import WEIGHTS_NAMES
from jakiro.heads.shards import INDEX_ENDING, shards_named_by
from jakiro.loading.incompatibilities import one_sentence
from jakiro.system import reason_of

_REACH_SECONDS = 5.0
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*(@\w[\w./-]*)?")


def is_hub_id(name: str) -> bool:
    """Return whether a name has the form owner/model or owner/model@revision."""
    return _HUB_ID.fullmatch(name) is not None


def split_revision(name: str) -> tuple[str, str | None]:
    """Return the Hub id and the revision (branch, tag or commit) of owner/model@revision; None if there is none."""
    hub_id, _, revision = name.partition("@")
    return (hub_id, revision) if revision and is_hub_id(name) else (name, None)


def cached_folder(name: str) -> Path | None:
    """Return the cache folder of a repository if its config.json was downloaded."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    hub_id, revision = split_revision(name)
    try:
        path = try_to_load_from_cache(hub_id, "config.json", revision=revision)
    except HFValidationError:
        return None
    return Path(path).parent if isinstance(path, str) else None


def require_hub(name: str) -> None:
    """Check that a model is in the local cache or that the Hub answers.

    huggingface_hub repeats a failed request for half a minute; one request with a short limit tells the same.

    Raises:
        ValueError: the model is not in the cache and the Hub cannot be reached.
    """
    from huggingface_hub import constants, get_session

    if cached_folder(name) is not None or constants.HF_HUB_OFFLINE:
        return
    try:
        get_session().head(constants.ENDPOINT, timeout=_REACH_SECONDS)
    except Exception as error:
        nearest = next(folder for folder in Path(name).parents if folder.is_dir())
        raise ValueError(
            f"{name} could not be loaded: there is no such folder here (the nearest existing folder is "
            f"{nearest.resolve()}), it is not in the local cache, and the Hugging Face Hub can't be reached "
            f"({reason_of(error)}); correct the name, or connect to the network."
        ) from error


@functools.lru_cache(maxsize=4)
def tensor_types(hub_id: str, revision: str) -> dict[str, dict[str, str]]:
    """Return the type of each tensor by file and name of a repository's safetensors files; empty for other weights.

    Only the headers of the files are downloaded.
    """
    from huggingface_hub import get_safetensors_metadata
    from huggingface_hub.errors import NotASafetensorsRepoError

    try:
        files = get_safetensors_metadata(hub_id, revision=revision).files_metadata
    except NotASafetensorsRepoError:
        return {}
    return {file: {name: info.dtype for name, info in header.tensors.items()} for file, header in files.items()}


def fetch_head(name: str) -> Path:
    """Return the folder of a draft head: its config.json and the first existing file of `WEIGHTS_NAMES`.

    A cached head needs no network.

    Raises:
        ValueError: the head cannot be downloaded, or its kind is not supported.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    from jakiro.heads.published import refuse_other_kinds

    require_hub(name)
    hub_id, revision = split_revision(name)
    with one_sentence("draft head", name, "files"):
        config = Path(hf_hub_download(hub_id, "config.json", revision=revision))
        # Cache folders are named after commits: the weights must be of the same commit
        folder, commit = config.parent, config.parent.name
    try:
        values = json.loads(config.read_text(encoding="utf-8"))
    except ValueError:
        values = None  # Loading the head reports it
    if isinstance(values, dict):
        # Before a gigabyte is downloaded for nothing
        refuse_other_kinds(values)
    with one_sentence("draft head", name, "files"):
        # If this commit has cached weights, no other name needs a request
        for weights in [file for file in WEIGHTS_NAMES if (folder / file).is_file()] or WEIGHTS_NAMES:
            try:
                path = Path(hf_hub_download(hub_id, weights, revision=commit))
            except LocalEntryNotFoundError:
                raise
            except EntryNotFoundError:
                continue
            for shard in shards_named_by(path) if weights.endswith(INDEX_ENDING) else ():
                hf_hub_download(hub_id, shard, revision=commit)
            return folder
    raise ValueError(
        f"The draft head {name} holds no weights; expected one of {', '.join(WEIGHTS_NAMES)} next to its config.json."
    )
