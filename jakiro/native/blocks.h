/* What lies between a layer's products, for one thread's part of the rows or columns. */

#pragma once

#include "products.h"

/* RMSNorm of all rows, by every thread for itself: cheaper than meeting. */
void normalize(const float *rows_in, float *rows_out, const float *weight, float eps, int64_t rows, int64_t width);

/* Gate and up side by side in one matrix, silu(gate) * up: this thread's panels of (rows, inner). */
void gate(const Matrix *matrix, const float *input, float *result, int64_t rows, int64_t inner, int me, int all);

/* Attention of `rows` rows behind `length` cached ones. */
typedef struct {
    int64_t heads, kv_heads, head_dim, rows, length, capacity;
    float scaling;
    const float *cos, *sin;  /* (rows, head_dim); sin negative in the first half */
    const uint8_t *visible;  /* (rows, length + rows) */
    float *joint;            /* (rows, (heads + 2 kv_heads) head_dim), queries, keys and values */
    float *keys, *values;    /* (kv_heads, capacity, head_dim) */
    float *attended;         /* (rows, heads head_dim) */
} Attention;

/* Floats of its own that `attend` needs. */
int64_t num_scores(int64_t keys);

/* Turns queries and keys by their positions, and writes keys and values into the cache; a part of the heads each. */
void turn_and_store(const Attention *attention, int me, int all);

/* A part of the rows' heads each. */
void attend(const Attention *attention, float *scores, int me, int all);
