"""The targets and heads Jakiro knows by name, and for each pair whether it can be started here, or why not."""

import json

from app import words
from jakiro import zoo


def known_pairs() -> list[dict]:
    """One dictionary a pair: target, head, fusion, whether it is ready here, the reason, and how to start it."""
    shipped = {name: _config(name) for name in zoo.head_names()}
    pairs = [_pair(target, entry, shipped) for target, entry in zoo.ENTRIES.items()]
    named = {pair["head"] for pair in pairs}
    pairs += [_loose(name, config) for name, config in shipped.items() if name not in named]
    return sorted(pairs, key=lambda pair: not pair["ready"])


def _pair(target: str, entry: zoo.Entry, shipped: dict) -> dict:
    start = words.PAIR_START.format(target=target, head=entry.head or zoo.NO_HEAD)
    pair = {"target": target, "head": entry.head or "", "fusion": "", "ready": False, "start": start}
    if entry.head is None:
        return pair | {"reason": words.PAIR_NO_HEAD}
    if entry.head not in shipped:
        return pair | {"reason": words.PAIR_ON_HUB if "/" in entry.head else words.PAIR_NOT_SHIPPED}
    config = shipped[entry.head]
    trained_for = config.get("target_sha256")
    pair["fusion"] = config.get("fusion", "")
    if entry.target_sha256 and trained_for and trained_for != entry.target_sha256:
        reason = words.PAIR_OTHER_WEIGHTS.format(came=trained_for[:12], expected=entry.target_sha256[:12])
        return pair | {"reason": reason}
    return pair | {"ready": True, "reason": words.PAIR_READY}


def _loose(name: str, config: dict) -> dict:
    """A shipped head that no known target names; its config says what it was trained for."""
    target = config.get("target_name") or words.PAIR_UNKNOWN_TARGET
    start = words.PAIR_START.format(target=target, head=name)
    return {
        "target": target, "head": name, "fusion": config.get("fusion", ""), "ready": target in zoo.ENTRIES,
        "reason": words.PAIR_READY if target in zoo.ENTRIES else words.PAIR_NO_TARGET, "start": start,
    }  # fmt: skip


def _config(name: str) -> dict:
    return json.loads((zoo.assets_folder() / "heads" / name / "config.json").read_text(encoding="utf-8"))
