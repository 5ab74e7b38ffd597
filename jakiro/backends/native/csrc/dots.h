/* Products of weights in 8 bits and rows rounded to 16 bits, with instructions that multiply pairs of whole numbers and
 * add both products to a 32-bit sum.
 *
 * In an (outputs, inputs) matrix each `block` inputs of an output share a scale and optionally a minimum, float16 or
 * float32: weight = scale * number + minimum. They are stored in panels of PANEL outputs: for each block PANEL scales,
 * then PANEL minima, if there are any, then the numbers as (block / 2, PANEL, 2); padded with zeros to whole panels and
 * blocks.
 *
 * A row's block is rounded with its own scale, largest number / 32767. Within a block a product is a sum of whole
 * numbers, which is exact. Blocks are added in their order, each by two products and two sums that round to float32:
 *
 *     result = result + sum * (weights' scale * row's scale)
 *     result = result + minimum * (row's scale * sum of the row's numbers)
 *
 * Nothing is fused, so every processor computes the same. If a block contains an infinity or NaN, the results of its row
 * are NaN. */

#pragma once

#include <stdint.h>

/* Storage of numbers in 8 bits. */
typedef struct {
    int64_t block, blocks; /* `block` is even */
    int64_t minima;        /* whether blocks have minima */
    int64_t scale_bytes;   /* 2 or 4, bytes of a scale and of a minimum */
} Blocks;

/* Rounded (rows, blocks * block). */
typedef struct {
    Blocks blocks;
    const int16_t *numbers;
    const float *scales; /* (rows, blocks) */
    const float *sums;   /* (rows, blocks), sums of a block's rounded numbers; unused without minima */
} Rounded;

/* Round (rows, inputs), optionally times the factors of the columns, into memory of so many floats that is aligned to a
 * cache line. */
int64_t rounded_floats(int64_t rows, Blocks blocks);
Rounded round_rows(const float *input, const float *factors, int64_t rows, int64_t inputs, Blocks blocks, float *memory);

/* Multiply rows `first` to `first` + `count` by one panel, into (count, PANEL). */
void dot_product(const int8_t *panel, Rounded rows, int64_t first, int64_t count, float *tile);

/* Bytes of a panel, and of the scales and minima before a block's numbers in it. */
int64_t panel_bytes(Blocks blocks);
int64_t scales_bytes(Blocks blocks);
