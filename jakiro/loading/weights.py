"""A target's config, tokenizer and weights by its name, fetched where they are missing, and the hash of the weights.

Each is read by itself, so that a loader can begin with what is small. Importing this module loads nothing: torch and
transformers are imported by the functions that need them.
"""

from pathlib import Path

from jakiro.loading.checksums import damaged_since, weights_sha256
from jakiro.loading.embedded import EMBEDDED_SHA256, converted_gguf, described_gguf, embedded_file, embedded_target
from jakiro.loading.files import check_files, has_whole_weights, refuse_scaled
from jakiro.loading.gguf_file import open_gguf
from jakiro.loading.gguf_model import read_gguf_model, recommended_sampling
from jakiro.loading.hub import cached_folder, require_hub, split_revision, tensor_kinds
from jakiro.loading.incompatibilities import first_of, one_sentence
from jakiro.loading.metadata import check_config_values
from jakiro.loading.placement import check_room
from jakiro.loading.progress import counted
from jakiro.loading.registry import (
    NO_HEAD,
    Pair,
    chat_template_of,
    file_of,
    is_embedded,
    makers_settings_of,
    resolve,
)

# What older checkpoints hold beside their weights, and a model computes from its config
_BUFFERS = (
    "rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached", "attn.bias", "attn.masked_bias",
    "attention.bias", "attention.masked_bias", "position_ids",
)  # fmt: skip


def load_config(name: str | None = None):
    """The transformers config of a target, without its weights.

    Raises:
        ValueError: unknown name, it can't be fetched, or it is damaged.
    """
    from transformers import AutoConfig

    pair = resolve(name, NO_HEAD)
    config = _read(pair, "config", AutoConfig)
    check_config_values(config, pair.target_path_or_hub_id)
    return config


def recommended_settings(pair: Pair) -> tuple[dict[str, float], list[str]]:
    """Return the sampling settings that come with a target, by the names of `SamplingParams`, and those not applied.

    Both come from the metadata of a GGUF file, or from the registry; transformers models have a generation_config.
    """
    if not is_gguf(pair):
        return makers_settings_of(pair.target_name), []
    settings, ignored = recommended_sampling(open_gguf(gguf_path(pair)).metadata)
    return settings or makers_settings_of(pair.target_name), ignored


def load_tokenizer(name: str | None = None):
    """The tokenizer of a target.

    Raises:
        ValueError: unknown name, it can't be fetched, or it is damaged.
    """
    from transformers import AutoTokenizer

    pair = resolve(name, NO_HEAD)
    tokenizer = _read(pair, "tokenizer", AutoTokenizer)
    if not tokenizer.chat_template:
        tokenizer.chat_template = chat_template_of(pair.target_name)
    return tokenizer


def load_generation_config(name: str | None = None):
    """Return the generation config of a target without its weights; None if it has none."""
    from transformers import GenerationConfig

    source, revision = _prepared(resolve(name, NO_HEAD))
    try:
        return GenerationConfig.from_pretrained(source, revision=revision)
    except OSError:
        return None


def check_target(name: str | None = None) -> None:
    """Looks at the files of a target before any weights are read: of the Hub's, before they are fetched.

    Raises:
        ValueError: one is missing or damaged, or holds quantised weights that would be read as plain ones.
    """
    pair = resolve(name, NO_HEAD)
    source, revision = _prepared(pair)
    quantised = getattr(load_config(name), "quantization_config", None)
    if is_gguf(pair):
        return
    folder = Path(source) if Path(source).is_dir() else cached_folder(pair.target_path_or_hub_id)
    if folder is not None and (folder == Path(source) or has_whole_weights(folder)):
        check_files(folder, quantised is not None)
    elif quantised is None:
        with one_sentence("target model", pair.target_path_or_hub_id, "weights"):
            kinds = tensor_kinds(source, revision)
        for file, held in kinds.items():
            refuse_scaled(f"{file} of {source}", held)
    if quantised is not None:
        _refuse_another_way_of_quantising(pair, quantised)


