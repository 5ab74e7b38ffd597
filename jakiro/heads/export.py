"""A trained head in another format: EAGLE's for servers, or a folder to upload to the Hub, in 16 or 8 bits."""

import json
import shutil
from pathlib import Path

import torch

from jakiro.heads.base import DraftHead
from jakiro.heads.card import CARD_NAME, kind_of_head, model_card
from jakiro.heads.checkpoint import CONFIG_NAME, WEIGHTS_NAME, file_sha256, load_head, save_head, write_tensors
from jakiro.heads.config import DraftConfig
from jakiro.heads.foreign import to_eagle

FORMATS = ("eagle", "hub", "int8")
EAGLE_WEIGHTS_NAME = "model.safetensors"
# What a head learned from, which training writes beside it; an exported one also has the hash of its weights
MANIFEST_NAME = "manifest.json"


def export_head(head_folder: str | Path, out: str | Path, form: str) -> list[Path]:
    """Writes a head into a new folder.

    Args:
        head_folder: a folder that `load_head` reads.
        out: a folder that does not exist yet, or is empty.
        form: "eagle", "hub", or "int8": as "hub", with large matrices in 8 bits.

    Returns:
        The files that were written.

    Raises:
        ValueError: an unknown form, a folder with something in it, or a head that EAGLE's form cannot hold.
    """
    if form not in FORMATS:
        raise ValueError(f"Unknown format {form!r}; choose one of {', '.join(FORMATS)}.")
    head_folder, out = Path(head_folder), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; give a folder that does not exist yet.")
    head = load_head(head_folder)
    if form == "eagle":
        _refuse_what_eagle_cannot_hold(head.config)
    out.mkdir(parents=True, exist_ok=True)
    return (
        _write_eagle(head, out)
        if form == "eagle"
        else _write_hub(head, head_folder, out, bits=8 if form == "int8" else 16)
    )


def eagle_config(config: DraftConfig) -> dict:
    """The config.json that EAGLE publishes beside a head: a one-layer Llama's, plus `bias`."""
    rope = {name: value for name, value in config.rope_parameters.items() if name != "rope_theta"}
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.expert_intermediate_size,
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "head_dim": config.head_dim,
        "num_hidden_layers": 1,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_position_embeddings,
        "rope_theta": config.rope_parameters.get("rope_theta", 10000.0),
        "rope_scaling": None if rope.get("rope_type", "default") == "default" else rope,
        "bias": config.fc_bias,
        "tie_word_embeddings": False,
        "torch_dtype": "float16",
    }


def _refuse_what_eagle_cannot_hold(config: DraftConfig) -> None:
    if config.network != "layers" or config.num_layers > 1:
        raise ValueError(
            f"This head is {kind_of_head(config)}: EAGLE's format holds one layer alone. Export it with --format hub."
        )
    if config.num_experts > 1:
        raise ValueError(
            f"This head mixes {config.num_experts} experts, and no server reads such heads yet: EAGLE's format holds "
            "one dense layer. Export it with --format hub, or train a head with one expert."
        )
    if config.fusion != "summed":
        raise ValueError(
            f"This head has {config.fusion} fusion, EAGLE's format holds SwiGLU layers; export it with --format hub."
        )
    if config.draft_vocab_size is not None:
        raise ValueError(
            f"This head scores {config.draft_vocab_size:,} of the target's {config.vocab_size:,} tokens, EAGLE's "
            "format scores all of them; train a head without a reduced vocabulary, or export it with --format hub."
        )


def _write_eagle(head: DraftHead, out: Path) -> list[Path]:
    tensors = {name: tensor.to(torch.float16).contiguous() for name, tensor in to_eagle(head.state_dict()).items()}
    write_tensors(tensors, out / EAGLE_WEIGHTS_NAME, metadata={"format": "pt"})
    (out / CONFIG_NAME).write_text(json.dumps(eagle_config(head.config), indent=2) + "\n", encoding="utf-8")
    return [out / CONFIG_NAME, out / EAGLE_WEIGHTS_NAME]


def _write_hub(head: DraftHead, head_folder: Path, out: Path, bits: int) -> list[Path]:
    save_head(head, out, bits)
    card = head_folder / CARD_NAME
    if card.is_file():
        shutil.copyfile(card, out / CARD_NAME)
    else:
        (out / CARD_NAME).write_text(model_card(head), encoding="utf-8")
    written = [out / CONFIG_NAME, out / WEIGHTS_NAME, out / CARD_NAME]
    manifest = head_folder / MANIFEST_NAME
    if manifest.is_file():
        values = json.loads(manifest.read_text(encoding="utf-8")) | {"sha256": file_sha256(out / WEIGHTS_NAME)}
        (out / MANIFEST_NAME).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        written.append(out / MANIFEST_NAME)
    return written
