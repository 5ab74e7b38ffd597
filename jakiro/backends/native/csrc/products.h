/* Matrix products with few rows: weights in panels, each output is summed in the order of its inputs. */

#pragma once

#include "dots.h"
#include "vectors.h"

/* Rows with sums that fit into registers together. */
#if LANES == 16
#define MOST_ROWS 14
#elif LANES == 8
#define MOST_ROWS 6
#else
#define MOST_ROWS 8
#endif
#define PANEL (2 * LANES)

/* Distances of prefetching in bytes: a long one into the L2 cache, which has to load the page's address first, and a
 * short one into the L1 cache. */
#define FAR_AHEAD 12288
#define NEAR_AHEAD 2048
static inline void read_ahead(const void *weights) {
    __builtin_prefetch((const char *)weights + FAR_AHEAD, 0, 2);
    __builtin_prefetch((const char *)weights + NEAR_AHEAD);
}

#if MOST_ROWS == 14
#define FOR_EVERY_COUNT(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14)
#elif MOST_ROWS == 8
#define FOR_EVERY_COUNT(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
#else
#define FOR_EVERY_COUNT(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6)
#endif

/* Bytes of a cache line. */
#define LINE 64

/* FLOAT32 weights of (outputs, inputs) are stored in panels of PANEL outputs, (panels, inputs, PANEL), the last one
 * padded with zeros; PAIRS are bfloat16 in panels of (inputs, LANES, 2), an output next to the one LANES later. dots.h
 * describes BLOCKS. */
enum { BLOCKS, PAIRS, FLOAT32 };

typedef struct {
    const void *weights;
    const float *bias; /* (outputs,) or null */
    int64_t outputs, inputs;
    int64_t kind;         /* kind of its weights, see above */
    Blocks blocks;        /* for BLOCKS */
    const float *factors; /* for BLOCKS: (inputs,), factors of a row's numbers, or null */
} Matrix;

/* (rows, inputs) as input of products. */
typedef struct {
    const Matrix *matrix;
    const float *input;
    int64_t rows;
    Rounded rounded; /* empty unless weights are BLOCKS */
} Factor;
/* Prepare a factor in memory of so many floats, which it uses until it is dropped. */
int64_t factor_floats(const Matrix *matrix, int64_t rows);
Factor prepare(const Matrix *matrix, const float *input, int64_t rows, float *memory);

/* Cut a matrix's panels, or the first half of them, into chunks. */
typedef struct {
    int64_t panels, together, chunks; /* a chunk has `together` panels, the last one may have fewer */
} Cut;
Cut cut(int64_t panels, int64_t most_chunks);

/* Floats of a chunk's products. */
int64_t chunk_floats(const Matrix *matrix, int64_t rows, int64_t most_chunks);

/* Compute the products of `shift` panels after a chunk's, (rows, together * PANEL). */
void multiply_chunk(const Factor *factor, Cut cut, int64_t chunk, int64_t shift, float *result);

/* Store a chunk's columns in (rows, width), or add them. */
void publish_chunk(Cut cut, int64_t chunk, int64_t rows, int64_t width, const float *result, float *target, int added);

int64_t panels_of(const Matrix *matrix);

/* (rows, inputs) to (rows, outputs); memory is (threads, jakiro_linear_floats). */
int64_t jakiro_linear_floats(const Matrix *matrix, int64_t rows);
void jakiro_linear(const Matrix *matrix, const float *input, float *result, float *memory, int64_t rows, int64_t threads);

/* Write rows of BLOCKS by index, (count, inputs). */
void jakiro_rows(const Matrix *matrix, const int64_t *ids, int64_t count, float *result);