def load_model(name: str | None = None, device="cpu", dtype="bfloat16", hashing=weights_sha256, **options):
    """A target's weights, ready for inference.

    Args:
        name: as in `resolve`.
        device, dtype: torch's, or their names.
        hashing: hashes a folder's weights; `hashed_aside` does not hold up what comes next.
        options: for transformers' `from_pretrained`; with a `device_map` the model stays where that puts it.

    Returns:
        (model, sha256 of the weights or None where they are no safetensors files: what `hashing` returns).

    Raises:
        ValueError: unknown name, it can't be fetched or is damaged, or the weights are others than the config means.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    pair = resolve(name, NO_HEAD)
    check_target(name)
    disable_progress_bar()
    with counted():
        model, found = _read(
            pair, "weights", AutoModelForCausalLM, whole=True, dtype=dtype, output_loading_info=True,
            ignore_mismatched_sizes=True, **options,
        )  # fmt: skip
    _refuse_what_differs(pair, found)
    model = (model if "device_map" in options else model.to(device)).eval().requires_grad_(False)
    # Converted or read as it is, a file's weights are those of its hash
    file = None if is_embedded(pair.target_name) else gguf_path(pair)
    return model, hashing(_local_folder(pair) if file is None else file)


def load_stored(name: str | None, config, hashing=weights_sha256):
    """A GGUF target's weights in the file's own bits, for compiled code on a CPU.

    Args:
        name: as in `resolve`.
        config: what `load_config` gives.
        hashing: as in `load_model`.

    Returns:
        (stored model, sha256: of the embedded default's weights as converted ones have it, else of the file).

    Raises:
        ValueError: the file is damaged.
        NoRoom: its weights are more than what is free.
    """
    from jakiro.models.stored import StoredModel, bytes_kept

    pair = resolve(name, NO_HEAD)
    embedded, path = is_embedded(pair.target_name), gguf_path(pair)
    with one_sentence("target model", pair.target_path_or_hub_id, "weights"):
        read = read_gguf_model(path).weights
    check_room(pair.target_name, bytes_kept(read))
    with one_sentence("target model", pair.target_path_or_hub_id, "weights"):
        return StoredModel(config, read), EMBEDDED_SHA256 if embedded else hashing(path)


def is_gguf(pair: Pair) -> bool:
    """Whether a target is a GGUF file, as the embedded default is."""
    known = is_embedded(pair.target_name) or file_of(pair.target_name) is not None
    return known or Path(pair.target_path_or_hub_id).is_file()


def gguf_path(pair: Pair) -> Path | None:
    """Where a GGUF target's file lies, fetched where it is missing; None for other targets."""
    if is_embedded(pair.target_name):
        return embedded_file()[1]
    file, path = file_of(pair.target_name), Path(pair.target_path_or_hub_id)
    return file.fetched() if file is not None else path if path.is_file() else None


def refuse_damage(name: str | None = None) -> None:
    """Reads all weights of a target once more, after something about them was wrong.

    Raises:
        ValueError: they changed on disk since they were hashed; the next start of the embedded default makes it anew.
    """
    pair = resolve(name, NO_HEAD)
    folder = _local_folder(pair)
    if damaged_since(folder):
        cure = "start again to rebuild it" if is_embedded(pair.target_name) else "fetch or copy it again"
        raise ValueError(f"{folder} is damaged: its weights changed although their sizes and times did not; {cure}.")


def load_target(name: str | None = None, device="cpu", dtype="bfloat16", **options):
    """A target ready for inference: (model, tokenizer, sha256 of the weights), the tokenizer read first.

    Arguments and errors are `load_model`'s.
    """
    tokenizer = load_tokenizer(name)
    model, sha256 = load_model(name, device, dtype, **options)
    return model, tokenizer, sha256


def _refuse_another_way_of_quantising(pair: Pair, quantised) -> None:
    """A way that transformers does not know it skips, and reads the weights as plain ones."""
    from transformers.quantizers import AutoQuantizationConfig

    described = quantised if isinstance(quantised, dict) else quantised.to_dict()
    with one_sentence("target model", pair.target_path_or_hub_id, "way of quantising"):
        AutoQuantizationConfig.from_dict(described)


def _refuse_what_differs(pair: Pair, found: dict) -> None:
    """Where a tensor is missing or of another shape, transformers draws random numbers and goes on; what no weight is
    made of it leaves unread, such as the scales of quantised weights.
    """
    missing = sorted(found.get("missing_keys", ()))
    others = [f"{name} {tuple(came)} for {tuple(meant)}" for name, came, meant in found.get("mismatched_keys", ())]
    unread = sorted(name for name in found.get("unexpected_keys", ()) if not name.endswith(_BUFFERS))
    for what, names in (
        ("lack", missing),
        ("have other shapes than its config implies in", sorted(others)),
        ("hold what its config says nothing of:", unread),
    ):
        if names:
            raise ValueError(
                f"The target model {pair.target_path_or_hub_id} could not be loaded: its weights {what} "
                f"{first_of(names)}; use the config.json that belongs to them, or fetch both again."
            )


def _read(pair: Pair, part: str, kind, whole: bool = False, **options):
    """What one of transformers' auto classes reads from a target's folder or Hub id.

    Code that lies beside the files never runs, and nobody is asked on standard input whether it may.
    """
    source, revision = _prepared(pair, whole)
    if not Path(source).exists():
        require_hub(pair.target_path_or_hub_id)
    with one_sentence("target model", pair.target_path_or_hub_id, part):
        return kind.from_pretrained(source, revision=revision, trust_remote_code=False, **options)


def _local_folder(pair: Pair) -> Path:
    """Where the files of a loaded target lie."""
    from transformers.utils import cached_file

    source, revision = _prepared(pair, whole=True)
    return Path(source) if Path(source).is_dir() else Path(cached_file(source, "config.json", revision=revision)).parent


def _prepared(pair: Pair, whole: bool = False) -> tuple[str, str]:
    """What transformers can load, and its revision: for the embedded default and GGUF files a folder of the cache, made
    on first use, with their weights if it is to be whole.
    """
    if is_embedded(pair.target_name):
        return str(embedded_target() if whole else embedded_file()[0]), "main"
    path = gguf_path(pair)
    if path is not None:
        return str((converted_gguf if whole else described_gguf)(path)), "main"
    source = pair.target_path_or_hub_id
    hub_id, revision = (source, None) if Path(source).exists() else split_revision(source)
    return hub_id, revision or "main"
