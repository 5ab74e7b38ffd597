"""Config, tokenizer and weights of a target by its name, downloaded if missing, and the checksum of the weights.

Each part is loaded separately, so that small parts can be checked first. Importing this module loads nothing; its
functions import torch and transformers.
"""

from pathlib import Path

from jakiro.loading import registry
from jakiro.loading.checksums import is_corrupted, weights_sha256
from jakiro.loading.embedded import EMBEDDED_SHA256, embedded_file, embedded_target, gguf_folder
from jakiro.loading.files import check_files, has_all_shards, reject_scaled_weights
from jakiro.loading.gguf_file import open_gguf
from jakiro.loading.gguf_model import read_gguf_model, recommended_sampling
from jakiro.loading.hub import cached_folder, require_hub, split_revision, tensor_types
from jakiro.loading.incompatibilities import first_of, one_sentence
from jakiro.loading.metadata import check_config_values
from jakiro.loading.placement import check_room
from jakiro.loading.progress import counted
from jakiro.loading.registry import NO_HEAD, Pair

# Tensors of older checkpoints that models compute from the config
_BUFFERS = (
    "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "attn.bias", "attn.masked_bias",
    "attention.bias", "attention.masked_bias", "position_ids",
)  # fmt: skip


def load_config(name: str | None = None):
    """Return the transformers config of a target; None is the default target.

    Raises:
        ValueError: the name is unknown, or the config cannot be downloaded or is invalid.
    """
    from transformers import AutoConfig

    pair = registry.resolve(name, NO_HEAD)
    config = _load(pair, "config", AutoConfig)
    check_config_values(config, pair.target_path_or_hub_id)
    return config


def recommended_settings(pair: Pair) -> tuple[dict[str, float], list[str]]:
    """Return the sampling settings that a target's GGUF file recommends; if there are none, the registry's.

    `TargetModel` reads the generation_config of transformers models.

    Returns:
        Settings by the names of `SamplingParams`, maybe empty; and the metadata keys and values that are not applied.
    """
    metadata = open_gguf(gguf_path(pair)).metadata if is_gguf(pair) else {}
    settings, ignored = recommended_sampling(metadata)
    return settings or registry.recommended_sampling_of(pair.target_name), ignored


def load_tokenizer(name: str | None = None):
    """Return the tokenizer of a target; None is the default target.

    Raises:
        ValueError: the name is unknown, or the tokenizer cannot be downloaded or is invalid.
    """
    from transformers import AutoTokenizer

    pair = registry.resolve(name, NO_HEAD)
    tokenizer = _load(pair, "tokenizer", AutoTokenizer)
    if not tokenizer.chat_template:
        tokenizer.chat_template = registry.chat_template_of(pair.target_name)
    return tokenizer


def load_generation_config(name: str | None = None):
    """Return the generation config of a target without its weights; None if it has none."""
    from transformers import GenerationConfig

    source, revision = _prepare(registry.resolve(name, NO_HEAD))
    try:
        return GenerationConfig.from_pretrained(source, revision=revision)
    except OSError:
        return None


def check_target(name: str | None = None) -> None:
    """Check the files of a target before any weights are loaded, or downloaded from the Hub.

    Raises:
        ValueError: a file is missing or corrupted, or quantised weights would be loaded without their scales.
    """
    pair = registry.resolve(name, NO_HEAD)
    source, revision = _prepare(pair)
    quantisation = getattr(load_config(name), "quantization_config", None)
    if is_gguf(pair):
        return
    folder = Path(source) if Path(source).is_dir() else cached_folder(pair.target_path_or_hub_id)
    if folder is not None and (folder == Path(source) or has_all_shards(folder)):
        check_files(folder, quantisation is not None)
    elif quantisation is None:
        with one_sentence("target model", pair.target_path_or_hub_id, "weights"):
            types_by_file = tensor_types(source, revision)
        for file, types in types_by_file.items():
            reject_scaled_weights(f"{file} of {source}", types)
    if quantisation is not None:
        from transformers.quantizers import AutoQuantizationConfig

        values = quantisation if isinstance(quantisation, dict) else quantisation.to_dict()
        # transformers ignores an unknown method, and loads the weights without their scales
        with one_sentence("target model", pair.target_path_or_hub_id, "quantisation"):
            AutoQuantizationConfig.from_dict(values)


