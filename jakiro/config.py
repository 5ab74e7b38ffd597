"""Settings as frozen dataclasses, checked once at the door.

`DraftConfig` is a draft head's config.json, `TreeConfig` how a draft tree is grown, `SamplingParams` how tokens are
chosen. Nothing here knows of devices or command lines.
"""

import math
from dataclasses import asdict, dataclass, field, fields

FUSIONS = ("summed", "decoupled")
POLICIES = ("auto", "fixed")
MAX_SEED = 2**63


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(sentence)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen; the same values give the same text for every decoding method.

    Attributes:
        temperature: 0 means greedy; otherwise logits are divided by it.
        top_p: nucleus mass in (0, 1]; 1 keeps everything.
        top_k: keep the k likeliest tokens; 0 keeps everything.
        seed: 0 <= seed < 2**63; keys the noise together with the absolute position.
        max_new_tokens: at most this many tokens after the prompt, at least 1.
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    max_new_tokens: int = 256

    def __post_init__(self) -> None:
        _require(
            _is_number(self.temperature) and 0 <= self.temperature <= 2,
            f"Temperature must be between 0 and 2; you gave {self.temperature}.",
        )
        _require(
            _is_number(self.top_p) and 0 < self.top_p <= 1,
            f"Top-p must be above 0 and at most 1; you gave {self.top_p}.",
        )
        _require(_is_count(self.top_k, 0), f"Top-k must be a whole number, 0 or more; you gave {self.top_k}.")
        _require(
            _is_count(self.seed, 0) and self.seed < MAX_SEED,
            f"Seed must be a whole number from 0 to 2^63 - 1; you gave {self.seed}.",
        )
        _require(_is_count(self.max_new_tokens, 1), f"Length must be at least 1 token; you gave {self.max_new_tokens}.")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class TreeConfig:
    """How a draft tree is grown (EAGLE-2 style with CEPD; Jakiro, arXiv 2502.06282).

    Attributes:
        width: frontier width K: children tried per node and nodes expanded per level.
        depth: depth of the deepest node; 0 means the root alone.
        nodes: node budget, root included; 1 means the root alone.
        policy: "fixed" uses depth and nodes as given; "auto" takes them as upper bounds and lets measured costs choose.
        shared_noise: rank draft candidates with the target's own keyed noise at temperature > 0. It concerns the
            draft's ranking only; the text is the same either way.
        context: also propose the continuation of an earlier occurrence in prompt and output.
        contrastive: take the last two levels from one pass where the head has a contrastive branch.
    """

    width: int = 8
    depth: int = 5
    nodes: int = 24
    policy: str = "fixed"
    shared_noise: bool = True
    context: bool = False
    contrastive: bool = True

    def __post_init__(self) -> None:
        _require(_is_count(self.width, 1) and self.width <= 64, f"Tree width must be 1 to 64; you gave {self.width}.")
        _require(_is_count(self.depth, 0) and self.depth <= 16, f"Tree depth must be 0 to 16; you gave {self.depth}.")
        _require(_is_count(self.nodes, 1) and self.nodes <= 256, f"Tree nodes must be 1 to 256; you gave {self.nodes}.")
        _require(self.policy in POLICIES, f"Tree policy must be one of {POLICIES}; you gave {self.policy!r}.")

    @property
    def root_only(self) -> bool:
        return self.depth == 0 or self.nodes == 1


