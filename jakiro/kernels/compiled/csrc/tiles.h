/* Products by a processor's matrix tiles (Intel's AMX). Tiles multiply bfloat16 and add in float32, so each number of a
 * row is split into three bfloat16 parts, which lose nothing, and their products with weights that bfloat16 holds are
 * exact: as in the other products only the sums are rounded. Many rows cost little more than one, since a tile
 * multiplies sixteen rows in the time of one.
 *
 * A weight of (outputs, inputs) lies in the order in which tiles read it: (panels, inputs / 32, 2, 16, 16, 2) bfloat16,
 * of a panel's 32 outputs the first half, then the second, 16 pairs of inputs for each of 16 outputs, padded with
 * zeros.
 */

#pragma once

#include <stdint.h>

/* Rows whose parts fill two tiles. */
#define TILED_ROWS 10

/* Numbers of (rows, inputs) in three parts each. */
typedef struct {
    const uint16_t *numbers;
    int64_t rows, inputs;
} Parts;

/* The parts of (rows, inputs), in memory of so many floats that begins at a cache line. */
int64_t parts_floats(int64_t rows, int64_t inputs);
Parts split(const float *input, int64_t rows, int64_t inputs, float *memory);

/* Rows `first` to `first` + `count` times one panel, into (count, 32); `first` is a multiple of TILED_ROWS, which
 * `count` does not exceed. Nothing is read ahead from `end` on, where another thread's panels begin. */
void tiled_product(const uint16_t *panel, const uint16_t *end, Parts parts, int64_t first, int64_t count, float *tile);

/* How many neighbouring panels a block of TILED_ROWS rows is multiplied by before the next block's turn. */
int64_t tiled_panels_together(int64_t rows, int64_t inputs);

/* Between the two this thread may multiply the parts of so many rows. */
void open_tiles(int64_t rows);
void close_tiles(void);
