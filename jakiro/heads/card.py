"""Model cards of draft heads: the config, and after training the settings and results of training."""

from collections.abc import Mapping
from pathlib import Path

from jakiro.heads.base import DraftHead

CARD_NAME = "README.md"
# Marks cards written by `train`, which may replace them; other cards are never overwritten
WRITTEN_BY_TRAINING = "<!-- Written by train; remove this line to keep your own words. -->"


def model_card(head: DraftHead, sections: Mapping[str, Mapping[str, object]] | None = None) -> str:
    """Return a card in the Hub's format.

    Args:
        sections: Tables by title; each table has values by name.
    """
    config = head.config
    rows = {
        "Target": config.target_name or "not recorded",
        "Target's weights (SHA-256)": config.target_sha256 or "not recorded",
        "Kind": config.describe(),
        "Parameters": f"{sum(parameter.numel() for parameter in head.parameters()):,}",
        "Hidden size": config.hidden_size,
        "Draft vocabulary": f"{config.draft_vocab_size or config.vocab_size:,} of {config.vocab_size:,}",
        "Calibrated": "yes" if config.calibration else "no",
    }
    hub_id = f"base_model: {config.target_name}\n" if config.target_name.count("/") == 1 else ""
    parts = [
        f"---\nlibrary_name: jakiro\ntags: [speculative-decoding, draft-head]\n{hub_id}---\n",
        f"# A draft head for {config.target_name or 'a target model'}\n",
        "Proposes tokens that the target model checks; the text stays the target's own.\n",
        _table(rows),
        '```console\npython -m jakiro generate --target TARGET --head THIS_REPOSITORY --prompt "Hello"\n```\n',
        *(f"## {title}\n\n{_table(values)}" for title, values in (sections or {}).items()),
    ]
    return "\n".join(parts)


def write_training_card(head: DraftHead, folder: Path, sections: Mapping[str, Mapping[str, object]]) -> None:
    """Write the card of a trained head, unless a card exists that training did not write."""
    path = folder / CARD_NAME
    if not path.is_file() or WRITTEN_BY_TRAINING in path.read_text(encoding="utf-8"):
        path.write_text(f"{model_card(head, sections)}\n{WRITTEN_BY_TRAINING}\n", encoding="utf-8")


def _table(values: Mapping[str, object]) -> str:
    return "| | |\n| --- | --- |\n" + "".join(f"| {name} | {value} |\n" for name, value in values.items())
