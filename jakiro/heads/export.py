"""Export of a trained head as a folder for the Hub, in 16 or 8 bits."""

import json
import shutil
from pathlib import Path

from jakiro.heads.card import CARD_NAME, model_card
from jakiro.heads.checkpoint import CONFIG_NAME, WEIGHTS_NAME, load_head, save_head
from jakiro.system import file_sha256

FORMATS = ("hub", "int8")
# Training data and settings, written by training; an exported manifest also has the hash of the weights
MANIFEST_NAME = "manifest.json"


def export_head(head_folder: str | Path, out: str | Path, form: str) -> list[Path]:
    """Write a head into a new folder.

    Args:
        head_folder: A folder that `load_head` reads.
        out: A folder that is empty or does not exist.
        form: "hub", or "int8" for large matrices in 8 bits.

    Returns:
        The written files.

    Raises:
        ValueError: the form is unknown, or the folder is not empty.
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
