"""Shapes of known targets, so that costs can be estimated without a network or weights."""

from dataclasses import dataclass

from jakiro.models.families import num_kv_heads


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder of Llama's kind."""

    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @classmethod
    def of(cls, config) -> "Shape":
        """Return the shape of a transformers config."""
        text = config.get_text_config()
        heads = text.num_attention_heads
        head_dim = getattr(text, "head_dim", None) or text.hidden_size // heads
        sizes = (text.hidden_size, text.intermediate_size, text.num_hidden_layers)
        return cls(*sizes, heads, num_kv_heads(text), head_dim, text.vocab_size)

    @property
    def layer_weights(self) -> int:
        """Number of weights of all layers."""
        return self.layers * (self._attention + 3 * self.hidden * self.inner)

    @property
    def weights_read(self) -> int:
        """Number of weights that a pass reads: all layers and the output matrix."""
        return self.layer_weights + self.vocabulary * self.hidden

    @property
    def head_weights_read(self) -> int:
        """Number of weights that a pass of an official head reads: its two experts have the width of the state."""
        return self._attention + (2 + 2 * 3) * self.hidden**2 + self.vocabulary * self.hidden

    @property
    def _attention(self) -> int:
        """Number of weights of one layer's attention."""
        return self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def cache_row(self) -> int:
        """Numbers per token in the cache."""
        return 2 * self.layers * self.kv_heads * self.head_dim


SEVEN_B = Shape(4096, 11_008, 32, 32, 32, 128, 32_000)
THIRTEEN_B = Shape(5120, 13_824, 40, 40, 40, 128, 32_000)
SHAPES = {
    "vicuna-7b-v1.3": SEVEN_B,
    "vicuna-13b-v1.3": THIRTEEN_B,
    "llama2-chat-7b": SEVEN_B,
    "llama2-chat-13b": THIRTEEN_B,
    "llama3-instruct-8b": Shape(4096, 14_336, 32, 32, 8, 128, 128_256),
    "smollm2-135m-instruct": Shape(576, 1536, 30, 9, 3, 64, 49_152),
}