def load_model(name: str | None = None, device="cpu", dtype="bfloat16", hashing=weights_sha256, **options):
    """Load the weights of a target for inference.

    Args:
        name: see `resolve`.
        device, dtype: of torch, or their names.
        hashing: computes the checksum; `weights_sha256_in_background` does not block.
        options: of transformers' `from_pretrained`; a `device_map` replaces `device`.

    Returns:
        (model, result of `hashing`); the checksum is None if the weights are not in safetensors files.

    Raises:
        ValueError: the name is unknown, the target cannot be downloaded or is corrupted, or weights and config differ.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    pair = registry.resolve(name, NO_HEAD)
    check_target(name)
    disable_progress_bar()
    with counted():
        model, loading_info = _load(
            pair, "weights", AutoModelForCausalLM, converted=True, dtype=dtype, output_loading_info=True,
            ignore_mismatched_sizes=True, **options,
        )  # fmt: skip
    _refuse_what_differs(pair, loading_info)
    model = (model if "device_map" in options else model.to(device)).eval().requires_grad_(False)
    # The checksum of a GGUF file also identifies its converted weights
    file = None if registry.is_embedded(pair.target_name) else gguf_path(pair)
    return model, hashing(_local_folder(pair) if file is None else file)


def load_stored(name: str | None, config, hashing=weights_sha256):
    """Load a GGUF target's weights in the file's own bits, for compiled code on a CPU.

    Args:
        name: see `resolve`.
        config: result of `load_config`.
        hashing: see `load_model`.

    Returns:
        (stored model, checksum: of the converted weights for the embedded default, otherwise of the file).

    Raises:
        ValueError: the file is corrupted.
        NoRoom: its weights need more memory than is free.
    """
    from jakiro.models.stored import StoredModel, bytes_kept

    pair = registry.resolve(name, NO_HEAD)
    path = gguf_path(pair)
    with one_sentence("target model", pair.target_path_or_hub_id, "weights"):
        tensors = read_gguf_model(path).weights
    check_room(pair.target_name, bytes_kept(tensors))
    with one_sentence("target model", pair.target_path_or_hub_id, "weights"):
        model = StoredModel(config, tensors)
    return model, EMBEDDED_SHA256 if registry.is_embedded(pair.target_name) else hashing(path)


def is_gguf(pair: Pair) -> bool:
    """Return whether a target is a GGUF file; the embedded default is one."""
    is_known = registry.is_embedded(pair.target_name) or registry.file_of(pair.target_name) is not None
    return is_known or Path(pair.target_path_or_hub_id).is_file()


def gguf_path(pair: Pair) -> Path | None:
    """Return the path of a GGUF target's file, downloaded if missing; None for other targets."""
    if registry.is_embedded(pair.target_name):
        return embedded_file()[1]
    file, path = registry.file_of(pair.target_name), Path(pair.target_path_or_hub_id)
    if file is not None:
        return file.fetch()
    return path if path.is_file() else None


def refuse_corrupted(name: str | None = None) -> None:
    """Check all weights of a target again, after an invalid result.

    Raises:
        ValueError: they changed on disk since their checksum was computed.
    """
    pair = registry.resolve(name, NO_HEAD)
    folder = _local_folder(pair)
    if is_corrupted(folder):
        remedy = "start again to rebuild it" if registry.is_embedded(pair.target_name) else "fetch or copy it again"
        raise ValueError(
            f"{folder} is corrupted: its weights changed although their sizes and times did not; {remedy}."
        )


def load_target(name: str | None = None, device="cpu", dtype="bfloat16", **options):
    """Return a target for inference: (model, tokenizer, checksum); see `load_model` for arguments and errors."""
    tokenizer = load_tokenizer(name)
    model, sha256 = load_model(name, device, dtype, **options)
    return model, tokenizer, sha256


def _refuse_what_differs(pair: Pair, loading_info: dict) -> None:
    """Raise ValueError if weights and config differ.

    transformers fills missing and mismatched tensors with random numbers, and ignores unexpected ones, such as the
    scales of quantised weights.
    """
    missing = sorted(loading_info.get("missing_keys", ()))
    mismatched = sorted(
        f"{name} {tuple(shape)} for {tuple(expected)}"
        for name, shape, expected in loading_info.get("mismatched_keys", ())
    )
    unexpected = sorted(name for name in loading_info.get("unexpected_keys", ()) if not name.endswith(_BUFFERS))
    for problem, names in (
        ("have no", missing),
        ("have other shapes than its config implies in", mismatched),
        ("hold tensors that its config does not imply:", unexpected),
    ):
        if names:
            raise ValueError(
                f"The target model {pair.target_path_or_hub_id} could not be loaded: its weights {problem} "
                f"{first_of(names)}; use the config.json of these weights, or fetch both again."
            )


def _load(pair: Pair, part: str, auto_class, converted: bool = False, **options):
    """Return an object of transformers' auto class for a target; code in its folder never runs.

    With `trust_remote_code` unset, transformers would ask on standard input.
    """
    source, revision = _prepare(pair, converted)
    if not Path(source).exists():
        require_hub(pair.target_path_or_hub_id)
    with one_sentence("target model", pair.target_path_or_hub_id, part):
        return auto_class.from_pretrained(source, revision=revision, trust_remote_code=False, **options)


def _local_folder(pair: Pair) -> Path:
    """Return the folder of a loaded target's files."""
    source, _ = _prepare(pair, converted=True)
    return Path(source) if Path(source).is_dir() else cached_folder(pair.target_path_or_hub_id)


def _prepare(pair: Pair, converted: bool = False) -> tuple[str, str]:
    """Return transformers' source of a target and its revision.

    For a GGUF file this is a folder of the cache, written on first use, with the weights if `converted` is True.
    """
    if registry.is_embedded(pair.target_name):
        return str(embedded_target() if converted else embedded_file()[0]), "main"
    path = gguf_path(pair)
    if path is not None:
        return str(gguf_folder(path, converted)), "main"
    source = pair.target_path_or_hub_id
    hub_id, revision = (source, None) if Path(source).exists() else split_revision(source)
    return hub_id, revision or "main"
