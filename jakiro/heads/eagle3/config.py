"""An EAGLE-3 head's config.json."""

from dataclasses import dataclass

from jakiro.config import is_ascending
from jakiro.heads.config import count, need
from jakiro.heads.layer_config import DecoderConfig


@dataclass(frozen=True, kw_only=True)
class Eagle3Config(DecoderConfig):
    """An EAGLE-3 head's config.

    Attributes:
        feature_layers: Layers of the target that the head reads; empty for 2, L // 2 and L − 3 of L layers.
        target_hidden_size: Width of each of these states; `hidden_size` is the width of the head.
        num_states: Number of states.
        own_embedding: Whether it has its own embedding rows instead of the target's.
        own_output: Whether it has its own output rows instead of the target's.
        qk_norm: Whether queries and keys are normalized per head, as in Qwen3's layers.
        norm_before_residual: Whether the first layer's residual is h after its norm.
        norm_before_fc: Whether one norm is applied to all states together before `fc`.
        fc_norm: Whether each state has its own norm before `fc`.
        norm_output: Whether the state that is fed back is the one after the last norm (EAGLE-3.1).
    """

    num_layers: int = count(1)
    feature_layers: tuple[int, ...] = ()
    target_hidden_size: int | None = count(None)
    num_states: int = count(3)
    own_embedding: bool = False
    own_output: bool = True
    qk_norm: bool = False
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    kind = "eagle3"

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = self.feature_layers
        need(is_ascending(layers, 1), f"feature_layers must be ascending layer numbers from 1 on, not {layers}")
        object.__setattr__(self, "feature_layers", tuple(layers))
        if self.target_hidden_size is None:
            object.__setattr__(self, "target_hidden_size", self.hidden_size)
        need(
            not (self.norm_before_fc and self.fc_norm),
            "norm_before_fc and fc_norm exclude each other; use the config of these weights",
        )
        for has_own, description in ((self.own_embedding, "embedding rows"), (self.own_output, "output rows")):
            need(
                has_own or self.target_hidden_size == self.hidden_size,
                f"hidden_size {self.hidden_size} differs from the target's {self.target_hidden_size}, so the head "
                f"needs {description} of its own, and there are none",
            )

    def describe(self) -> str:
        return f"{super().describe()} over {self.num_states} hidden states of the target, as EAGLE-3's"

    @property
    def feature_size(self) -> int:
        return (1 + self.num_states) * self.target_hidden_size

    def layers_of(self, num_layers: int) -> tuple[int, ...]:
        return self.feature_layers or tuple(sorted({2, num_layers // 2, num_layers - 3}))
