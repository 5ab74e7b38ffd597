"""Texts written at once by a lean decoder: one read of the weights serves all rows, attention runs per text.

One tensor holds all keys and values, with a place for each text, so that a new token copies only its own row. Packed
products round a row the same way however many rows there are. Attention reads as many keys of every text as the
longest has. The stock modules' batch: `writing.py`.
"""

from collections.abc import Callable, Collection
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from jakiro.kernels.cache import RowCache
from jakiro.kernels.linear import looked_up, packed_linear
from jakiro.kernels.rotary import apply_rotary
from jakiro.target.llama import FusedLlama

_FIRST_CAPACITY = 256
# The most rows that one pass reads, where more than one text waits
_PASS_ROWS = 512


class LeanBatch:
    """Rows being written.

    Args:
        model: a stock causal language model of Llama's shape, on a CPU, float32 or bfloat16.
        lean: its decoder; rotary angles must not change with the length.
        stop_ids: ids that end a text.
        make_row: from a request to the row that collects its tokens.
        choose: from rows and their (rows, vocab_size) logits to their next tokens.
    """

    def __init__(
        self, model, lean: FusedLlama, stop_ids: Collection[int], make_row: Callable, choose: Callable
    ) -> None:
        output = model.get_output_embeddings()
        self.lean, self.stop_ids, self.make_row, self.choose = lean, stop_ids, make_row, choose
        weight, bias = output.weight.detach(), output.bias
        stock = partial(functional.linear, weight=weight, bias=bias)
        self.output = packed_linear(weight, bias) if lean.packed else stock
        self.rows: list = []
        self.lengths: list[int] = []
        layers, kv_heads, head_dim = lean.cache_shape
        self.store = lean.embedding.new_zeros(layers, 2, 0, kv_heads, _FIRST_CAPACITY, head_dim)

    def join(self, requests: list) -> None:
        """Reads the requests' texts and writes the first token of each."""
        last = []
        for group in _groups(requests):
            last += self._read(group)
        self._take(self.rows[-len(requests) :], torch.stack(last))

    def _read(self, requests: list) -> list[Tensor]:
        """Adds the rows of requests that one pass reads, each seeing its own text only; returns their last features."""
        counts = [len(request.ids) for request in requests]
        total, first = sum(counts), len(self.rows)
        self._make_room(first + len(requests), max(counts) + 1)
        texts = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
        visible = (texts[:, None] == texts).tril_()
        positions = torch.cat([torch.arange(count) for count in counts])
        cache = RowCache(self.store.shape[0], total)
        ids = torch.tensor([token for request in requests for token in request.ids])
        features = self.lean(ids, positions, visible, cache, exact=False).split(counts)
        rows = cache.store.rows.split(counts, dim=3)
        for place, (request, own, kept) in enumerate(zip(requests, features, rows, strict=True), start=first):
            self.store[:, :, place, :, : kept.shape[3]] = kept
            row = self.make_row(request)
            row.read(own)
            self.rows.append(row)
            self.lengths.append(kept.shape[3])
        return [own[-1] for own in features]

    def advance(self) -> None:
        """Writes one more token of every row."""
        lean, count = self.lean, len(self.rows)
        self._make_room(count, max(self.lengths) + 1)
        positions, places = torch.tensor(self.lengths), torch.arange(count)
        columns = max(self.lengths) + 1
        mask = (torch.arange(columns) <= positions[:, None])[:, None, None]
        hidden = looked_up(lean.embedding, torch.tensor([row.written[-1] for row in self.rows]))
        cos, sin = (each[:, None].to(hidden.dtype) for each in lean.angles.at(positions, columns))
        heads = lean.num_heads + lean.num_kv_heads
        for layer, (all_keys, all_values) in zip(lean.layers, self.store, strict=True):
            normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.input_norm, layer.input_eps)
            joint = layer.query_key_value(normed).view(count, -1, lean.head_dim)
            rotated = apply_rotary(joint[:, :heads], cos, sin)
            all_keys[places, :, positions] = rotated[:, lean.num_heads :]
            all_values[places, :, positions] = joint[:, heads:]
            attended = functional.scaled_dot_product_attention(
                rotated[:, : lean.num_heads].reshape(count, lean.num_kv_heads, -1, lean.head_dim),
                all_keys[:count, :, :columns],
                all_values[:count, :, :columns],
                attn_mask=mask,
                scale=lean.scaling,
            )
            hidden = hidden + layer.output(attended.reshape(count, -1))
            normed = functional.rms_norm(hidden, hidden.shape[-1:], layer.middle_norm, layer.middle_eps)
            gate, up = layer.gate_up(normed).split(layer.inner_size, dim=-1)
            hidden = hidden + layer.down(functional.silu(gate).mul_(up))
        self.lengths = [length + 1 for length in self.lengths]
        features = functional.rms_norm(hidden, hidden.shape[-1:], lean.norm, lean.eps)
        for row, own in zip(self.rows, features.split(1), strict=True):
            row.read(own)
        self._take(self.rows, features)

    def leave(self) -> list:
        """Removes and returns the finished rows; the last rows move into their places."""
        finished = [row for row in self.rows if row.finished]
        for place in reversed([place for place, row in enumerate(self.rows) if row.finished]):
            row, length = self.rows.pop(), self.lengths.pop()
            if place < len(self.rows):
                self.store[:, :, place, :, :length] = self.store[:, :, len(self.rows), :, :length]
                self.rows[place], self.lengths[place] = row, length
        return finished

    def _take(self, rows: list, features: Tensor) -> None:
        for row, token in zip(rows, self.choose(rows, self.output(features).float()), strict=True):
            row.take(token, self.stop_ids)

    def _make_room(self, rows: int, columns: int) -> None:
        """Enlarges the store where it holds fewer rows or columns."""
        layers, two, held, heads, capacity, width = self.store.shape
        if rows <= held and columns <= capacity:
            return
        while capacity < columns:
            capacity *= 2
        larger = self.store.new_zeros(layers, two, max(2 * held if rows > held else held, rows), heads, capacity, width)
        larger[:, :, :held, :, : self.store.shape[4]] = self.store
        self.store = larger


def _groups(requests: list) -> list[list]:
    """The requests in their order, in groups of at most `_PASS_ROWS` rows, or of one text."""
    groups, rows = [], 0
    for request in requests:
        rows += len(request.ids)
        if not groups or rows > _PASS_ROWS:
            groups.append([])
            rows = len(request.ids)
        groups[-1].append(request)
    return groups
