"""A trained head as a folder to upload to the Hub, in 16 or 8 bits."""

import json
import shutil
from pathlib import Path

from jakiro.heads.card import CARD_NAME, model_card
from jakiro.heads.checkpoint import CONFIG_NAME, WEIGHTS_NAME, load_head, save_head
from jakiro.system import file_sha256

FORMATS = ("hub", "int8")
# What a head learned from, which training writes beside it; an exported one also has the hash of its weights
MANIFEST_NAME = "manifest.json"


def export_head(head_folder: str | Path, out: str | Path, form: str) -> list[Path]:
    """Writes a head into a new folder.

    Args:
        head_folder: a folder that `load_head` reads.
        out: a folder that does not exist yet, or is empty.
        form: "hub", or "int8": with large matrices in 8 bits.

    Returns:
        The files that were written.

    Raises:
        ValueError: an unknown form, or a folder with something in it.
    """
    if form not in FORMATS:
        raise ValueError(f"Unknown format {form!r}; choose one of {', '.join(FORMATS)}.")
    head_folder, out = Path(head_folder), Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ValueError(f"{out} is not empty; give a folder that does not exist yet.")
    head = load_head(head_folder)
    save_head(head, out, bits=8 if form == "int8" else 16)
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
