"""Names of targets and draft heads, and their locations: the wheel, the user's cache, a folder or the Hub.

`weights.py` loads targets, `jakiro.heads.checkpoint` loads heads. Importing this module imports neither torch nor
transformers, so that a page can list names before a model is loaded.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from jakiro.heads.config import HeadSummary, named_target
from jakiro.loading.embedded import EMBEDDED_SHA256, EMBEDDED_TARGET, embedded_folder
from jakiro.loading.gguf_file import ggufs_in, is_gguf
from jakiro.loading.hub import fetch_head, is_hub_id, split_revision
from jakiro.loading.hub_file import HubFile
from jakiro.loading.templates import TEMPLATES
from jakiro.system import assets_folder

DEFAULT_TARGET = EMBEDDED_TARGET
DEFAULT_HEAD = f"{DEFAULT_TARGET}-decoupled"
NO_HEAD = "none"

# Names of a folder's content in a message
_MAX_NAMES = 5
# Smallest ratio of `difflib` between a mistyped name and a suggested folder
_SIMILARITY = 0.6


@dataclass(frozen=True, slots=True)
class Entry:
    """A known target.

    Attributes:
        source: Hub id of the target; None for the embedded default.
        head: name of a folder in `assets/heads`, or Hub id; None if there is no head.
        target_sha256: known `weights_sha256` of the target.
        chat_template: name of one of `TEMPLATES`, for a tokenizer without one.
        file: the GGUF file, for a target that is a file of the Hub and not a repository.
        sampling: recommended sampling settings by the names of `SamplingParams`, if it has no generation_config.json.
        other_heads: Hub ids of other heads of the target that do not name it.
    """

    source: str | None
    head: str | None
    target_sha256: str | None = None
    chat_template: str | None = None
    file: HubFile | None = None
    sampling: Mapping[str, float] = field(default_factory=dict)
    other_heads: tuple[str, ...] = ()

    @property
    def heads(self) -> tuple[str | None, ...]:
        """Names of all heads, the usual one first."""
        return self.head, *self.other_heads


def _official(target: str, head: str, chat_template: str | None = None) -> Entry:
    return Entry(source=target, head=f"Hhaiduo/{head}", chat_template=chat_template)


_CODER_FILE = HubFile(
    repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    revision="ebb2015119c907b064c512bf053e945850b5875f",
    size=491_400_064,
    sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
)
ENTRIES = {
    DEFAULT_TARGET: Entry(source=None, head=DEFAULT_HEAD, target_sha256=EMBEDDED_SHA256),
    "qwen2.5-coder-0.5b-instruct": Entry(
        source=_CODER_FILE.repository,
        head="qwen2.5-coder-0.5b-instruct-decoupled",
        target_sha256=_CODER_FILE.sha256,
        file=_CODER_FILE,
        # From generation_config.json of Qwen/Qwen2.5-Coder-0.5B-Instruct
        sampling={"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1},
    ),
    "smollm2-135m-instruct-hub": Entry(source="HuggingFaceTB/SmolLM2-135M-Instruct", head=None),
    "vicuna-7b-v1.3": _official("lmsys/vicuna-7b-v1.3", "Jakiro-Vicuna-7B-v1.3", "vicuna-v1.1"),
    "vicuna-13b-v1.3": _official("lmsys/vicuna-13b-v1.3", "Jakiro-Vicuna-13B-v1.3", "vicuna-v1.1"),
    "llama2-chat-7b": _official("meta-llama/Llama-2-7b-chat-hf", "Jakiro-LLaMA2-Chat-7B", "llama-2"),
    "llama2-chat-13b": _official("meta-llama/Llama-2-13b-chat-hf", "Jakiro-LLaMA2-Chat-13B", "llama-2"),
    "llama3-instruct-8b": _official("meta-llama/Meta-Llama-3-8B-Instruct", "Jakiro-Llama3-instruct-8b"),
    "llama3.1-instruct-8b": Entry(
        "meta-llama/Llama-3.1-8B-Instruct",
        "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B",
        other_heads=("z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",),
    ),
    "qwen3-1.7b": Entry("Qwen/Qwen3-1.7B", "AngelSlim/Qwen3-1.7B_eagle3"),
    "qwen3-4b": Entry("Qwen/Qwen3-4B", "AngelSlim/Qwen3-4B_eagle3", other_heads=("z-lab/Qwen3-4B-DFlash-b16",)),
    "qwen3-8b": Entry(
        "Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3", other_heads=("z-lab/Qwen3-8B-DFlash-b16",)
    ),
    "vicuna-7b-v1.3-star": _official("lmsys/vicuna-7b-v1.3", "Jakiro_star-Vicuna-7B-v1.3", "vicuna-v1.1"),
    "vicuna-13b-v1.3-star": _official("lmsys/vicuna-13b-v1.3", "Jakiro_star-Vicuna-13B-v1.3", "vicuna-v1.1"),
    "llama2-chat-7b-star": _official("meta-llama/Llama-2-7b-chat-hf", "Jakiro_star-LLaMA2-Chat-7B", "llama-2"),
    "llama2-chat-13b-star": _official("meta-llama/Llama-2-13b-chat-hf", "Jakiro_star-LLaMA2-Chat-13B", "llama-2"),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and its draft head, with their locations.

    Attributes:
        target_path_or_hub_id: argument of transformers; the embedded default's folder exists after `load_target`.
        head_name, head_path: None if there is no head; plain decoding works without one.
    """

    target_name: str
    target_path_or_hub_id: str
    head_name: str | None
    head_path: Path | None

    def head_folder(self) -> Path:
        """Return the head's folder; raise ValueError if there is no head."""
        if self.head_path is None:
            raise ValueError(
                f"There is no draft head for {self.target_name} here; give a known name, a folder, or a Hub id."
            )
        return self.head_path


