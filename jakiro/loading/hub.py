"""Names on the Hugging Face Hub, with a revision where one is asked for, and fetching what a draft head needs.

Importing this module loads nothing; huggingface_hub is imported by the functions that need it.
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
    """Whether a name has the form owner/model or owner/model@revision."""
    return _HUB_ID.fullmatch(name) is not None


def split_revision(name: str) -> tuple[str, str | None]:
    """Hub id and revision (a branch, a tag or a commit) of owner/model@revision; None where none is named."""
    hub_id, _, revision = name.partition("@")
    return (hub_id, revision) if revision and is_hub_id(name) else (name, None)


def cached_folder(name: str) -> Path | None:
    """The folder of a repository whose config.json was fetched before."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    hub_id, revision = split_revision(name)
    try:
        found = try_to_load_from_cache(hub_id, "config.json", revision=revision)
    except HFValidationError:
        return None
    return Path(found).parent if isinstance(found, str) else None


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
def tensor_kinds(hub_id: str, revision: str) -> dict[str, dict[str, str]]:
    """The types of the tensors of a repository's safetensors files, by file and name; nothing for other weights.

    Only the files' headers are fetched.
    """
    from huggingface_hub import get_safetensors_metadata
    from huggingface_hub.errors import NotASafetensorsRepoError

    try:
        found = get_safetensors_metadata(hub_id, revision=revision).files_metadata
    except NotASafetensorsRepoError:
        return {}
    return {file: {name: one.dtype for name, one in held.tensors.items()} for file, held in found.items()}


def fetch_head(name: str) -> Path:
    """The folder of a draft head: its config.json, and of its weights the first of `WEIGHTS_NAMES` that there are.

    What is cached needs no network.

    Raises:
        ValueError: in one sentence, why it cannot be fetched, or that its config names a kind that is not run here.
    """
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    require_hub(name)
    hub_id, revision = split_revision(name)
    with one_sentence("draft head", name, "files"):
        config = Path(hf_hub_download(hub_id, "config.json", revision=revision))
        # A cache's folders are called by their commits: the weights come from the same one
        folder, commit = config.parent, config.parent.name
    _refuse_other_kinds(config)
    with one_sentence("draft head", name, "files"):
        # What was fetched of this commit is what there is
        for weights in [each for each in WEIGHTS_NAMES if (folder / each).is_file()] or WEIGHTS_NAMES:
            try:
                found = Path(hf_hub_download(hub_id, weights, revision=commit))
            except LocalEntryNotFoundError:
                raise
            except EntryNotFoundError:
                continue
            for shard in shards_named_by(found) if weights.endswith(INDEX_ENDING) else ():
                hf_hub_download(hub_id, shard, revision=commit)
            return folder
    raise ValueError(
        f"The draft head {name} holds no weights; expected one of {', '.join(WEIGHTS_NAMES)} beside its config.json."
    )


def _refuse_other_kinds(config: Path) -> None:
    """Before a gigabyte is fetched for nothing."""
    from jakiro.heads.published import refuse_other_kinds

    try:
        values = json.loads(config.read_text(encoding="utf-8"))
    except ValueError:
        return  # Reading the head reports it
    if isinstance(values, dict):
        refuse_other_kinds(values)
