"""A target's config, tokenizer and weights by its name, fetched where they are missing, and the hash of the weights.

Importing this module loads nothing: torch and transformers are imported by the functions that need them.
"""

from pathlib import Path

from jakiro.zoo.embedded import embedded_target
from jakiro.zoo.hashes import weights_sha256
from jakiro.zoo.hub import why_not_fetched
from jakiro.zoo.progress import counted
from jakiro.zoo.table import NO_HEAD, Pair, chat_template_of, is_embedded, resolve


def load_config(name: str | None = None):
    """The transformers config of a target, without its weights.

    Raises:
        ValueError: unknown name, or it can't be fetched.
    """
    from transformers import AutoConfig

    pair = resolve(name, NO_HEAD)
    return _fetched(pair, AutoConfig, _prepared(pair))


def load_tokenizer(name: str | None = None):
    """The tokenizer of a target.

    Raises:
        ValueError: unknown name, or it can't be fetched.
    """
    from transformers import AutoTokenizer

    pair = resolve(name, NO_HEAD)
    tokenizer = _fetched(pair, AutoTokenizer, _prepared(pair))
    if not tokenizer.chat_template:
        tokenizer.chat_template = chat_template_of(pair.target_name)
    return tokenizer


def load_target(name: str | None = None, device="cpu", dtype="bfloat16", **options):
    """A target ready for inference.

    Args:
        name: as in `resolve`.
        device, dtype: torch's, or their names.
        options: for transformers' `from_pretrained`; with a `device_map` the model stays where that puts it.

    Returns:
        (model, tokenizer, sha256 of the weights or None where they are no safetensors files).

    Raises:
        ValueError: unknown name, or it can't be fetched.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    pair = resolve(name, NO_HEAD)
    source = _prepared(pair)
    disable_progress_bar()
    with counted():
        model = _fetched(pair, AutoModelForCausalLM, source, dtype=dtype, **options)
    model = (model if "device_map" in options else model.to(device)).eval().requires_grad_(False)
    return model, load_tokenizer(name), weights_sha256(_local_folder(source))


def _fetched(pair: Pair, kind, source: str, **options):
    """What one of transformers' auto classes reads from a target's folder or Hub id.

    Code that lies beside the files never runs, and nobody is asked on standard input whether it may.
    """
    try:
        return kind.from_pretrained(source, trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        raise ValueError(why_not_fetched("target model", pair.target_path_or_hub_id, error)) from error


def _local_folder(source: str) -> Path:
    """Where the files of a loaded target lie."""
    from transformers.utils import cached_file

    return Path(source) if Path(source).is_dir() else Path(cached_file(source, "config.json")).parent


def _prepared(pair: Pair) -> str:
    """What transformers can load: for the embedded default its folder, made on first use."""
    return str(embedded_target()) if is_embedded(pair.target_name) else pair.target_path_or_hub_id
