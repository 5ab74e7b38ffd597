/* Attention that is independent of the order of keys and of the number of rows. */

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

/* Floats of workspace per thread of `attend`. */
int64_t attention_floats(int64_t keys, int64_t head_dim);

/* Chunks of so many heads of each row, and floats of the largest chunk. */
int64_t head_chunks(int64_t heads, int64_t rows, int64_t num_threads);
int64_t head_chunk_floats(int64_t heads, int64_t rows, int64_t head_dim);

/* Copy a chunk of queries, keys and values, the first two rotated to their positions, to its place; keys and values also
 * to the cache. */
void rotate(const Attention *attention, int64_t chunk, int64_t chunks, float *result);
void publish_rotated(const Attention *attention, int64_t chunk, int64_t chunks, const float *result);

/* Convert scores to weights before division by their sum, which is returned. The sum does not depend on the order of
 * the scores. Requires a whole number of vectors; hidden keys have the score -3e38. */
double jakiro_weigh(float *scores, int64_t padded);

/* Attend for a chunk of queries. Scores and weights are float32, each computed from one key only. Their sum does not
 * depend on the order of keys. The float64 sum of values depends only on the order of visible keys: hidden ones add 0. */
void attend(const Attention *attention, float *own, int64_t chunk, int64_t chunks, float *result);
void publish_attended(const Attention *attention, int64_t chunk, int64_t chunks, const float *result);
