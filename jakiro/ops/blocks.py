"""Quantized matrices as a GGUF file stores them: rows of blocks with common scales.

A block is a group of consecutive inputs of one output. Its inputs share a scale and, in some types, a minimum:
weight = scale * number + minimum, where number is an integer of 4 to 8 bits. K types store the minimum without its
minus sign. The C code also uses these terms, see `dots.h`.
"""

from typing import NamedTuple

import numpy as np


class StoredBlocks(NamedTuple):
    """A quantized matrix in the bytes of its file.

    Attributes:
        kind: ggml's name of the type, a key of `BLOCKS`.
        rows: (outputs, bytes of a row) uint8.
        order: (outputs,) int64, the index of the stored row of each output; None if they are in order.
    """

    kind: str
    rows: np.ndarray
    order: np.ndarray | None = None


class BlockFormat(NamedTuple):
    """A block type of ggml.

    Attributes:
        type_id: ggml's number of the type.
        size: Inputs that share a scale.
        has_minima: Whether a block has a minimum besides its scale.
        stored_size: Inputs that are stored together.
    """

    type_id: int
    size: int
    has_minima: bool
    stored_size: int


BLOCKS = {
    "Q4_0": BlockFormat(2, 32, False, 32),
    "Q4_1": BlockFormat(3, 32, True, 32),
    "Q5_0": BlockFormat(6, 32, False, 32),
    "Q5_1": BlockFormat(7, 32, True, 32),
    "Q8_0": BlockFormat(8, 32, False, 32),
    "Q4_K": BlockFormat(12, 32, True, 256),
    "Q5_K": BlockFormat(13, 32, True, 256),
    "Q6_K": BlockFormat(14, 16, False, 256),
}
