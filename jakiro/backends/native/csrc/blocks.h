/* What passes of a decoder and of a draft head have in common. */

#pragma once

#include "attention.h"
#include "products.h"
#include "sections.h"

/* Workspace of one thread in a pass. */
typedef struct {
    int num_threads;
    float *normed;  /* (rows, hidden) */
    float *results; /* a chunk's */
    float *own;     /* what `attend` needs */
    float *parts;   /* what a factor needs */
    Attention attention;
    /* Of the section that this thread is in */
    Cut cut;
    Factor factor; /* the matrix is null before the first product */
} Workspace;

/* Floats of one thread's largest chunk's numbers, and of its largest factor. */
typedef struct {
    int64_t chunk, factor;
} Largest;

/* Floats of one thread's workspace. */
int64_t workspace_floats(int64_t rows, int64_t hidden, Largest largest, int64_t keys, int64_t head_dim);

/* A thread's workspace in memory for all threads. */
Workspace workspace_of(float *memory, int64_t hidden, Largest largest, Attention attention, int thread_id,
                       int num_threads);

/* RMSNorm of all rows, computed by every thread for itself, which costs less than waiting for another. */
void normalize(const float *rows_in, float *rows_out, const float *weight, float eps, int64_t rows, int64_t width);

/* Sections whose chunks are no panels. */
static inline Cut in_chunks(int64_t chunks) { return (Cut){.chunks = chunks}; }

/* A chunk of input times matrix, of so many of this pass' rows. */
void multiply(const Matrix *matrix, const float *input, Cut cut, int64_t chunk, Workspace *workspace);

/* silu(gate) * up, gates and ups side by side in one matrix: a chunk of the first half of its panels. */
void gate(const Matrix *matrix, const float *input, Cut cut, int64_t chunk, Workspace *workspace);

/* The attention half of a layer as sections; its cache and the rest are in the workspace's attention. */
enum { QUERY_KEY_VALUE, ROTATE, ATTEND, OUTPUT, HALF_SECTIONS };

typedef struct {
    const Matrix *query_key_value, *output;
} Half;
Cut cut_half(Half half, int64_t section, const Workspace *workspace);
/* The input is read by QUERY_KEY_VALUE. */
void compute_half(Half half, int64_t section, int64_t chunk, const float *input, Workspace *workspace);
/* OUTPUT is added to the stream. */
void publish_half(int64_t section, int64_t chunk, float *stream, const Workspace *workspace);
Largest largest_of_half(Half half, int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_dim);

/* With a matrix whose chunks, at most so many, hold the products of `halves` of its panels side by side. */
Largest with_matrix(Largest largest, const Matrix *matrix, int64_t rows, int64_t halves, int64_t most_chunks);
