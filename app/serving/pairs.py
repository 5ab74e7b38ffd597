"""Pairs of target and head from the table and from a folder, with the reason if a pair cannot be used.

Only names, small configs and file sizes are read, no weights; the loader checks everything again.
"""

import json
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from app.serving.weights import size_words
from app.words import page as words
from jakiro.heads.config import WEIGHTS_NAMES, named_target
from jakiro.loading import registry
from jakiro.loading.embedded import embedded_here, wheel_is_installed
from jakiro.loading.hub import cached_folder
from jakiro.system import assets_folder

HERE, FETCH, UNFIT = "here", "fetch", "unfit"
# Names of GGUF files, in capitals too
_GGUF = "*.[gG][gG][uU][fF]"
_SAME = {"hidden_size": words.SIZE_HIDDEN, "vocab_size": words.SIZE_VOCABULARY}


@dataclass(frozen=True, slots=True)
class KnownPair:
    """A target and a head by the names that `JakiroGenerator.from_pretrained` takes.

    Attributes:
        name: unique name on the page; later pairs with the same name are numbered.
        target: empty if it is unknown, because the head does not name its target.
        head: None for plain decoding and copied guesses only.
        fusion: field of a Jakiro head's config, such as "decoupled"; empty for other heads and without a local config.
        state: HERE, FETCH (must be downloaded) or UNFIT (cannot be used).
        reason: one sentence that explains any of the states.
        size: parameters and bytes of the local safetensors files of target and head in words; empty without such files.
    """

    name: str
    target: str
    head: str | None
    fusion: str
    state: str
    reason: str
    size: str = ""


def known_pairs(folder: Path | None = None, named_pair: tuple[str | None, str | None] | None = None) -> list[KnownPair]:
    """Return all pairs, local ones first.

    Args:
        folder: has more targets and heads in subfolders; a target has a tokenizer or a GGUF file.
        named_pair: target and head of the command line, if they are not in the table.
    """
    pair_names = [(name, entry.head) for name, entry in registry.ENTRIES.items()]
    named = {head for _, head in pair_names}
    # Heads of other methods are extra lanes of the target's pair, not pairs
    usual = [config.kind for _, config in registry.heads_of(registry.DEFAULT_TARGET).values()][:1]
    head_names = [name for name in registry.head_names() if registry.config_of(name).kind in usual]
    pair_names += [(_target_name(assets_folder() / "heads" / name), name) for name in head_names if name not in named]
    if named_pair is not None and named_pair not in pair_names and any(named_pair):
        pair_names.insert(0, (named_pair[0] or target_of(named_pair[1]), named_pair[1]))
    pair_names += _in_folder(folder) if folder is not None else []
    pairs, called = [], Counter()
    for pair in (_pair_of(target, head) for target, head in dict.fromkeys(pair_names)):
        called[pair.name] += 1
        if called[pair.name] > 1:
            pair = replace(pair, name=f"{pair.name} ({called[pair.name]})")
        pairs.append(pair)
    return sorted(pairs, key=lambda pair: (HERE, FETCH, UNFIT).index(pair.state))


def name_of(target: str | None, head: str | None) -> str:
    """Return a pair's name: the last part of each name, or only the head's if it starts with the target's."""
    target, head = (Path(part or "").name for part in (target, head))
    return " + ".join(filter(None, (target, head))) if not head.startswith(target) else head


def target_of(head: str | None) -> str | None:
    """Return the target of a head according to the table or local files."""
    if head in (None, registry.NO_HEAD):
        return registry.DEFAULT_TARGET
    return registry.listed_target(head) or _target_name(_head_folder(head))


def _in_folder(folder: Path) -> list[tuple[str | None, str]]:
    """Return every head of a folder with the target in its config, else with every target of the folder."""
    folders = sorted(path for path in folder.iterdir() if (path / "config.json").is_file() or any(path.glob(_GGUF)))
    targets = [path for path in folders if _is_target(path)]
    pairs = []
    for head in (path for path in folders if path not in targets):
        named = _target_name(head)
        same = [path for path in targets if named and path.name == Path(named).name]
        head_targets = same or ([named] if named in registry.ENTRIES else targets)
        pairs += [(str(target), str(head)) for target in head_targets or [named]]
    paired = {target for target, _ in pairs}
    return pairs + [(str(target), None) for target in targets if str(target) not in paired]