# Plain decoding's tree, and the bounds within which trees size themselves where nothing else is asked for.
ROOT_ONLY = TreeConfig(depth=0, nodes=1)
AUTOMATIC_TREE = TreeConfig(policy="auto", nodes=64, depth=8)


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """A draft head's config.json: sizes, fusion, vocabulary, calibration, and what it was trained for.

    Attributes:
        hidden_size, num_attention_heads, num_key_value_heads, head_dim: the head's one decoder layer.
        vocab_size: the target's vocabulary; draft_vocab_size: rows of the head's own output function, or None when
            it scores the whole vocabulary with the target's.
        expert_intermediate_size: inner width of one expert.
        fusion: "summed" (two experts summed, contrastive branch) or "decoupled" (each expert its own distribution).
        num_experts: 2 for Jakiro, 1 for an EAGLE head.
        fc_bias: whether the input projection has a bias.
        feature_layers: layers of the target that are read beside its last hidden state, ascending; see
            `jakiro.target.features`.
        rope_parameters: the target family's rotary settings as transformers writes them.
        calibration: what log q weighs by key "main/<depth>/greedy", "contrastive/<depth>/sampled", …, 1 where a key is
            missing, and what the shared noise weighs beside "sampled" by "main/<depth>/noise", …, else the same.
        target_name, target_sha256: what the head was trained for; the hash is of the target's weights.
    """

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    vocab_size: int
    expert_intermediate_size: int
    head_dim: int | None = None
    draft_vocab_size: int | None = None
    fusion: str = "summed"
    num_experts: int = 2
    fc_bias: bool = True
    feature_layers: tuple[int, ...] = ()
    rms_norm_eps: float = 1e-6
    rope_parameters: dict = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    max_position_embeddings: int = 2048
    calibration: dict = field(default_factory=dict)
    target_name: str = ""
    target_sha256: str = ""

    def __post_init__(self) -> None:
        for name in (
            "hidden_size",
            "num_attention_heads",
            "num_key_value_heads",
            "vocab_size",
            "expert_intermediate_size",
        ):
            _require(_is_count(getattr(self, name), 1), f"Draft head config: {name} must be a positive whole number.")
        _require(
            self.draft_vocab_size is None
            or (_is_count(self.draft_vocab_size, 1) and self.draft_vocab_size <= self.vocab_size),
            f"Draft head config: draft_vocab_size must be 1 to vocab_size {self.vocab_size}, "
            f"not {self.draft_vocab_size}.",
        )
        _require(self.fusion in FUSIONS, f"Draft head config: fusion must be one of {FUSIONS}, not {self.fusion!r}.")
        _require(self.num_experts in (1, 2), f"Draft head config: num_experts must be 1 or 2, not {self.num_experts}.")
        _require(
            self.num_attention_heads % self.num_key_value_heads == 0,
            f"Draft head config: {self.num_attention_heads} query heads are no multiple of "
            f"{self.num_key_value_heads} key/value heads.",
        )
        layers = self.feature_layers
        _require(
            isinstance(layers, (list, tuple))
            and all(_is_count(layer, 1) for layer in layers)
            and list(layers) == sorted(set(layers)),
            f"Draft head config: feature_layers must be ascending layer numbers from 1 on, not {layers}.",
        )
        object.__setattr__(self, "feature_layers", tuple(layers))
        if self.head_dim is None:
            _require(
                self.hidden_size % self.num_attention_heads == 0,
                f"Draft head config: hidden_size {self.hidden_size} is no multiple of "
                f"{self.num_attention_heads} heads and head_dim is missing.",
            )
            object.__setattr__(self, "head_dim", self.hidden_size // self.num_attention_heads)

    @property
    def contrastive(self) -> bool:
        """Whether one pass also predicts one position further (CEPD)."""
        return self.fusion == "summed" and self.num_experts == 2

    @property
    def feature_size(self) -> int:
        """Width of what is read from the target per token."""
        return (1 + len(self.feature_layers)) * self.hidden_size

    def to_dict(self) -> dict:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict) -> "DraftConfig":
        """Builds a config from a parsed config.json.

        Raises:
            ValueError: no dictionary, or a field is missing or unknown.
        """
        _require(isinstance(values, dict), f"Draft head config must be a JSON object, not {type(values).__name__}.")
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        _require(not unknown, f"Draft head config has unknown fields: {', '.join(unknown)}.")
        required = {"hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size"}
        missing = sorted((required | {"expert_intermediate_size"}) - set(values))
        _require(not missing, f"Draft head config lacks the fields: {', '.join(missing)}.")
        return cls(**values)
