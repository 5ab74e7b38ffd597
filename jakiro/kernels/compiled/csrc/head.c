/* One pass of a draft head: input projection, attention without a norm before it, and a mixture of experts. */

#include "blocks.h"
#include "threads.h"

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
    float *outputs;  /* (experts, rows, hidden) */
    float *router;   /* (rows, outputs of the router), logits, then weights */
    float *features, *contrast; /* (rows, hidden), what the weights make of experts that add up */
    float *own;      /* (threads, what jakiro_own_floats says) */
} HeadPass;

/* x Phi(x) of this thread's part. */
static void gelu(float *values, int64_t count, int thread_id, int num_threads) {
    for (int64_t i = count * thread_id / num_threads; i < count * (thread_id + 1) / num_threads; i++)
        values[i] *= 0.5f * (1.0f + __builtin_erff(values[i] * 0.707106781f));
}

/* The router's logits to weights: a softmax over the experts, and one over the pair, minus for the weaker of the two. */
static void weigh_experts(const Head *head, float *logits) {
    float total = 0, highest = logits[0];
    for (int64_t expert = 1; expert < head->experts; expert++)
        if (logits[expert] > highest) highest = logits[expert];
    for (int64_t expert = 0; expert < head->experts; expert++)
        total += logits[expert] = __builtin_expf(logits[expert] - highest);
    for (int64_t expert = 0; expert < head->experts; expert++) logits[expert] /= total;
    if (!head->contrastive) return;
    float *pair = logits + head->experts;
    const int first_is_stronger = pair[0] >= pair[1];
    const float stronger = 1.0f / (1.0f + __builtin_expf(-__builtin_fabsf(pair[0] - pair[1])));
    pair[0] = first_is_stronger ? stronger : stronger - 1.0f;
    pair[1] = first_is_stronger ? stronger - 1.0f : stronger;
}

/* This thread's part of the rows' numbers: the stream plus the weighed experts. */
static void mix(const Head *head, const HeadPass *pass, const float *weights, float *result, int thread_id,
                int num_threads) {
    const int64_t hidden = head->hidden, count = pass->rows * hidden;
    for (int64_t i = count * thread_id / num_threads; i < count * (thread_id + 1) / num_threads; i++) {
        const float *own = weights + i / hidden * head->router.outputs;
        float sum = pass->stream[i];
        for (int64_t expert = 0; expert < head->experts; expert++) sum += own[expert] * pass->outputs[expert * count + i];
        result[i] = sum;
    }
}

static void draft(const void *context, int thread_id, int num_threads) {
    const HeadPass *pass = context;
    const Head *head = pass->head;
    const int64_t rows = pass->rows, hidden = head->hidden, inner = head->inner;
    float *normed = pass->own + thread_id * jakiro_own_floats(rows, hidden, pass->length + rows, head->head_dim);
    const Attention attention = {head->heads, head->kv_heads, head->head_dim, rows, pass->length, pass->capacity,
                                 head->scaling, pass->cos, pass->sin, pass->visible, pass->joint, pass->keys,
                                 pass->values, pass->attended};
    multiply(&head->projection, pass->input, pass->stream, rows, 0, thread_id, num_threads);
    barrier(num_threads);
    add_attended(&head->query_key_value, &head->output, &attention, pass->stream, pass->stream, normed + rows * hidden,
                 thread_id, num_threads);
    normalize(pass->stream, normed, head->norm, head->eps, rows, hidden);
    multiply(&head->router, normed, pass->router, rows, 0, thread_id, num_threads);
    for (int64_t expert = 0; expert < head->experts; expert++) {
        float *activity = pass->activity + expert * rows * inner;
        if (head->summed) gate(head->read + expert, normed, activity, rows, inner, thread_id, num_threads);
        else multiply(head->read + expert, normed, activity, rows, 0, thread_id, num_threads);
    }
    barrier(num_threads);
    if (!head->summed) {
        gelu(pass->activity, head->experts * rows * inner, thread_id, num_threads);
        barrier(num_threads);
    }
    for (int64_t expert = 0; expert < head->experts; expert++)
        multiply(head->write + expert, pass->activity + expert * rows * inner, pass->outputs + expert * rows * hidden,
                 rows, 0, thread_id, num_threads);
    for (int64_t row = rows * thread_id / num_threads; row < rows * (thread_id + 1) / num_threads; row++)
        weigh_experts(head, pass->router + row * head->router.outputs);
    if (!head->summed) return;
    barrier(num_threads);
    mix(head, pass, pass->router, pass->features, thread_id, num_threads);
    if (head->contrastive) mix(head, pass, pass->router + head->experts, pass->contrast, thread_id, num_threads);
}

void jakiro_draft(const HeadPass *pass, int64_t threads) { run_in_threads(draft, pass, threads); }