def head_names() -> list[str]:
    """Return the names of the shipped heads."""
    folder = assets_folder() / "heads"
    return sorted(path.name for path in folder.iterdir() if _is_head(path)) if folder.is_dir() else []


def resolve(target: str | None = None, head: str | None = None) -> Pair:
    """Return the target and the head of two names.

    Args:
        target: a known name, a folder with a transformers model, a GGUF file or a folder with one, or a Hub id; None
            takes the target of `head` by the registry or the head's config, otherwise the default.
        head: name of a shipped head, a folder with config.json and weights, or a Hub id; None takes the head of the
            target; "none" loads no head. A Hub id may end in a revision: owner/model@revision.

    Raises:
        ValueError: a name is unknown, or the head cannot be downloaded.
    """
    target, head = _expand_user(target), _expand_user(head)
    path = None
    if target is None:
        target, path = _target_of(head)
        try:
            source = _source_of(target)
        except ValueError as error:
            raise ValueError(f"{error} The draft head {head} names this target; give a target as well.") from error
    else:
        source = _source_of(target)
    if head == NO_HEAD:
        return Pair(target, source, None, None)
    name = head if head is not None else _head_of(target, source)
    if path is None and name is not None:
        path = _locate_head(name)
    if head is None and path is None:
        name = None
    return Pair(target, source, name, path)


def _target_of(head: str | None) -> tuple[str, Path | None]:
    """Return the target of a head, and the head's folder if its config was needed."""
    if head in (None, NO_HEAD):
        return DEFAULT_TARGET, None
    listed = listed_target(head)
    if listed is not None:
        return listed, None
    folder = _locate_head(head)
    return named_in(folder) or DEFAULT_TARGET, folder


def listed_target(head: str) -> str | None:
    """Return the registry's target of a head; None for an unknown head."""
    names = {head, split_revision(head)[0]}
    return next((name for name, entry in ENTRIES.items() if names & set(entry.heads)), None)


