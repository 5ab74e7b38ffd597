/* One pass of a draft head: input projection, attention without a norm before it, and a mixture of experts. */

#pragma once

#include "products.h"

typedef struct {
    Matrix projection, query_key_value, output, router;
    const Matrix *read, *write; /* (experts,) */
    const float *norm;          /* (hidden,) */
    float eps, scaling;
    int64_t hidden, inner, experts, heads, kv_heads, head_dim;
    int64_t summed;      /* experts are silu(gate) * up and are summed; otherwise gelu, separate */
    int64_t contrastive; /* the router has two more outputs, for the contrast between two experts */
} Head;

typedef struct {
    const Head *head;
    int64_t rows, length, capacity;
    const float *input; /* (rows, inputs of the projection) */
    const float *cos, *sin;
    const uint8_t *visible;
    float *keys, *values;
    float *stream;   /* (rows, hidden), output of the projection, then the residual stream */
    float *joint, *attended;
    float *activity; /* (experts, rows, inner) */
    float *outputs;  /* (experts, rows, hidden), rows together */
    float *router;   /* (rows, outputs of the router), logits, then weights */
    float *features, *contrast; /* (rows, hidden), weighted sums of summed experts */
    float *memory;   /* (threads, jakiro_head_floats) */
    int64_t apart;   /* distance between the outputs of two experts, in numbers */
} HeadPass;

/* Floats of workspace per thread of a pass. */
int64_t jakiro_head_floats(const Head *head, int64_t rows, int64_t keys);

void jakiro_draft(const HeadPass *pass, int64_t threads);
