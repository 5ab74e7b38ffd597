/* Products of weights in 8 bits and rows rounded to 8 or 16, by instructions that add four products to a sum at once
 * (VNNI). They multiply a number from 0 to 255 by one from -128 to 127. So rows are kept with half of the range added, and
 * what that adds to each sum is taken off again; 16 bits are two such numbers, the upper one first.
 *
 * A weight of (outputs, inputs) lies in the order (panels, inputs / 4, PANEL, 4), padded with zeros to whole
 * panels and a multiple of LANES inputs. */

#pragma once

#include <stdint.h>

/* Rounded (rows, inputs), each row by a scale of its own. */
typedef struct {
    const uint8_t *numbers; /* (rows, bytes, inputs padded with what stands for 0) */
    const float *scales;    /* (rows,) */
    int64_t inputs, bytes;  /* padded; of a number, 1 or 2 */
} Rounded;

/* Rounds (rows, inputs) times the columns' factors, in memory of so many floats that begins at a cache line. */
int64_t rounded_floats(int64_t rows, int64_t inputs, int64_t bytes);
Rounded round_rows(const float *input, const float *factors, int64_t rows, int64_t inputs, int64_t bytes, float *memory);

/* Rows `first` to `first` + `count` times one panel, into (count, PANEL); `added` is 128 times the sum of each output's
 * weights, and `count` times the bytes of a number at most MOST_ROWS. */
void dot_product(const int8_t *panel, const int32_t *added, Rounded rows, int64_t first, int64_t count, float *tile);
