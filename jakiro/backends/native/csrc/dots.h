/* Products of weights in 8 bits and rows rounded to 16, by instructions that multiply pairs of whole numbers and add
 * both products to a sum in 32 bits.
 *
 * Of (outputs, inputs) each `block` inputs of an output share a scale and, in some, a minimum, float16 or float32:
 * weight = scale * number + minimum. They lie in panels of PANEL outputs, of each block first PANEL scales, then PANEL
 * minima, if there are any, then the numbers as (block / 2, PANEL, 2); padded with zeros to whole panels and blocks.
 *
 * A row's block is rounded by a scale of its own, largest number / 32767. Within a block a product is a sum of whole
 * numbers, which is exact. Blocks are added in their order, each by two products and two sums that round to float32:
 *
 *     result = result + sum * (weights' scale * row's scale)
 *     result = result + minimum * (row's scale * sum of the row's numbers)
 *
 * Nothing is fused, so every processor computes the same. A block that holds an infinity or no number makes its row's
 * results no numbers. */

#pragma once

#include <stdint.h>

/* How numbers in 8 bits are stored. */
typedef struct {
    int64_t block, blocks; /* `block` is even */
    int64_t minima;        /* whether there are any */
    int64_t scale_bytes;   /* 2 or 4, of a scale and of a minimum */
} Blocks;

/* Rounded (rows, blocks * block). */
typedef struct {
    Blocks blocks;
    const int16_t *numbers;
    const float *scales; /* (rows, blocks) */
    const float *sums;   /* (rows, blocks), of a block's rounded numbers; unless there are minima, nothing */
} Rounded;

/* Rounds (rows, inputs) times the columns' factors, or as they are, in memory of so many floats that begins at a cache
 * line. */
int64_t rounded_floats(int64_t rows, Blocks blocks);
Rounded round_rows(const float *input, const float *factors, int64_t rows, int64_t inputs, Blocks blocks, float *memory);

/* Rows `first` to `first` + `count` times one panel, into (count, PANEL). */
void dot_product(const int8_t *panel, Rounded rows, int64_t first, int64_t count, float *tile);

/* Bytes of a panel, and of the scales and minima before a block's numbers in it. */
int64_t panel_bytes(Blocks blocks);
int64_t scales_bytes(Blocks blocks);
