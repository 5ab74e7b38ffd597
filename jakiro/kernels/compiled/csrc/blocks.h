/* What lies between a layer's products, for one thread's part of the rows or columns. */

#pragma once

#include "attention.h"
#include "products.h"

/* RMSNorm of all rows, computed by every thread for itself, which costs less than a barrier. */
void normalize(const float *rows_in, float *rows_out, const float *weight, float eps, int64_t rows, int64_t width);

/* Gate and up side by side in one matrix, silu(gate) * up: this thread's panels of (rows, inner). */
void gate(const Matrix *matrix, const float *input, float *result, int64_t rows, int64_t inner, int thread_id,
          int num_threads);

/* Floats of its own that a thread of a pass needs: `normalize`d rows, followed by those of `attend`. */
int64_t jakiro_own_floats(int64_t rows, int64_t hidden, int64_t keys, int64_t head_dim);

/* The attention half of a layer: queries, keys and values of the input, and what was attended added to the stream. */
void add_attended(const Matrix *query_key_value, const Matrix *output, const Attention *attention, const float *input,
                  float *stream, float *own, int thread_id, int num_threads);
