"""Which model goes with which head, and where both come from: the wheel, the user's cache, a folder or the Hub.

Here both are only named and located; `weights.py` reads targets, `jakiro.heads.checkpoint` reads heads. Importing this
module loads neither torch nor transformers, so a page can list names before a model exists.
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
_SHOWN = 5
# Least ratio of `difflib` between a mistyped name and the folder it may mean
_SIMILARITY = 0.6


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the table of known targets.

    Attributes:
        source: Hub id of the target, or None for the one that comes embedded in a wheel.
        head: name of a folder in `assets/heads`, or Hub id, or None where no head exists.
        target_sha256: what `weights_sha256` computes of the target: `file`'s hash, or one that is known beforehand.
        others: further heads of the Hub that were trained for the target and do not name it.
        chat_template: name of one of `TEMPLATES`, for a tokenizer that has none.
        file: the GGUF file that is the target, for one that is a file of the Hub and no repository.
        makers_settings: what its makers ask for, by the names of `SamplingParams`, where no generation_config.json
            comes with it.
    """

    source: str | None
    head: str | None
    target_sha256: str | None = None
    chat_template: str | None = None
    file: HubFile | None = None
    makers_settings: Mapping[str, float] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.file is not None:
            object.__setattr__(self, "target_sha256", self.file.sha256)

    @property
    def heads(self) -> tuple[str | None, ...]:
        """All heads by name, the usual one first."""
        return self.head, *self.others


def _official(target: str, head: str, chat_template: str | None = None) -> Entry:
    return Entry(source=target, head=f"Hhaiduo/{head}", chat_template=chat_template)


