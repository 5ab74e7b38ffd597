/* Parts of a layer that the passes of a decoder (decoder.c) and of a draft head (head.c) share. */

#pragma once

#include "attention.h"
#include "products.h"
#include "sections.h"

/* Workspace of one thread in a pass. */
typedef struct {
    int num_threads;
    float *normed;  /* (rows, hidden) */
    float *results; /* a chunk's */
    float *own;     /* workspace of `attend` */
    float *parts;   /* workspace of a factor */
    Attention attention;
    /* State of the section that this thread computes */
    Cut cut;
    Factor factor; /* the matrix is null before the first product */
} Workspace;

/* Floats of one thread's largest chunk, and of its largest factor. */
typedef struct {
    int64_t chunk, factor;
} Largest;

/* Floats of one thread's workspace. */
int64_t workspace_floats(int64_t rows, int64_t hidden, Largest largest, int64_t keys, int64_t head_dim);

/* Return a thread's workspace in the memory of all threads. */
Workspace workspace_of(float *memory, int64_t hidden, Largest largest, Attention attention, int thread_id,
                       int num_threads);

/* RMSNorm of all rows. Every thread computes all of them, which is faster than synchronizing. */
void normalize(const float *rows_in, float *rows_out, const float *weight, float eps, int64_t rows, int64_t width);

/* Sections with chunks that are not panels. */
static inline Cut in_chunks(int64_t chunks) { return (Cut){.chunks = chunks}; }

/* Compute a chunk of input times matrix, for so many rows of this pass. */
void multiply(const Matrix *matrix, const float *input, Cut cut, int64_t chunk, Workspace *workspace);

/* Compute silu(gate) * up for a chunk of the first half of the panels; gates and ups are in one matrix. */
void gate(const Matrix *matrix, const float *input, Cut cut, int64_t chunk, Workspace *workspace);

/* The attention half of a layer as sections; the workspace's attention has its cache and other parameters. */
enum { QUERY_KEY_VALUE, ROTATE, ATTEND, OUTPUT, HALF_SECTIONS };

typedef struct {
    const Matrix *query_key_value, *output;
} Half;
Cut cut_half(Half half, int64_t section, const Workspace *workspace);
/* QUERY_KEY_VALUE reads the input. */
void compute_half(Half half, int64_t section, int64_t chunk, const float *input, Workspace *workspace);
/* OUTPUT is added to the stream. */
void publish_half(int64_t section, int64_t chunk, float *stream, const Workspace *workspace);
Largest largest_of_half(Half half, int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_dim);

/* Cut a matrix into chunks, at most so many, that contain the products of `halves` of its panels. */
Largest with_matrix(Largest largest, const Matrix *matrix, int64_t rows, int64_t halves, int64_t most_chunks);
