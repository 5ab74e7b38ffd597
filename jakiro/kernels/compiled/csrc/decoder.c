/* Passes of few rows through a Llama-shaped decoder on a CPU, in float32.
 *
 * A pass of plain decoding has one row, a pass over a draft tree a dozen; both read every weight once. The floor is the
 * memory's speed, and what keeps general libraries above it are matrix products made for many rows, and a dispatch for
 * each of a thousand small operations. Here all layers are one call; threads meet at barriers.
 *
 * Exactness: every output of a product adds its terms in the order of the inputs, whatever the number of rows, and what
 * depends on the order of keys (the sums of attention) is added in float64. So a row comes out the same alone, in a tree
 * and behind other slots of the cache.
 */

#include "attention.h"
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

/* One pass: `rows` rows behind `length` cached ones. */
typedef struct {
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

int64_t jakiro_own_floats(int64_t rows, int64_t hidden, int64_t keys, int64_t head_dim) {
    return rows * hidden + attention_floats(keys, head_dim);
}

static void decode(const Decoder *decoder, const Pass *pass, int me, int all) {
    const int64_t rows = pass->rows, hidden = decoder->hidden, keys = pass->length + rows;
    const int64_t cached = decoder->kv_heads * pass->capacity * decoder->head_dim;
    float *normed = pass->own + me * jakiro_own_floats(rows, hidden, keys, decoder->head_dim);
    Attention attention = {decoder->heads, decoder->kv_heads, decoder->head_dim, rows, pass->length, pass->capacity,
                           decoder->scaling, pass->cos, pass->sin, pass->visible, pass->joint, 0, 0, pass->attended};
    for (int64_t number = 0; number < decoder->num_layers; number++) {
        const Layer *layer = decoder->layers + number;
        attention.keys = pass->cache + 2 * number * cached;
        attention.values = attention.keys + cached;
        normalize(pass->hidden, normed, layer->input_norm, layer->input_eps, rows, hidden);
        multiply(&layer->query_key_value, normed, pass->joint, rows, 0, me, all);
        meet(all);
        turn_and_store(&attention, me, all);
        meet(all);
        attend(&attention, normed + rows * hidden, me, all);
        meet(all);
        multiply(&layer->output, pass->attended, pass->hidden, rows, 1, me, all);
        meet(all);
        normalize(pass->hidden, normed, layer->middle_norm, layer->middle_eps, rows, hidden);
        gate(&layer->gate_up, normed, pass->gated, rows, decoder->inner, me, all);
        meet(all);
        multiply(&layer->down, pass->gated, pass->hidden, rows, 1, me, all);
        meet(all);
        if (pass->kept[number] && me == 0) memcpy(pass->kept[number], pass->hidden, rows * hidden * sizeof(float));
    }
}

typedef struct {
    const Decoder *decoder;
    const Pass *pass;
} Work;

static void decode_part(void *context, int me, int all) {
    const Work *work = context;
    decode(work->decoder, work->pass, me, all);
}

/* All layers, without the final norm. */
void jakiro_decode(const Decoder *decoder, const Pass *pass, int64_t threads) {
    run_in_threads(decode_part, &(Work){decoder, pass}, threads);
}
