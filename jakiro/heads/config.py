"""Configs of draft heads: frozen dataclasses that are validated when they are constructed.

Each kind of head adds its own fields, see `jakiro.heads.kind`. This module does not import torch.
"""

from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Any, ClassVar, NamedTuple

from jakiro.config import is_count, is_number, require

# Possible names of the weights file: first the name in this package, then the names of published heads
WEIGHTS_NAMES = (
    "head.safetensors", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model.bin.index.json", "medusa_lm_head.safetensors", "medusa_lm_head.pt",
)  # fmt: skip
# The field of a config.json that names the kind of head
KIND = "kind"


def need(condition: bool, sentence: str) -> None:
    """Raise ValueError about a head's config if the condition is False; the sentence has no full stop."""
    require(condition, f"Draft head config: {sentence}.")


def count(default: int | None = MISSING, least: int = 1) -> Any:
    """Return a dataclass field for a whole number, `least` or more; None is allowed if it is the default."""
    return field(default=default, metadata={"least": least})


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """Config fields of all kinds of heads.

    Attributes:
        hidden_size: Width of the features that the head predicts.
        vocab_size: Vocabulary size of the target.
        draft_vocab_size: Rows of the head's own output matrix; None scores the target's whole vocabulary.
        max_position_embeddings: Number of positions that the head was trained for.
        calibration: Calibration numbers by key, such as "main/2/greedy"; see `jakiro.heads.calibration`.
        target_name: Name of the target that the head was trained for.
        target_sha256: Hash of that target's weights.
        kind: Name in `jakiro.heads.kinds`, which config.json contains in addition to the fields.

    Raises:
        ValueError: a field has the wrong type or range, or two fields contradict each other.
    """

    hidden_size: int = count()
    vocab_size: int = count()
    draft_vocab_size: int | None = count(None)
    max_position_embeddings: int = count(2048)
    calibration: dict = field(default_factory=dict)
    target_name: str = ""
    target_sha256: str = ""
    kind: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for entry in fields(self):
            least, value = entry.metadata.get("least"), getattr(self, entry.name)
            is_valid = least is None or is_count(value, least) or (value is None and entry.default is None)
            need(is_valid, f"{entry.name} must be a whole number, {least} or more; got {value!r}")
            for kind, description in ((str, "text"), (bool, "true or false")):
                need(
                    entry.type is not kind or type(value) is kind, f"{entry.name} must be {description}; got {value!r}"
                )
        has_numbers = isinstance(self.calibration, dict) and all(map(is_number, self.calibration.values()))
        need(has_numbers, "calibration must be an object of numbers")
        size = self.draft_vocab_size or 0
        need(size <= self.vocab_size, f"draft_vocab_size must be 1 to vocab_size {self.vocab_size}; got {size}")

    def describe(self) -> str:
        """Return a description of the network."""
        return f"a network of the kind “{self.kind}”"

    @property
    def only_drafts(self) -> bool:
        """True for a published form of a head, which training does not support."""
        return False

    @property
    def feature_layers(self) -> tuple[int, ...]:
        """Layers of the target, named in the config, that the head reads in addition to the last state."""
        return ()

    def layers_of(self, num_layers: int) -> tuple[int, ...]:
        """Return the layers that the head reads of a target with `num_layers`, without the last hidden state."""
        return self.feature_layers

    @property
    def target_hidden_size(self) -> int:
        """Width of the target's hidden states."""
        return self.hidden_size

    @property
    def feature_size(self) -> int:
        """Width of a row of the target's features."""
        return self.hidden_size

    def misfits(self, target_config) -> list[str]:
        """Return why it does not fit a target's transformers config, see `jakiro.heads.checkpoint.misfits`."""
        return differences(
            ("hidden size", self.target_hidden_size, target_config.hidden_size),
            ("vocabulary", self.vocab_size, target_config.vocab_size),
        )

    def to_dict(self) -> dict:
        """Return the contents of config.json."""
        return {KIND: self.kind} | asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "DraftConfig":
        """Create a config from a parsed config.json of this kind.

        Raises:
            ValueError: a field is missing or unknown.
        """
        values = {name: value for name, value in values.items() if name != KIND}
        names = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - names)
        require(not unknown, f"Draft head config has unknown fields: {', '.join(unknown)}.")
        required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
        missing = sorted(required - set(values))
        require(not missing, f"Draft head config has no fields {', '.join(missing)}.")
        return cls(**values)


def differences(*compared: tuple[str, int, int]) -> list[str]:
    """Return a sentence for each difference.

    Args:
        compared: Description, number of the head and number of the target.
    """
    return [
        f"The draft head has {description} {ours:,}, the target {theirs:,}; choose a head trained for this target."
        for description, ours, theirs in compared
        if ours != theirs
    ]


class HeadSummary(NamedTuple):
    """Facts of a config.json in the format of this package that are available without loading the head."""

    kind: str
    target_name: str
    feature_layers: tuple[int, ...]

    @classmethod
    def of(cls, values: dict) -> "HeadSummary":
        """Return the summary of a parsed config.json."""
        return cls(values[KIND], values.get("target_name", ""), tuple(values.get("feature_layers", ())))


def named_target(values: dict) -> str | None:
    """Return the target's name in a head's config.json, in this package's format or in speculators'; None if absent."""
    if not isinstance(values, dict):
        return None
    about = values.get("speculators_config")
    verifier = about.get("verifier") if isinstance(about, dict) else None
    theirs = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    name = values.get("target_name") or theirs
    return name if isinstance(name, str) and name else None


def rope_of(values: dict) -> dict:
    """Return the rotary settings of an old or new config.json in the form of transformers 5.

    The default base is 10,000. If layers with sliding windows have other settings, those of full attention are
    returned.
    """
    settings = values.get("rope_parameters") or values.get("rope_scaling") or {}
    settings = settings.get("full_attention", settings)
    parameters = {name: value for name, value in settings.items() if value is not None and name != "type"}
    parameters.setdefault("rope_type", settings.get("type", "default"))
    parameters.setdefault("rope_theta", float(values.get("rope_theta") or 10000.0))
    return parameters
