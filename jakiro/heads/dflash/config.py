"""A DFlash head's config.json."""

from dataclasses import dataclass

from jakiro.config import is_ascending
from jakiro.heads.config import count, need
from jakiro.heads.layer_config import DecoderConfig


@dataclass(frozen=True, kw_only=True)
class DFlashConfig(DecoderConfig):
    """A DFlash head's config.

    Attributes:
        block_size: tokens of a pass: the root and mask tokens.
        mask_token_id: the target's token whose embedding stands at the others.
        feature_layers: layers of the target, below its last, whose output it reads.
        reads_last: it reads the target's last hidden state after them.
        own_embedding, own_output: it has an embedding or output matrix of its own; else it shares the target's.
        sample_from_anchor: the root's row predicts the next token and each mask the one after it, so that a block
            has one level more; else the masks predict their own places.
        sliding_layers, causal_layers: numbers, from 0 on, of the head's layers that see a window, and of those whose
            rows do not see the rows after them.
        sliding_window: positions that such a layer sees; None for all.
        window_from_root: the window counts back from the root, for the whole block; else from every token.
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
        known = self.mask_token_id < self.vocab_size
        need(known, f"mask_token_id must be a token of {self.vocab_size}, not {self.mask_token_id}")

    def describe(self) -> str:
        return f"{super().describe()} over blocks of {self.block_size}, as DFlash's"

    @property
    def num_states(self) -> int:
        """Hidden states of the target that it reads."""
        return len(self.feature_layers) + self.reads_last

    @property
    def num_levels(self) -> int:
        """Levels that a block predicts."""
        return self.block_size - 1 + self.sample_from_anchor

    @property
    def feature_size(self) -> int:
        return (1 + len(self.feature_layers)) * self.hidden_size
