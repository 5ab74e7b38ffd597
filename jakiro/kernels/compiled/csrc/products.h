/* Matrix products of few rows: weights in panels, each output's sum in the order of its inputs. */

#pragma once

#include "tiles.h"
#include "vectors.h"

/* Rows whose sums fit into registers together. */
#if LANES == 16
#define MOST_ROWS 14
#elif LANES == 8
#define MOST_ROWS 6
#else
#define MOST_ROWS 8
#endif
#define PANEL (2 * LANES)

/* A weight of (outputs, inputs) in panels of PANEL outputs: (panels, inputs, PANEL), the last one padded with zeros. */
typedef struct {
    const void *weights;
    const float *bias; /* (outputs,) or null */
    int64_t outputs, inputs;
    int64_t itemsize; /* of a weight: 1 int8, 2 float16, 4 float32 */
    int64_t tiled; /* weights are bfloat16 as tiles.h orders them */
    float unscale; /* what products are multiplied by; a power of two */
    const float *scales;  /* int8: (outputs,), what products are multiplied by instead */
    const float *factors; /* int8: (inputs,), what each column's weights are multiplied by */
} Matrix;

/* What `product` reads of (rows, inputs); the parts stay until this thread prepares the next. */
typedef struct {
    const Matrix *matrix;
    const float *input;
    Parts parts; /* empty unless tiled */
} Factor;
Factor prepare(const Matrix *matrix, const float *input, int64_t rows);
void finish(Factor factor);

/* How many of the rows left to do run together: as many as registers hold, and no short rest at the end. */
int64_t together(const Matrix *matrix, int64_t left);

/* How many neighbouring panels each block of rows is multiplied by before the next block's turn. */
int64_t panels_together(Factor factor);

/* The factor's `count` rows from `first` on, as many as `together` says, times one panel, into (count, PANEL).
 * This thread's panels end before `end`. */
void product(Factor factor, int64_t panel, int64_t end, int64_t first, int64_t count, float *tile);

/* This thread's panels of input times matrix, stored or added to what is there. */
void multiply(const Matrix *matrix, const float *input, float *result, int64_t rows, int add, int thread_id,
              int num_threads);