def _pair_of(target: str | None, head: str | None) -> KnownPair:
    head_config = _config(_head_folder(head)) if head else {}
    state, reason = _judged(target, head, head_config)
    fusion = head_config.get("fusion", "")
    size = size_words(_target_folder(target), _head_folder(head)) if target else ""
    return KnownPair(
        name_of(target or words.PAIR_UNKNOWN_TARGET, head), target or "", head, fusion, state, reason, size
    )


def _judged(target: str | None, head: str | None, head_config: dict) -> tuple[str, str]:
    if target is None:
        return UNFIT, words.PAIR_NO_TARGET
    misfit = _misfit(target, head, head_config)
    if misfit:
        return UNFIT, misfit
    reasons = (words.PAIR_READY if head else words.PAIR_NO_HEAD, words.PAIR_ON_HUB)
    file = registry.file_of(target)
    if file is not None:
        reasons = (
            reasons[0],
            words.PAIR_FILE_ON_HUB.format(size=file.size / 1e6, name=file.name, folder=file.download_path.parent),
        )
    elif target in registry.ENTRIES and not registry.is_embedded(target):
        reasons = tuple(f"{reason} {words.PAIR_NOT_TRIED}" for reason in reasons)
    target_is_here = _target_folder(target) is not None or (registry.is_embedded(target) and wheel_is_installed())
    if target_is_here and (head is None or head_config):
        return HERE, reasons[0]
    return FETCH, words.PAIR_EMBEDDED if registry.is_embedded(target) else reasons[1]


def _misfit(target: str, head: str | None, head_config: dict) -> str | None:
    """Return why a pair cannot work, according to configs and file sizes; None if no reason is known."""
    folder = _target_folder(target)
    held = None if registry.is_embedded(target) else folder
    for path, weights in ((held, ("*.safetensors", "*.bin", _GGUF)), (_head_folder(head), WEIGHTS_NAMES)):
        if path is not None and not any(file for name in weights for file in path.glob(name)):
            return words.PAIR_NO_WEIGHTS.format(folder=path.name)
    target_config = _config(folder)
    sizes = head_config | {"hidden_size": head_config.get("target_hidden_size") or head_config.get("hidden_size")}
    for field, label in _SAME.items():
        if sizes.get(field) and field in target_config and sizes[field] != target_config[field]:
            return words.PAIR_OTHER_SIZE.format(size=label, head=sizes[field], target=target_config[field])
    entry = registry.ENTRIES.get(target)
    expected, trained_for = entry.target_sha256 if entry else None, head_config.get("target_sha256")
    if expected and trained_for and trained_for != expected:
        return words.PAIR_OTHER_WEIGHTS.format(value=trained_for[:12], expected=expected[:12])
    return _too_large(folder)


def _too_large(folder: Path | None) -> str | None:
    """Compare weights on disk with free memory; the loader's own check is more exact and decides."""
    if folder is None:
        return None
    import torch

    from jakiro.loading.placement import free_memory

    needed = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    free = free_memory(torch.device("cpu"))
    return words.PAIR_TOO_LARGE.format(needed=needed / 1e9, free=free / 1e9) if needed > free else None


def _target_folder(target: str) -> Path | None:
    """Return the local folder of a target's files, or None."""
    if registry.is_embedded(target):
        return embedded_here()
    file = registry.file_of(target)
    if file is not None:
        return file.cached_path and file.cached_path.parent
    entry = registry.ENTRIES.get(target)
    if Path(target).exists():
        return Path(target) if Path(target).is_dir() else Path(target).parent
    return cached_folder(entry.source if entry else target)


def _head_folder(head: str | None) -> Path | None:
    return None if head is None else registry.head_here(head) or cached_folder(head)


def _is_target(folder: Path) -> bool:
    names = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", _GGUF)
    return any(any(folder.glob(name)) for name in names)


def _target_name(head_folder: Path | None) -> str | None:
    return named_target(_config(head_folder))


def _config(folder: Path | None) -> dict:
    """Return a folder's config.json, or an empty dictionary if it is missing or no object."""
    try:
        values = json.loads((folder / "config.json").read_text(encoding="utf-8")) if folder else {}
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}
