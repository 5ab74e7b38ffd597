/* Matrix products of few rows: weights in panels, each output's sum in the order of its inputs. */

#pragma once

#include "dots.h"
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

/* Reading runs ahead of what is multiplied by so many bytes: far ahead into the second cache, which waits for the memory
 * and for the next page's address, and a little ahead into the first. */
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

/* A line of the cache. */
#define LINE 64

/* FLOAT32 weights of (outputs, inputs) lie in panels of PANEL outputs, (panels, inputs, PANEL), the last one padded with
 * zeros; PAIRS are bfloat16 in panels of (inputs, LANES, 2), an output beside the one LANES further. dots.h orders
 * BLOCKS. */
enum { BLOCKS, PAIRS, FLOAT32 };

typedef struct {
    const void *weights;
    const float *bias; /* (outputs,) or null */
    int64_t outputs, inputs;
    int64_t kind;         /* what its weights are, one of the kinds above */
    Blocks blocks;        /* of BLOCKS */
    const float *factors; /* of BLOCKS: (inputs,), what a row's numbers are multiplied by, or null */
} Matrix;

/* (rows, inputs) that products read. */
typedef struct {
    const Matrix *matrix;
    const float *input;
    int64_t rows;
    Rounded rounded; /* empty unless weights are BLOCKS */
} Factor;
/* In memory of so many floats, which the factor needs as long as it is used. */
int64_t factor_floats(const Matrix *matrix, int64_t rows);
Factor prepare(const Matrix *matrix, const float *input, int64_t rows, float *memory);

/* How a matrix' panels, or the first half of them, are cut into chunks. */
typedef struct {
    int64_t panels, together, chunks; /* `together` panels are a chunk, the last one may be shorter */
} Cut;
Cut cut(int64_t panels, int64_t most_chunks);

/* Floats of a chunk's products. */
int64_t chunk_floats(const Matrix *matrix, int64_t rows, int64_t most_chunks);

/* The products of `shift` panels after a chunk's, (rows, together * PANEL). */
void multiply_chunk(const Factor *factor, Cut cut, int64_t chunk, int64_t shift, float *result);

/* A chunk's columns of (rows, width), stored or added to what is there. */
void publish_chunk(Cut cut, int64_t chunk, int64_t rows, int64_t width, const float *result, float *target, int added);

int64_t panels_of(const Matrix *matrix);

/* (rows, inputs) to (rows, outputs); memory is (threads, what jakiro_linear_floats says). */
int64_t jakiro_linear_floats(const Matrix *matrix, int64_t rows);
void jakiro_linear(const Matrix *matrix, const float *input, float *result, float *memory, int64_t rows, int64_t threads);

/* Rows of BLOCKS by their numbers, (count, inputs). */
void jakiro_rows(const Matrix *matrix, const int64_t *ids, int64_t count, float *result);