ENTRIES = {
    DEFAULT_TARGET: Entry(source=None, head=DEFAULT_HEAD, target_sha256=EMBEDDED_SHA256),
    "qwen2.5-coder-0.5b-instruct": Entry(
        source="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        head="qwen2.5-coder-0.5b-instruct-decoupled",
        file=HubFile(
            repository="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
            name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            revision="ebb2015119c907b064c512bf053e945850b5875f",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
        ),
        # From generation_config.json of Qwen/Qwen2.5-Coder-0.5B-Instruct
        makers_settings={"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.1},
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
        others=("z-lab/LLaMA3.1-8B-Instruct-DFlash-UltraChat",),
    ),
    "qwen3-1.7b": Entry("Qwen/Qwen3-1.7B", "AngelSlim/Qwen3-1.7B_eagle3"),
    "qwen3-4b": Entry("Qwen/Qwen3-4B", "AngelSlim/Qwen3-4B_eagle3", others=("z-lab/Qwen3-4B-DFlash-b16",)),
    "qwen3-8b": Entry("Qwen/Qwen3-8B", "RedHatAI/Qwen3-8B-speculator.eagle3", others=("z-lab/Qwen3-8B-DFlash-b16",)),
    "vicuna-7b-v1.3-star": _official("lmsys/vicuna-7b-v1.3", "Jakiro_star-Vicuna-7B-v1.3", "vicuna-v1.1"),
    "vicuna-13b-v1.3-star": _official("lmsys/vicuna-13b-v1.3", "Jakiro_star-Vicuna-13B-v1.3", "vicuna-v1.1"),
    "llama2-chat-7b-star": _official("meta-llama/Llama-2-7b-chat-hf", "Jakiro_star-LLaMA2-Chat-7B", "llama-2"),
    "llama2-chat-13b-star": _official("meta-llama/Llama-2-13b-chat-hf", "Jakiro_star-LLaMA2-Chat-13B", "llama-2"),
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A target and the head that drafts for it, both named and located.

    Attributes:
        target_path_or_hub_id: what transformers loads; the embedded default's folder exists after `load_target`.
        head_name, head_path: None when there is no head: plain decoding still works.
    """

    target_name: str
    target_path_or_hub_id: str
    head_name: str | None
    head_path: Path | None

    def head_folder(self) -> Path:
        """The head's folder, for callers that need one.

        Raises:
            ValueError: there is none.
        """
        if self.head_path is None:
            raise ValueError(
                f"There is no draft head for {self.target_name} here; give a known name, a folder, or a Hub id."
            )
        return self.head_path


def head_names() -> list[str]:
    """Names of the heads that ship with Jakiro."""
    folder = assets_folder() / "heads"
    return sorted(path.name for path in folder.iterdir() if _is_head(path)) if folder.is_dir() else []


def resolve(target: str | None = None, head: str | None = None) -> Pair:
    """Which target and which head two names mean.

    Args:
        target: a name of the table, a folder with a transformers model, a GGUF file or a folder with one, or a Hub id;
            None takes the one that `head` was made for, as the table or the head's config says, else the default.
        head: a name of a shipped head, a folder with config.json and weights, or a Hub id; None takes the head that
            belongs to the target; "none" asks for no head. A Hub id may end in a revision: owner/model@revision.

    Raises:
        ValueError: a name that is nothing known, or a head that can't be fetched from the Hub.
    """
    target, head = _expand_user(target), _expand_user(head)
    path = None
    if target is None:
        target, path = _target_of(head)
        try:
            source = _source_of(target)
        except ValueError as error:
            raise ValueError(f"{error} The draft head {head} names this target; give one beside the head.") from error
    else:
        source = _source_of(target)
    if head == NO_HEAD:
        return Pair(target, source, None, None)
    name = head if head is not None else _head_of(target, source, ENTRIES.get(target))
    if path is None and name is not None:
        path = _locate_head(name)
    if head is None and path is None:
        name = None
    return Pair(target, source, name, path)


def _target_of(head: str | None) -> tuple[str, Path | None]:
    """The target that a head was made for, and the head's folder as far as that had to be looked into."""
    if head in (None, NO_HEAD):
        return DEFAULT_TARGET, None
    known = listed_target(head)
    if known is not None:
        return known, None
    folder = _locate_head(head)
    return named_in(folder) or DEFAULT_TARGET, folder


def listed_target(head: str) -> str | None:
    """The target that the table has beside a head; None for a head that it does not have."""
    names = {head, split_revision(head)[0]}
    return next((name for name, entry in ENTRIES.items() if names & set(entry.heads)), None)


def named_in(folder: Path) -> str | None:
    """The target that the config.json of a head's folder names; None where there is none, or it names none."""
    try:
        return named_target(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def _source_of(target: str) -> str:
    """What transformers loads: a folder, or a Hub id with its revision."""
    entry = ENTRIES.get(target)
    if entry is not None:
        return str(entry.file.here or entry.file.place) if entry.file else entry.source or str(embedded_folder())
    if Path(target).exists():
        gguf = _gguf_of(Path(target))
        if gguf is not None or Path(target).is_dir():
            return str((gguf or Path(target)).resolve())
    _refuse_missing_path(target, "target model")
    if not is_hub_id(target):
        known = ", ".join(ENTRIES)
        raise ValueError(f"Unknown target model “{target}”: it is no folder and no Hub id; known names are {known}.")
    return target


def _gguf_of(path: Path) -> Path | None:
    """A GGUF file, or the one in a folder without config.json; None for everything else.

    Raises:
        ValueError: there are several in the folder.
    """
    if path.is_file():
        return path if is_gguf(path) else None
    found = [] if (path / "config.json").is_file() else ggufs_in(path)
    if len(found) > 1:
        names = ", ".join(each.name for each in found[:_SHOWN])
        raise ValueError(f"{path} holds several GGUF files ({names}); name one of them.")
    return found[0] if found else None


def chat_template_of(target: str) -> str | None:
    """The template that a target of the table, by its name or Hub id, was trained with; None where none is known."""
    target = split_revision(target)[0]
    names = (entry.chat_template for name, entry in ENTRIES.items() if target in (name, entry.source))
    return TEMPLATES.get(next(names, None))


def makers_settings_of(target: str) -> dict:
    """What the makers of a target of the table ask for, by its name or its file's; empty where none is known here."""
    entry = ENTRIES.get(target)
    found = entry or next(
        (each for each in ENTRIES.values() if each.file and each.file.name == Path(target).name), None
    )
    return dict(found.makers_settings) if found else {}


def short_name(name: str | None) -> str | None:
    """What a model or head is called where others read it: of a folder or file its last part alone."""
    return Path(name).resolve().name if name and Path(name).exists() else name


def head_warning(head_name: str, head_target_sha256: str, target_name: str, target_sha256: str | None) -> str | None:
    """One sentence when a head was trained for other weights than those loaded; None when all is well or unknown."""
    if not head_target_sha256 or not target_sha256 or head_target_sha256 == target_sha256:
        return None
    return (
        f"The draft head “{head_name}” was trained for weights {head_target_sha256[:12]}…, but {target_name} has "
        f"{target_sha256[:12]}…; the text stays the target's own, fewer candidates may be accepted."
    )


def heads_of(target: str) -> dict[str, tuple[Path, HeadSummary]]:
    """Folders of the shipped heads for a target and what their configs say, by name; the table's own head first."""
    entry = ENTRIES.get(target)
    known = (target, entry.source if entry else None)
    found = {}
    for name in sorted(head_names(), key=lambda name: entry is None or name != entry.head):
        config = config_of(name)
        if config.target_name in known:
            found[name] = assets_folder() / "heads" / name, config
    return found


def config_of(name: str) -> HeadSummary:
    """What the config of a shipped head says."""
    path = assets_folder() / "heads" / name / "config.json"
    return HeadSummary.of(json.loads(path.read_text(encoding="utf-8")))


def manifest_of(folder: Path) -> dict:
    """What a head's manifest says; empty where there is none."""
    path = folder / "manifest.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


HEAD_MINUTES = "{title} {minutes} min"
UNEQUAL_HEADS = (
    "The heads were not trained equally long ({heads}) or on the same text, so this does not say which method is "
    "better; docs/fair-play.md compares heads of equal minutes."
)


def minutes_by_kind(target: str) -> dict[str, float]:
    """How long the shipped head of each kind for a target was trained, of several the first one of `heads_of`."""
    found = {}
    for folder, config in heads_of(target).values():
        found.setdefault(config.kind, manifest_of(folder).get("minutes"))
    return {kind: minutes for kind, minutes in found.items() if minutes is not None}


def minutes_of_heads() -> dict[str, float]:
    """How long the shipped heads were trained, by name, where their manifests say so."""
    found = {name: manifest_of(assets_folder() / "heads" / name).get("minutes") for name in head_names()}
    return {name: minutes for name, minutes in found.items() if minutes is not None}


def unequal_training(heads: Mapping[str, str | None]) -> str | None:
    """One sentence where shipped heads that are compared were not trained equally long; None where all were.

    Args:
        heads: by what is compared, the name of its head; None where it has none.
    """
    known = minutes_of_heads()
    minutes = {title: round(known[name]) for title, name in heads.items() if name in known}
    if len(set(minutes.values())) < 2:
        return None
    listed = (HEAD_MINUTES.format(title=title, minutes=each) for title, each in minutes.items())
    return UNEQUAL_HEADS.format(heads=", ".join(listed))


def file_of(target: str) -> HubFile | None:
    """The GGUF file of the Hub that a target of the table is; None for all others."""
    return ENTRIES[target].file if target in ENTRIES else None


def is_embedded(target: str) -> bool:
    """Whether a target comes in a wheel."""
    return target in ENTRIES and ENTRIES[target].source is None


def head_here(name: str) -> Path | None:
    """The folder of a shipped head, or a folder by its path; None for all other names."""
    shipped = assets_folder() / "heads" / name
    if "/" not in name and _is_head(shipped):
        return shipped
    return Path(name).resolve() if Path(name).is_dir() else None


def _is_head(folder: Path) -> bool:
    return (folder / "config.json").is_file() and any(folder.glob("*.safetensors"))


def _head_of(target: str, source: str, entry: Entry | None) -> str | None:
    """The head that belongs to a target: the table's, else a shipped one whose config names this target."""
    if entry is not None:
        return entry.head
    return next((name for name in head_names() if config_of(name).target_name in (target, source)), None)


def _locate_head(name: str) -> Path | None:
    """A head's folder; None for a head of the table that has not been trained yet."""
    here = head_here(name)
    if here is not None:
        return here
    _refuse_missing_path(name, "draft head")
    if is_hub_id(name):
        return fetch_head(name)
    if any(entry.head == name for entry in ENTRIES.values()):
        return None
    published = next(entry.head for entry in ENTRIES.values() if entry.head and "/" in entry.head)
    raise ValueError(
        f"Unknown draft head “{name}”: it is no folder and no Hub id such as {published}; known names are "
        f"{', '.join(head_names())}."
    )


def _expand_user(name: str | None) -> str | None:
    """Return a path that begins with ~ as an absolute path; a shell does not expand it in `--target=~/x`."""
    return str(Path(name).expanduser()) if name and name.startswith("~") else name


def _refuse_missing_path(name: str, what: str) -> None:
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
        raise ValueError(f"The {what} {name} is a file; give the folder that holds config.json and weights.")
    is_path = name.startswith((".", "/", "~")) or "\\" in name or name.count("/") > 1
    is_path = is_path or ("/" in name and path.parent.is_dir())
    similar = _similar_folder(path)
    if not is_path and ("/" not in name or similar is None or similar.name != path.name):
        return
    if similar is not None:
        raise ValueError(f"There is no folder {name} with a {what}; did you mean {similar}?")
    parent = next(folder for folder in path.parents if folder.is_dir())
    raise ValueError(f"There is no folder {name} with a {what}; {_list_folders(parent)}.")


def _list_folders(folder: Path) -> str:
    names = sorted(path.name for path in folder.iterdir() if path.is_dir())
    more = ", …" if len(names) > _SHOWN else ""
    holds = f"it holds {', '.join(names[:_SHOWN])}{more}" if names else "it holds no folders"
    return f"the nearest existing folder is {'the current folder' if folder == Path() else folder}, {holds}"


def _similar_folder(path: Path) -> Path | None:
    """Return an existing folder whose name differs from a path in a few letters of each part; None if there is none."""
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
