/* Passes of few rows through a Llama-shaped decoder on a CPU, in float32.
 *
 * A pass of plain decoding has one row, a pass over a draft tree a dozen; both read every weight once. The floor is the
 * memory's speed, and what keeps general libraries above it are matrix products made for many rows, and a dispatch for
 * each of a thousand small operations. Here all layers are one call; threads wait for each other at barriers.
 *
 * Exactness: every output of a product adds its terms in the order of the inputs, whatever the number of rows, and what
 * depends on the order of keys (the sums of attention) is added in float64. So a row comes out the same alone, in a tree
 * and after any number of cached rows.
 */

#include "blocks.h"
#include "threads.h"

typedef struct {
    Matrix query_key_value, output, gate_up, down;
    const float *input_norm, *middle_norm; /* (hidden,) */
    float input_eps, middle_eps;
} Layer;

typedef struct {
    const Layer *layers;
    int64_t num_layers, hidden, inner, heads, kv_heads, head_dim;
    float scaling;
} Decoder;

/* One pass: `rows` rows that follow `length` cached ones. */
typedef struct {
    const Decoder *decoder;
    int64_t rows, length, capacity;
    float *hidden;          /* (rows, hidden), embeddings in, output of the last layer out */
    const float *cos, *sin; /* (rows, head_dim); sin negative in the first half */
    const uint8_t *visible; /* (rows, length + rows) */
    float *cache;           /* (layers, 2, kv_heads, capacity, head_dim) */
    float *joint;           /* (rows, (heads + 2 kv_heads) head_dim) */
    float *attended;        /* (rows, heads head_dim) */
    float *gated;           /* (rows, inner) */
    float *own;             /* (threads, what jakiro_own_floats says) */
    float **kept;           /* (layers,) where a layer's output is copied to, (rows, hidden) or null */
} Pass;

static void decode(const void *context, int thread_id, int num_threads) {
    const Pass *pass = context;
    const Decoder *decoder = pass->decoder;
    const int64_t rows = pass->rows, hidden = decoder->hidden, keys = pass->length + rows;
    const int64_t cached = decoder->kv_heads * pass->capacity * decoder->head_dim;
    float *normed = pass->own + thread_id * jakiro_own_floats(rows, hidden, keys, decoder->head_dim);
    Attention attention = {decoder->heads, decoder->kv_heads, decoder->head_dim, rows, pass->length, pass->capacity,
                           decoder->scaling, pass->cos, pass->sin, pass->visible, pass->joint, 0, 0, pass->attended};
    for (int64_t number = 0; number < decoder->num_layers; number++) {
        const Layer *layer = decoder->layers + number;
        attention.keys = pass->cache + 2 * number * cached;
        attention.values = attention.keys + cached;
        normalize(pass->hidden, normed, layer->input_norm, layer->input_eps, rows, hidden);
        add_attended(&layer->query_key_value, &layer->output, &attention, normed, pass->hidden, normed + rows * hidden,
                     thread_id, num_threads);
        normalize(pass->hidden, normed, layer->middle_norm, layer->middle_eps, rows, hidden);
        gate(&layer->gate_up, normed, pass->gated, rows, decoder->inner, thread_id, num_threads);
        barrier(num_threads);
        multiply(&layer->down, pass->gated, pass->hidden, rows, 1, thread_id, num_threads);
        barrier(num_threads);
        if (pass->kept[number] && thread_id == 0)
            memcpy(pass->kept[number], pass->hidden, rows * hidden * sizeof(float));
    }
}

/* All layers, without the final norm. */
void jakiro_decode(const Pass *pass, int64_t threads) { run_in_threads(decode, pass, threads); }
