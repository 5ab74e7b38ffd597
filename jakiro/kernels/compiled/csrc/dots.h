/* Products of weights in 8 bits and rows rounded to 16, by instructions that multiply pairs of whole numbers and add
 * both products to a sum in 32 bits.
 *
 * A weight of (outputs, inputs) lies in the order (panels, inputs / 2, PANEL, 2), padded with zeros to whole panels and
 * a multiple of LANES inputs. */

#pragma once

#include <stdint.h>

/* Rounded (rows, inputs), each row by a scale of its own. */
typedef struct {
    const int16_t *numbers; /* (rows, padded inputs) */
    const float *scales;    /* (rows,) */
    int64_t inputs;         /* padded */
} Rounded;

/* Rounds (rows, inputs) times the columns' factors, in memory of so many floats that begins at a cache line. */
int64_t rounded_floats(int64_t rows, int64_t inputs);
Rounded round_rows(const float *input, const float *factors, int64_t rows, int64_t inputs, float *memory);

/* Rows `first` to `first` + `count` times one panel, into (count, PANEL). */
void dot_product(const int8_t *panel, Rounded rows, int64_t first, int64_t count, float *tile);
