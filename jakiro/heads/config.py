"""A draft head's config.json as a frozen dataclass, checked when it is made."""

from dataclasses import MISSING, dataclass, field, fields

from jakiro.config import is_ascending, is_count, is_number, require

# Files that may hold a head's weights: in our own form first, then in other people's
WEIGHTS_NAMES = (
    "head.safetensors", "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin",
    "pytorch_model.bin.index.json", "medusa_lm_head.safetensors", "medusa_lm_head.pt",
)  # fmt: skip
FUSIONS = ("summed", "decoupled")
# One or more layers that read their own features; a layer with mask tokens; layers, then MLPs; MLPs alone; EAGLE-3's
# layers. A method from outside may bring a network under another name, which then checks its own fields
NETWORKS = ("layers", "masks", "staged", "mlps", "states")
PARALLEL = ("masks", "staged", "mlps")


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """A draft head's config.json: sizes, fusion, vocabulary, calibration, and what it was trained for.

    Attributes:
        hidden_size, num_attention_heads, num_key_value_heads, head_dim: of the head's decoder layers.
        vocab_size: of the target.
        draft_vocab_size: rows of the head's own output matrix; None scores the target's whole vocabulary.
        expert_intermediate_size: inner width of one expert.
        fusion: "summed" adds the experts and has a contrastive branch with two of them (arXiv 2502.06282); in
            "decoupled" each expert has a distribution of its own.
        num_experts: 2 for Jakiro, 1 for a dense layer, as EAGLE's.
        network: one of `NETWORKS`, or the name of one that a method from outside brings.
        num_layers: decoder layers; two experts have one.
        num_parallel: mask tokens, or MLPs, each of which predicts a level without waiting for the level above.
        published_blocks: residual blocks of MLPs in the form that their papers publish, for drafting only; 0 for ours.
        exit_layers: ascending numbers of the target's layers whose outputs are read; the layers up to the last of them
            run as a part of the draft. None for `NETWORKS`.
        own_text: trained on text that the draft wrote, by the target's judgement of it.
        fc_bias: whether the input projection has a bias.
        feature_layers: ascending numbers of the target's layers that EAGLE-3's heads read beside its last hidden
            state; see `jakiro.target.features`.
        rope_parameters: the target family's rotary settings, as transformers writes them.
        calibration: numbers that turn log probabilities into chances, by key, such as "main/2/greedy"; see
            `jakiro.heads.calibration`.
        target_name, target_sha256: the target it was trained for, and the hash of that target's weights.

    Raises:
        ValueError: a field has the wrong type or range, or two do not fit each other.
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
    network: str = "layers"
    num_layers: int = 1
    num_parallel: int = 0
    published_blocks: int = 0
    exit_layers: tuple[int, ...] = ()
    own_text: bool = False
    fc_bias: bool = True
    feature_layers: tuple[int, ...] = ()
    rms_norm_eps: float = 1e-6
    rope_parameters: dict = field(default_factory=lambda: {"rope_type": "default", "rope_theta": 10000.0})
    max_position_embeddings: int = 2048
    calibration: dict = field(default_factory=dict)
    target_name: str = ""
    target_sha256: str = ""

    def __post_init__(self) -> None:
        def need(condition: bool, sentence: str) -> None:
            require(condition, f"Draft head config: {sentence}.")

        sizes = ["hidden_size", "num_attention_heads", "num_key_value_heads", "vocab_size", "expert_intermediate_size"]
        for name in sizes:
            need(is_count(getattr(self, name), 1), f"{name} must be a positive whole number")
        need(is_count(self.max_position_embeddings, 1), "max_position_embeddings must be a positive whole number")
        need(self.head_dim is None or is_count(self.head_dim, 1), "head_dim must be a positive whole number")
        need(is_number(self.rms_norm_eps) and self.rms_norm_eps >= 0, "rms_norm_eps must be a number, not negative")
        need(isinstance(self.rope_parameters, dict), "rope_parameters must be an object")
        numbers = isinstance(self.calibration, dict) and all(map(is_number, self.calibration.values()))
        need(numbers, "calibration must be an object of numbers")
        drafted, layers, exits = self.draft_vocab_size, self.feature_layers, self.exit_layers
        fits = drafted is None or (is_count(drafted, 1) and drafted <= self.vocab_size)
        need(fits, f"draft_vocab_size must be 1 to vocab_size {self.vocab_size}, not {drafted}")
        need(self.fusion in FUSIONS, f"fusion must be one of {FUSIONS}, not {self.fusion!r}")
        need(isinstance(self.network, str), f"network must be a name, not {self.network!r}")
        outside = self.network not in NETWORKS
        need(
            is_count(self.num_parallel, 0) and (outside or (self.num_parallel > 0) == (self.network in PARALLEL)),
            f"num_parallel must be 0 for layers alone and else 1 or more, not {self.num_parallel}",
        )
        need(
            is_count(self.num_layers, 0)
            and (outside or (self.num_layers > 0) == (self.network != "mlps"))
            and (self.num_layers < 2 or self.num_experts == 1),
            f"num_layers must be 0 for MLPs alone, 1 for two experts, not {self.num_layers}",
        )
        need(
            is_count(self.published_blocks, 0) and (not self.published_blocks or self.network in ("staged", "mlps")),
            f"published_blocks must be 0, or more for MLPs, not {self.published_blocks}",
        )
        need(
            outside or self.network == "layers" or (self.num_experts, self.fusion) == (1, "summed"),
            f"network {self.network} needs one expert and summed fusion, not {self.num_experts} and {self.fusion}",
        )
        experts = self.num_experts
        need(is_count(experts, 1) and experts <= 2, f"num_experts must be 1 or 2, not {experts}")
        heads, kv_heads = self.num_attention_heads, self.num_key_value_heads
        need(heads % kv_heads == 0, f"{heads} query heads are no multiple of {kv_heads} key/value heads")
        need(is_ascending(layers, 1), f"feature_layers must be ascending layer numbers from 1 on, not {layers}")
        need(not layers or outside or self.network == "states", f"network {self.network} reads no feature_layers")
        need(
            is_ascending(exits, 1) and not (exits and (layers or not outside)),
            f"exit_layers must be ascending layer numbers from 1 on, and none for networks {NETWORKS} or beside "
            f"feature_layers, not {exits}",
        )
        object.__setattr__(self, "feature_layers", tuple(layers))
        object.__setattr__(self, "exit_layers", tuple(exits))
        if self.head_dim is None:
            sentence = f"hidden_size {self.hidden_size} is no multiple of {heads} heads and head_dim is missing"
            need(self.hidden_size % heads == 0, sentence)
            object.__setattr__(self, "head_dim", self.hidden_size // heads)

    @property
    def kind(self) -> str:
        """What methods ask for: "mixture" or "dense" for `network` "layers", by the experts; "distilled" with
        `own_text`; else the network.
        """
        if self.network != "layers":
            return "distilled" if self.own_text else self.network
        return "dense" if self.num_experts == 1 else "mixture"

    def layers_of(self, num_layers: int) -> tuple[int, ...]:
        """The layers that it reads of a target with `num_layers`, beside the last hidden state."""
        return self.feature_layers

    @property
    def read_layers(self) -> tuple[int, ...]:
        """The target's layers whose hidden states it learns from, beside the last one."""
        return self.feature_layers or self.exit_layers

    @property
    def contrastive(self) -> bool:
        """Whether one pass also predicts one position further (CEPD)."""
        return self.fusion == "summed" and self.num_experts == 2

    @property
    def target_hidden_size(self) -> int:
        """Width of the target's hidden states."""
        return self.hidden_size

    @property
    def feature_size(self) -> int:
        """Width of the target's features, read for each token."""
        return (1 + len(self.feature_layers)) * self.hidden_size

    @classmethod
    def from_dict(cls, values: dict) -> "DraftConfig":
        """Builds a config from a parsed config.json.

        Raises:
            ValueError: no dictionary, or a field is missing or unknown.
        """
        require(isinstance(values, dict), f"Draft head config must be a JSON object, not {type(values).__name__}.")
        known = {f.name for f in fields(cls)}
        unknown = sorted(set(values) - known)
        require(not unknown, f"Draft head config has unknown fields: {', '.join(unknown)}.")
        required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
        missing = sorted(required - set(values))
        require(not missing, f"Draft head config lacks the fields: {', '.join(missing)}.")
        return cls(**values)


def named_target(values: dict) -> str | None:
    """The target that a head's config.json names, in our own form or in speculators'; None where it names none."""
    if not isinstance(values, dict):
        return None
    about = values.get("speculators_config")
    verifier = about.get("verifier") if isinstance(about, dict) else None
    theirs = verifier.get("name_or_path") if isinstance(verifier, dict) else None
    found = values.get("target_name") or theirs
    return found if isinstance(found, str) and found else None


def rope_of(values: dict) -> dict:
    """Rotary settings of a config.json, old form or new, as transformers 5 writes them; without a base it is 10,000."""
    given = values.get("rope_parameters") or values.get("rope_scaling") or {}
    parameters = {name: value for name, value in given.items() if value is not None and name != "type"}
    parameters.setdefault("rope_type", given.get("type", "default"))
    parameters.setdefault("rope_theta", float(values.get("rope_theta") or 10000.0))
    return parameters
