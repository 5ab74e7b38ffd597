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

#include "products.h"
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
    float *own;             /* (threads, rows hidden + length + rows + LANES) */
    float **kept;           /* (layers,) where a layer's output is copied to, (rows, hidden) or null */
} Pass;

int64_t jakiro_own_floats(int64_t rows, int64_t hidden, int64_t keys) { return rows * hidden + keys + LANES; }

static void normalize(const float *rows_in, float *rows_out, const float *weight, float eps, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++) {
        const float *source = rows_in + row * width;
        float *target = rows_out + row * width;
        doubles sums = {0};
        double squares = 0;
        int64_t done = 0;
        for (; done + DOUBLES <= width; done += DOUBLES) {
            const doubles part = __builtin_convertvector(*(const half_vec *)(source + done), doubles);
            sums += part * part;
        }
        for (; done < width; done++) squares += (double)source[done] * source[done];
        for (int lane = 0; lane < DOUBLES; lane++) squares += sums[lane];
        const float factor = (float)(1.0 / __builtin_sqrt(squares / width + eps));
        for (int64_t i = 0; i < width; i++) target[i] = source[i] * factor * weight[i];
    }
}

/* Gate and up side by side, silu(gate) * up: this thread's panels of (rows, inner). */
static void gate(const Matrix *matrix, const float *input, float *result, int64_t rows, int64_t inner, int me, int all) {
    float gates[MOST_ROWS * PANEL], ups[MOST_ROWS * PANEL];
    const int64_t panels = inner / PANEL;
    for (int64_t panel = panels * me / all; panel < panels * (me + 1) / all; panel++)
        for (int64_t done = 0, count; done < rows; done += count) {
            count = together(rows - done);
            product(matrix, panel, input + done * matrix->inputs, count, gates);
            product(matrix, panel + panels, input + done * matrix->inputs, count, ups);
            for (int64_t row = 0; row < count; row++)
                for (int64_t column = 0; column < PANEL; column += LANES) {
                    const vec x = *(vec *)(gates + row * PANEL + column), up = *(vec *)(ups + row * PANEL + column);
                    *(vec *)(result + (done + row) * inner + panel * PANEL + column) =
                        x / (1.0f + exponential(-x)) * up;
                }
        }
}

/* ---- Attention ---- */

static inline float dot(const float *a, const float *b, int64_t width) {
    vec sums = {0};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) sums += *(const vec *)(a + i) * *(const vec *)(b + i);
    float rest = 0;
    for (; i < width; i++) rest += a[i] * b[i];
#if defined(__AVX512F__)
    return _mm512_reduce_add_ps((__m512)sums) + rest;
#else
    for (int lane = 0; lane < LANES; lane++) rest += sums[lane];
    return rest;
#endif
}

/* Turns queries and keys by their positions, and writes keys and values into the cache; a part of the heads each. */
static void turn_and_store(const Decoder *decoder, const Pass *pass, int64_t layer, int me, int all) {
    const int64_t width = decoder->head_dim, half = width / 2, rows = pass->rows;
    const int64_t turned = decoder->heads + decoder->kv_heads, heads = turned + decoder->kv_heads;
    for (int64_t task = rows * heads * me / all; task < rows * heads * (me + 1) / all; task++) {
        const int64_t row = task / heads, head = task % heads;
        float *x = pass->joint + (row * heads + head) * width;
        if (head < turned)
            for (int64_t i = 0; i < half; i++) {
                const float *cos = pass->cos + row * width, *sin = pass->sin + row * width;
                const float first = x[i], second = x[i + half];
                x[i] = first * cos[i] + second * sin[i];
                x[i + half] = second * cos[i + half] + first * sin[i + half];
            }
        if (head >= decoder->heads) {
            const int64_t place = (layer * 2 * decoder->kv_heads + head - decoder->heads) * pass->capacity;
            memcpy(pass->cache + (place + pass->length + row) * width, x, width * sizeof(float));
        }
    }
}

/* One row's head: float32 scores and weights, each from its own key alone; float64 sums over keys. */
static void attend(const Decoder *decoder, const Pass *pass, int64_t layer, int64_t row, int64_t head, float *scores) {
    const int64_t width = decoder->head_dim, keys_count = pass->length + pass->rows;
    const int64_t kv_head = head / (decoder->heads / decoder->kv_heads);
    const float *keys = pass->cache + (layer * 2 * decoder->kv_heads + kv_head) * pass->capacity * width;
    const float *values = keys + decoder->kv_heads * pass->capacity * width;
    const uint8_t *visible = pass->visible + row * keys_count;
    const float *query = pass->joint + (row * (decoder->heads + 2 * decoder->kv_heads) + head) * width;
    float *result = pass->attended + (row * decoder->heads + head) * width;
    const float unseen = -3e38f;
    float highest = unseen;
    for (int64_t key = 0; key < keys_count; key++) {
        scores[key] = visible[key] ? dot(query, keys + key * width, width) * decoder->scaling : unseen;
        if (scores[key] > highest) highest = scores[key];
    }
    for (int64_t key = keys_count; key % LANES; key++) scores[key] = unseen;
    doubles sums = {0};
    for (int64_t key = 0; key < keys_count; key += LANES) {
        const vec score = *(vec *)(scores + key);
        const vec weight = (vec)((ints)exponential(score - highest) & (score > unseen));
        *(vec *)(scores + key) = weight;
        sums += __builtin_convertvector(*(half_vec *)(scores + key), doubles);
        sums += __builtin_convertvector(*(half_vec *)(scores + key + DOUBLES), doubles);
    }
    double total = 0;
    for (int lane = 0; lane < DOUBLES; lane++) total += sums[lane];
    int64_t first = 0;
    for (; first + 8 * DOUBLES <= width; first += 8 * DOUBLES) {
        doubles sum[8] = {{0}};
        for (int64_t key = 0; key < keys_count; key++)
            for (int part = 0; part < 8; part++)
                sum[part] += (double)scores[key] *
                    __builtin_convertvector(*(half_vec *)(values + key * width + first + part * DOUBLES), doubles);
        for (int part = 0; part < 8; part++)
            for (int lane = 0; lane < DOUBLES; lane++)
                result[first + part * DOUBLES + lane] = (float)(sum[part][lane] / total);
    }
    for (; first < width; first++) {
        double sum = 0;
        for (int64_t key = 0; key < keys_count; key++) sum += (double)scores[key] * values[key * width + first];
        result[first] = (float)(sum / total);
    }
}

static void decode(const Decoder *decoder, const Pass *pass, int me, int all) {
    const int64_t rows = pass->rows, hidden = decoder->hidden;
    float *normed = pass->own + me * jakiro_own_floats(rows, hidden, pass->length + rows);
    float *scores = normed + rows * hidden;
    for (int64_t number = 0; number < decoder->num_layers; number++) {
        const Layer *layer = decoder->layers + number;
        normalize(pass->hidden, normed, layer->input_norm, layer->input_eps, rows, hidden);
        multiply(&layer->query_key_value, normed, pass->joint, rows, 0, me, all);
        meet(all);
        turn_and_store(decoder, pass, number, me, all);
        meet(all);
        const int64_t tasks = rows * decoder->heads;
        for (int64_t task = tasks * me / all; task < tasks * (me + 1) / all; task++)
            attend(decoder, pass, number, task % rows, task / rows, scores);
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
