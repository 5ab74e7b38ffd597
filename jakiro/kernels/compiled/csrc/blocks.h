/* What lies between a layer's products, for one thread's part of the rows or columns. */

#pragma once

#include "products.h"

/* RMSNorm of all rows, by every thread for itself: cheaper than meeting. */
void normalize(const float *rows_in, float *rows_out, const float *weight, float eps, int64_t rows, int64_t width);

/* Gate and up side by side in one matrix, silu(gate) * up: this thread's panels of (rows, inner). */
void gate(const Matrix *matrix, const float *input, float *result, int64_t rows, int64_t inner, int me, int all);