def named_in(folder: Path) -> str | None:
    """Return the target that the config.json of a head names, or None."""
    try:
        return named_target(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _source_of(target: str) -> str:
    """Return transformers' argument for a target: a folder, or a Hub id with its revision."""
    entry = ENTRIES.get(target)
    if entry is not None:
        file = entry.file
        return str(file.cached_path or file.download_path) if file else entry.source or str(embedded_folder())
    path = Path(target)
    gguf = _gguf_of(path)
    if gguf is not None or path.is_dir():
        return str((gguf or path).resolve())
    _refuse_missing_path(target, "target model")
    if not is_hub_id(target):
        names = ", ".join(ENTRIES)
        raise ValueError(f"Unknown target model “{target}”: neither a folder nor a Hub id; known names are {names}.")
    return target


def _gguf_of(path: Path) -> Path | None:
    """Return a GGUF file, or the GGUF file in a folder without config.json; None for any other path.

    Raises:
        ValueError: the folder has several.
    """
    if not path.is_dir():
        return path if path.is_file() and is_gguf(path) else None
    files = [] if (path / "config.json").is_file() else ggufs_in(path)
    if len(files) > 1:
        names = ", ".join(file.name for file in files[:_MAX_NAMES])
        raise ValueError(f"{path} holds several GGUF files ({names}); name one of them.")
    return files[0] if files else None


def chat_template_of(target: str) -> str | None:
    """Return the known chat template of a target, given its name or Hub id, or None."""
    target = split_revision(target)[0]
    names = (entry.chat_template for name, entry in ENTRIES.items() if target in (name, entry.source))
    return TEMPLATES.get(next(names, None))


def recommended_sampling_of(target: str) -> dict:
    """Return the registry's recommended sampling settings of a target, given its name or its file; may be empty."""
    by_file = {entry.file.name: entry for entry in ENTRIES.values() if entry.file}
    entry = ENTRIES.get(target) or by_file.get(Path(target).name)
    return dict(entry.sampling) if entry else {}


def short_name(name: str | None) -> str | None:
    """Return the public name of a model or head: the last part of a folder or file."""
    return Path(name).resolve().name if name and Path(name).exists() else name


def head_warning(head_name: str, head_target_sha256: str, target_name: str, target_sha256: str | None) -> str | None:
    """Return a message if a head was trained for other weights than the loaded ones; None if not or unknown."""
    if not head_target_sha256 or not target_sha256 or head_target_sha256 == target_sha256:
        return None
    return (
        f"The draft head “{head_name}” was trained for weights {head_target_sha256[:12]}…, but {target_name} has "
        f"{target_sha256[:12]}…; the text stays the target's own, fewer candidates may be accepted."
    )


def heads_of(target: str) -> dict[str, tuple[Path, HeadSummary]]:
    """Return folder and config of the shipped heads of a target by name, the registry's head first."""
    entry = ENTRIES.get(target)
    target_names = (target, entry.source if entry else None)
    names = sorted(head_names(), key=lambda name: entry is None or name != entry.head)
    heads = {name: (_shipped_folder(name), config_of(name)) for name in names}
    return {name: (folder, config) for name, (folder, config) in heads.items() if config.target_name in target_names}


def config_of(name: str) -> HeadSummary:
    """Return the summary of a shipped head's config."""
    return HeadSummary.of(json.loads((_shipped_folder(name) / "config.json").read_text(encoding="utf-8")))


def manifest_of(folder: Path) -> dict:
    """Return a head's manifest; empty if there is none."""
    path = folder / "manifest.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


HEAD_MINUTES = "{title} {minutes} min"
UNEQUAL_HEADS = (
    "The heads were not trained equally long ({heads}) or on the same text, so this does not show which method is "
    "better; docs/fair-play.md compares heads of equal minutes."
)


def minutes_by_kind(target: str) -> dict[str, float]:
    """Return the training minutes of the first shipped head of each kind for a target."""
    minutes, heads = minutes_of_heads(), reversed(heads_of(target).items())
    return {config.kind: minutes[name] for name, (_, config) in heads if name in minutes}


def minutes_of_heads() -> dict[str, float]:
    """Return the training minutes of the shipped heads by name, if their manifests contain them."""
    minutes = {name: manifest_of(_shipped_folder(name)).get("minutes") for name in head_names()}
    return {name: value for name, value in minutes.items() if value is not None}


def unequal_training(heads: Mapping[str, str | None]) -> str | None:
    """Return a message if the compared shipped heads have different training times, or None.

    Args:
        heads: name of the head by title of the compared method; None for a method without one.
    """
    trained = minutes_of_heads()
    minutes = {title: round(trained[name]) for title, name in heads.items() if name in trained}
    if len(set(minutes.values())) < 2:
        return None
    listed = (HEAD_MINUTES.format(title=title, minutes=value) for title, value in minutes.items())
    return UNEQUAL_HEADS.format(heads=", ".join(listed))


def file_of(target: str) -> HubFile | None:
    """Return the GGUF file of the Hub that is a known target; None for all others."""
    return ENTRIES[target].file if target in ENTRIES else None


def is_embedded(target: str) -> bool:
    """Return whether a target is shipped in a wheel."""
    return target in ENTRIES and ENTRIES[target].source is None


def head_here(name: str) -> Path | None:
    """Return the folder of a shipped head or of a path; None for any other name."""
    if "/" not in name and _is_head(_shipped_folder(name)):
        return _shipped_folder(name)
    return Path(name).resolve() if Path(name).is_dir() else None


def _shipped_folder(name: str) -> Path:
    return assets_folder() / "heads" / name


def _is_head(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _head_of(target: str, source: str) -> str | None:
    """Return the name of a target's head: the registry's, or a shipped one with this target in its config."""
    if target in ENTRIES:
        return ENTRIES[target].head
    return next((name for name in head_names() if config_of(name).target_name in (target, source)), None)


def _locate_head(name: str) -> Path | None:
    """Return a head's folder; None for a known head that is not trained yet."""
    folder = head_here(name)
    if folder is not None:
        return folder
    _refuse_missing_path(name, "draft head")
    if is_hub_id(name):
        return fetch_head(name)
    if any(entry.head == name for entry in ENTRIES.values()):
        return None
    published = next(entry.head for entry in ENTRIES.values() if entry.head and "/" in entry.head)
    raise ValueError(
        f"Unknown draft head “{name}”: neither a folder nor a Hub id such as {published}; known names are "
        f"{', '.join(head_names())}."
    )


def _expand_user(name: str | None) -> str | None:
    """Return a path that starts with ~ as an absolute path; a shell does not expand it in `--target=~/x`."""
    return str(Path(name).expanduser()) if name and name.startswith("~") else name


def _refuse_missing_path(name: str, kind: str) -> None:
    """Reject a mistyped path instead of looking for it on the Hub.

    A name of the form owner/model counts as a path if its first part is a folder here, or is similar to one that holds
    the second part.

    Raises:
        ValueError: the name is a file, begins like a path, has more parts than a Hub id, is in an existing folder, or
            resembles an existing folder, and is not in the registry.
    """
    name = split_revision(name)[0]
    path = Path(name).expanduser()
    if any(name in (entry.source, *entry.heads) for entry in ENTRIES.values()):
        return
    if path.is_file():
        raise ValueError(f"The {kind} {name} is a file; give the folder that holds config.json and weights.")
    is_path = name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1
    is_path = is_path or ("/" in name and path.parent.is_dir())
    similar = _similar_folder(path)
    if not is_path and ("/" not in name or similar is None or similar.name != path.name):
        return
    if similar is not None:
        raise ValueError(f"There is no folder {name} with a {kind}; did you mean {similar}?")
    parent = next(folder for folder in path.parents if folder.is_dir())
    raise ValueError(f"There is no folder {name} with a {kind}; {_list_folders(parent)}.")


def _list_folders(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    more = ", …" if len(names) > _MAX_NAMES else ""
    holds = f"it holds {', '.join(names[:_MAX_NAMES])}{more}" if names else "it holds no folders"
    return f"the nearest existing folder is {'the current folder' if folder == Path() else folder}, {holds}"


def _similar_folder(path: Path) -> Path | None:
    """Return an existing folder with a name that differs from a path in a few letters of each part, or None."""
    folder = Path(path.anchor)
    for part in path.parts[1 if path.anchor else 0 :]:
        if not (folder / part).is_dir():
            try:
                names = [entry.name for entry in folder.iterdir() if entry.is_dir()]
            except OSError:
                return None
            part = next(iter(get_close_matches(part, names, 1, _SIMILARITY)), None)
            if part is None:
                return None
        folder /= part
    return folder
