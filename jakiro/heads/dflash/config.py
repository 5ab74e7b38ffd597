"""A DFlash head's config.json."""

from dataclasses import dataclass

from jakiro.config import is_ascending
from jakiro.heads.config import count, need
from jakiro.heads.layer_config import DecoderConfig


@dataclass(frozen=True, kw_only=True)
class DFlashConfig(DecoderConfig):
    """A DFlash head's config.

    Attributes:
        num_layers: Number of the head's layers.
        block_size: Tokens of a pass: the root and mask tokens.
        mask_token_id: Token of the target; its embedding is the input of mask tokens.
        feature_layers: Numbers of the target's layers, from 1 and ascending, whose outputs the head reads; the last
            layer is `reads_last`.
        reads_last: Whether it also reads the target's last hidden state.
        own_embedding: Whether it has its own embedding matrix instead of the target's.
        own_output: Whether it has its own output matrix instead of the target's.
        sample_from_anchor: True if the root's row predicts the next token and each mask the token after its position,
            so that a block has one more level; False if masks predict the token at their position.
        sliding_layers: Numbers of the head's layers, from 0, with a sliding window.
        causal_layers: Numbers of the head's layers, from 0, with rows that do not attend to later rows.
        sliding_window: Number of positions w of the window; None for all.
        window_from_root: True if every row of a block attends to the w positions before the root and to the block;
            False if each row attends to positions less than w before or after its own.

    Raises:
        ValueError: layers do not ascend, the head reads no state, or the mask token is no token of the target.
    """

    num_layers: int = count(1)
    block_size: int = count(16, least=2)
    mask_token_id: int = count(0, least=0)
    feature_layers: tuple[int, ...] = ()
    reads_last: bool = False
    own_embedding: bool = False
    own_output: bool = False
    sample_from_anchor: bool = False
    sliding_layers: tuple[int, ...] = ()
    causal_layers: tuple[int, ...] = ()
    sliding_window: int | None = count(None)
    window_from_root: bool = False
    kind = "dflash"

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least in (("feature_layers", 1), ("sliding_layers", 0), ("causal_layers", 0)):
            layers = getattr(self, name)
            need(is_ascending(layers, least), f"{name} must be ascending numbers from {least} on, not {layers}")
            object.__setattr__(self, name, tuple(layers))
        need(self.num_states > 0, "feature_layers names no layer of the target")
        is_known = self.mask_token_id < self.vocab_size
        need(is_known, f"mask_token_id must be a token of {self.vocab_size}, not {self.mask_token_id}")

    def describe(self) -> str:
        return f"{super().describe()} over blocks of {self.block_size}, as DFlash's"

    @property
    def num_states(self) -> int:
        """Number of the target's hidden states that the head reads."""
        return len(self.feature_layers) + self.reads_last

    @property
    def num_levels(self) -> int:
        """Number of levels that a block predicts."""
        return self.block_size - 1 + self.sample_from_anchor

    @property
    def feature_size(self) -> int:
        """Width of a row of the target's features: the last hidden state, then each of `feature_layers`."""
        return (1 + len(self.feature_layers)) * self.hidden_size
