/* Attention whose result depends neither on the order of keys nor on how many rows run together. */

#pragma once

#include "vectors.h"

/* Attention of `rows` rows that follow `length` cached ones. */
typedef struct {
    int64_t heads, kv_heads, head_dim, rows, length, capacity;
    float scaling;
    const float *cos, *sin;  /* (rows, head_dim); sin negative in the first half */
    const uint8_t *visible;  /* (rows, length + rows) */
    float *joint;            /* (rows, (heads + 2 kv_heads) head_dim), queries, keys and values */
    float *keys, *values;    /* (kv_heads, capacity, head_dim) */
    float *attended;         /* (rows, heads head_dim) */
} Attention;

/* Floats of its own that a thread of `attend` needs. */
int64_t attention_floats(int64_t keys, int64_t head_dim);

/* Chunks of so many heads of each row, and floats of the largest chunk's numbers. */
int64_t head_chunks(int64_t heads, int64_t rows, int64_t num_threads);
int64_t head_chunk_floats(int64_t heads, int64_t rows, int64_t head_dim);

/* A chunk of queries, keys and values, the first two at their rotary positions; and where they belong, keys and values
 * in the cache too. */
void rotate(const Attention *attention, int64_t chunk, int64_t chunks, float *result);
void publish_rotated(const Attention *attention, int64_t chunk, int64_t chunks, const float *result);

/* Scores to weights before they are divided by their sum, which is returned: the same sum wherever each score stands.
 * A whole number of vectors; what is not seen has a score of -3e38. */
double jakiro_weigh(float *scores, int64_t padded);

/* What a chunk of queries attends to: float32 scores and weights, each from its own key alone. Their sum does not depend
 * on where keys stand, that of values, in float64, on the order of those that are seen: hidden ones add nothing. */
void attend(const Attention *attention, float *own, int64_t chunk, int64_t chunks, float *result);
void publish_attended(const Attention *attention, int64_t chunk, int64_t chunks, const float *result);
