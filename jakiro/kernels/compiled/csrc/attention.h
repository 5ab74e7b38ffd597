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

/* Applies rotary positions to queries and keys, and writes keys and values into the cache: this thread's heads. */
void rotate_and_store(const Attention *attention, int thread_id, int num_threads);

/* This thread's rows and heads: float32 scores and weights, each from its own key alone; float64 sums over keys. */
void attend(const Attention *attention, float *own, int thread_id, int num_threads);
