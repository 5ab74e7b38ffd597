/* Passes over few rows through a decoder of Llama's shape on a CPU, in float32.
 *
 * A pass of plain decoding has one row, a pass over a draft tree about a dozen; both read every weight once, so the
 * memory's speed is the limit. General libraries are slower because their matrix products are made for many rows and
 * each of a thousand small operations is dispatched separately. Here all layers are one call.
 *
 * Exactness: every output of a product adds its terms in the order of the inputs, for any number of rows. Attention
 * adds values in the order of the visible keys, which are the row's ancestors, and sums weights independently of their
 * order. So a row has the same result alone, in a tree, and with any number of hidden rows between visible ones.
 */

#include "passes.h"

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

/* One pass over `rows` rows that follow `length` cached ones. */
typedef struct {
    const Decoder *decoder;
    int64_t rows, length, capacity;
    float *hidden;          /* (rows, hidden), embeddings; overwritten by the output of the last layer */
    const float *cos, *sin; /* (rows, head_dim); sin negative in the first half */
    const uint8_t *visible; /* (rows, length + rows) */
    float *cache;           /* (layers, 2, kv_heads, capacity, head_dim) */
    float *joint;           /* (rows, (heads + 2 kv_heads) head_dim) */
    float *attended;        /* (rows, heads head_dim) */
    float *gated;           /* (rows, inner) */
    float *memory;          /* (threads, jakiro_decoder_floats) */
    float **kept;           /* (layers,), where the output of a layer is copied to, (rows, hidden), or null */
} Pass;

/* Sections of a layer: the attention half, then these two. */
enum { GATE = HALF_SECTIONS, DOWN, LAYER_SECTIONS };

static Half half_of(const Layer *layer) { return (Half){&layer->query_key_value, &layer->output}; }

/* All layers have one shape, but their matrices may have different kinds. */
static Largest largest_of(const Decoder *decoder, int64_t rows) {
    Largest largest = {0, 0};
    for (const Layer *layer = decoder->layers; layer < decoder->layers + decoder->num_layers; layer++) {
        const Largest half = largest_of_half(half_of(layer), rows, decoder->heads, decoder->kv_heads, decoder->head_dim);
        largest = (Largest){at_least(largest.chunk, half.chunk), at_least(largest.factor, half.factor)};
        largest = with_matrix(largest, &layer->gate_up, rows, 2, MOST_CHUNKS);
        largest = with_matrix(largest, &layer->down, rows, 1, MOST_CHUNKS);
    }
    return largest;
}

/* Floats of workspace per thread of a pass. */
int64_t jakiro_decoder_floats(const Decoder *decoder, int64_t rows, int64_t keys) {
    return workspace_floats(rows, decoder->hidden, largest_of(decoder, rows), keys, decoder->head_dim);
}

static const Layer *layer_of(const Pass *pass, int64_t section) {
    return pass->decoder->layers + section / LAYER_SECTIONS;
}

static int64_t cut_pass(const void *context, int64_t section, void *workspace) {
    const Pass *pass = context;
    const Layer *layer = layer_of(pass, section);
    const int64_t kind = section % LAYER_SECTIONS;
    Workspace *own = workspace;
    if (kind == GATE || kind == DOWN) {
        const Matrix *matrix = kind == GATE ? &layer->gate_up : &layer->down;
        const int64_t panels = kind == GATE ? pass->decoder->inner / PANEL : panels_of(matrix);
        own->cut = cut(panels, MOST_CHUNKS);
    } else own->cut = cut_half(half_of(layer), kind, own);
    return own->cut.chunks;
}

static void enter(const void *context, int64_t section, void *workspace) {
    const Pass *pass = context;
    const Decoder *decoder = pass->decoder;
    const Layer *layer = layer_of(pass, section);
    const int64_t kind = section % LAYER_SECTIONS, rows = pass->rows, hidden = decoder->hidden;
    const int64_t cached = decoder->kv_heads * pass->capacity * decoder->head_dim;
    Workspace *own = workspace;
    own->attention.keys = pass->cache + section / LAYER_SECTIONS * 2 * cached;
    own->attention.values = own->attention.keys + cached;
    if (kind == QUERY_KEY_VALUE) normalize(pass->hidden, own->normed, layer->input_norm, layer->input_eps, rows, hidden);
    else if (kind == GATE) normalize(pass->hidden, own->normed, layer->middle_norm, layer->middle_eps, rows, hidden);
}

static void compute(const void *context, int64_t section, int64_t chunk, void *workspace) {
    const Pass *pass = context;
    const Layer *layer = layer_of(pass, section);
    const int64_t kind = section % LAYER_SECTIONS;
    Workspace *own = workspace;
    if (kind == GATE) gate(&layer->gate_up, own->normed, own->cut, chunk, own);
    else if (kind == DOWN) multiply(&layer->down, pass->gated, own->cut, chunk, own);
    else compute_half(half_of(layer), kind, chunk, own->normed, own);
}

static void publish(const void *context, int64_t section, int64_t chunk, const void *workspace) {
    const Pass *pass = context;
    const int64_t kind = section % LAYER_SECTIONS, rows = pass->rows, hidden = pass->decoder->hidden;
    const Workspace *own = workspace;
    if (kind == GATE) publish_chunk(own->cut, chunk, rows, pass->decoder->inner, own->results, pass->gated, 0);
    else if (kind == DOWN) publish_chunk(own->cut, chunk, rows, hidden, own->results, pass->hidden, 1);
    else publish_half(kind, chunk, pass->hidden, own);
    float *kept = pass->kept[section / LAYER_SECTIONS];
    if (kind == DOWN && kept) {
        const int64_t first = chunk * own->cut.together * PANEL, count = at_most(hidden - first, own->cut.together * PANEL);
        for (int64_t row = 0; row < rows; row++)
            memcpy(kept + row * hidden + first, pass->hidden + row * hidden + first, count * sizeof(float));
    }
}

typedef struct {
    const Pass *pass;
    Progress *progress;
} Shared;

static void decode(const void *context, int thread_id, int num_threads) {
    const Shared *shared = context;
    const Pass *pass = shared->pass;
    const Decoder *decoder = pass->decoder;
    const Attention attention = {decoder->heads, decoder->kv_heads, decoder->head_dim, pass->rows, pass->length,
                                 pass->capacity, decoder->scaling, pass->cos, pass->sin, pass->visible, pass->joint, 0, 0,
                                 pass->attended};
    const Largest largest = largest_of(decoder, pass->rows);
    Workspace workspace = workspace_of(pass->memory, decoder->hidden, largest, attention, thread_id, num_threads);
    const Sections sections = {decoder->num_layers * LAYER_SECTIONS, cut_pass, enter, compute, publish};
    go_through(&sections, pass, shared->progress, &workspace, thread_id, num_threads);
}

/* Run all layers, without the final norm. */
void jakiro_decode(const Pass *pass, int64_t threads) {
    Progress progress = {{0}};
    run_in_threads(decode, &(Shared){pass, &progress}, threads);
}
