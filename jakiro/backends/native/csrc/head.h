/* One pass of a draft head: input projection, attention without a norm before it, and a mixture of experts. */

#pragma once

#include "products.h"

typedef struct {
    Matrix projection, query_key_value, output, router;
    const Matrix *read, *write; /* (experts,) */
    const float *norm;          /* (hidden,) */
    float eps, scaling;
    int64_t hidden, inner, experts, heads, kv_heads, head_dim;
    int64_t summed;      /* experts are silu(gate) * up and add up; else gelu, each for itself */
    int64_t contrastive; /* the router has two more outputs, for the contrast between two experts */
} Head;

typedef struct {
    const Head *head;
    int64_t rows, length, capacity;
    const float *input; /* (rows, inputs of the projection) */
    const float *cos, *sin;
    const uint8_t *visible;
    float *keys, *values;
    float *stream;   /* (rows, hidden), the projection, then the residual stream */
    float *joint, *attended;
    float *activity; /* (experts, rows, inner) */
    float *outputs;  /* (experts, rows, hidden), rows together */
    float *router;   /* (rows, outputs of the router), logits, then weights */
    float *features, *contrast; /* (rows, hidden), what the weights make of experts that add up */
    float *memory;   /* (threads, what jakiro_head_floats says) */
    int64_t apart;   /* numbers from one expert's outputs to the next one's */
} HeadPass;

/* Floats of its own that a thread of a pass needs. */
int64_t jakiro_head_floats(const Head *head, int64_t rows, int64_t keys);

void jakiro_draft(const HeadPass *pass, int64_t threads);
