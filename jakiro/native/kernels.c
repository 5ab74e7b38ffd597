/* Passes of few rows through a Llama-shaped decoder on a CPU, in float32.
 *
 * A pass of plain decoding has one row, a pass over a draft tree a dozen; both read every weight once. The floor is the
 * memory's speed, and what keeps general libraries above it are matrix products made for many rows, and a dispatch for
 * each of a thousand small operations. Here all layers are one call; threads meet at barriers.
 *
 * Exactness: every output of a product adds its terms in the order of the inputs, whatever the number of rows, and what
 * depends on the order of keys (the sums of attention) is added in float64. So a row comes out the same alone, in a tree
 * and behind other slots of the cache.
 *
 * Vectors are GCC's and Clang's vector extension. Compiled on the machine it runs on, see `library.py`.
 */

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES 16
#define MOST_ROWS 12
#elif defined(__AVX2__) && defined(__F16C__)
#include <immintrin.h>
#define LANES 8
#define MOST_ROWS 6
#else
#define LANES 4
#define MOST_ROWS 8
#endif
#define PANEL (2 * LANES)
#define DOUBLES (LANES / 2)
#define AHEAD 2048

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float half_vec __attribute__((vector_size(2 * LANES), aligned(4)));
typedef double doubles __attribute__((vector_size(8 * DOUBLES), aligned(8)));

/* A weight of (outputs, inputs) in panels of PANEL outputs: (panels, inputs, PANEL), the last one padded with zeros. */
typedef struct {
    const void *weights;
    const float *bias; /* (outputs,) or null */
    int64_t outputs, inputs;
    int64_t half; /* weights are float16, else float32 */
    float unscale; /* what products are multiplied by; a power of two */
} Matrix;

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

/* The threads of the OpenMP that torch computes with: a second pool would fight for the same cores. */
static void (*start_threads)(void (*)(void *), void *, unsigned, unsigned);
static void (*wait_for_all)(void);
static int (*thread_number)(void);
static int (*thread_count)(void);

void jakiro_threads(void *start, void *wait, void *number, void *count) {
    start_threads = (void (*)(void (*)(void *), void *, unsigned, unsigned))start;
    wait_for_all = (void (*)(void))wait;
    thread_number = (int (*)(void))number;
    thread_count = (int (*)(void))count;
}

int64_t jakiro_panel(void) { return PANEL; }

int64_t jakiro_own_floats(int64_t rows, int64_t hidden, int64_t keys) { return rows * hidden + keys + LANES; }

/* ---- Products ---- */

static inline vec from_half(const uint16_t *source) {
#if defined(__AVX512F__)
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)source));
#elif defined(__AVX2__) && defined(__F16C__)
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)source));
#else
    typedef _Float16 halves __attribute__((vector_size(2 * LANES), aligned(2)));
    return __builtin_convertvector(*(const halves *)source, vec);
#endif
}

static inline vec from_float(const float *source) { return *(const vec *)source; }

/* (ROWS, inputs) times one panel, into (ROWS, PANEL); all sums stay in registers. */
#define PRODUCT(ROWS, KIND, TYPE, LOAD)                                                                     \
    static void product_##KIND##_##ROWS(const TYPE *weights, const float *input, int64_t inputs, float *tile) { \
        vec left[ROWS], right[ROWS];                                                                       \
        for (int row = 0; row < ROWS; row++) left[row] = right[row] = (vec){0};                            \
        for (int64_t k = 0; k < inputs; k++) {                                                             \
            const TYPE *column = weights + k * PANEL;                                                      \
            __builtin_prefetch((const char *)column + AHEAD);                                              \
            const vec first = LOAD(column), second = LOAD(column + LANES);                                 \
            for (int row = 0; row < ROWS; row++) {                                                         \
                const float value = input[row * inputs + k];                                               \
                left[row] += value * first;                                                                \
                right[row] += value * second;                                                              \
            }                                                                                              \
        }                                                                                                  \
        for (int row = 0; row < ROWS; row++) {                                                             \
            *(vec *)(tile + row * PANEL) = left[row];                                                      \
            *(vec *)(tile + row * PANEL + LANES) = right[row];                                             \
        }                                                                                                  \
    }
#define BOTH(ROWS) PRODUCT(ROWS, half, uint16_t, from_half) PRODUCT(ROWS, float, float, from_float)
BOTH(1) BOTH(2) BOTH(3) BOTH(4) BOTH(5) BOTH(6)
#if MOST_ROWS > 6
BOTH(7) BOTH(8)
#endif
#if MOST_ROWS > 8
BOTH(9) BOTH(10) BOTH(11) BOTH(12)
#endif

static void product(const Matrix *matrix, int64_t panel, const float *input, int64_t rows, float *tile) {
    const int64_t offset = panel * PANEL * matrix->inputs, inputs = matrix->inputs;
#define CASE(ROWS)                                                                                            \
    case ROWS:                                                                                                \
        if (matrix->half) product_half_##ROWS((const uint16_t *)matrix->weights + offset, input, inputs, tile); \
        else product_float_##ROWS((const float *)matrix->weights + offset, input, inputs, tile);              \
        break;
    switch (rows) {
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if MOST_ROWS > 6
        CASE(7) CASE(8)
#endif
#if MOST_ROWS > 8
        CASE(9) CASE(10) CASE(11) CASE(12)
#endif
    }
    const int64_t first = panel * PANEL;
    const int64_t width = matrix->outputs - first < PANEL ? matrix->outputs - first : PANEL;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < width; column++) {
            const float value = tile[row * PANEL + column] * matrix->unscale;
            tile[row * PANEL + column] = matrix->bias ? value + matrix->bias[first + column] : value;
        }
}

/* How many of the rows left to do run together: as many as registers hold, and no short rest at the end. */
static int64_t together(int64_t left) {
    if (left <= MOST_ROWS) return left;
    return left < 2 * MOST_ROWS ? (left + 1) / 2 : MOST_ROWS;
}

static int64_t num_panels(int64_t outputs) { return (outputs + PANEL - 1) / PANEL; }

/* This thread's panels of input times matrix, stored or added to what is there. */
static void multiply(const Matrix *matrix, const float *input, float *result, int64_t rows, int add, int me, int all) {
    float tile[MOST_ROWS * PANEL];
    const int64_t panels = num_panels(matrix->outputs), outputs = matrix->outputs;
    for (int64_t panel = panels * me / all; panel < panels * (me + 1) / all; panel++) {
        const int64_t first = panel * PANEL, width = outputs - first < PANEL ? outputs - first : PANEL;
        for (int64_t done = 0, count; done < rows; done += count) {
            count = together(rows - done);
            product(matrix, panel, input + done * matrix->inputs, count, tile);
            for (int64_t row = 0; row < count; row++) {
                float *target = result + (done + row) * outputs + first;
                const float *source = tile + row * PANEL;
                if (add)
                    for (int64_t column = 0; column < width; column++) target[column] += source[column];
                else
                    memcpy(target, source, width * sizeof(float));
            }
        }
    }
}

/* ---- Functions ---- */

static inline vec smaller(vec a, vec b) { return (vec)(((ints)a & (a < b)) | ((ints)b & ~(a < b))); }

/* e^x within two units in the last place, for x from -87 to 88: 2^n times Taylor's series on at most ln 2 / 2. */
static inline vec exponential(vec x) {
    const vec shift = (vec){0} + 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number */
    x = smaller(-smaller(-x, (vec){0} + 87.0f), (vec){0} + 88.0f);
    const vec whole = (x * 1.44269504f + shift) - shift;
    const vec rest = (x - whole * 0.693145752f) - whole * 1.42860677e-6f;
    vec sum = rest * (1.0f / 5040) + 1.0f / 720;
    sum = sum * rest + 1.0f / 120;
    sum = sum * rest + 1.0f / 24;
    sum = sum * rest + 1.0f / 6;
    sum = sum * rest + 0.5f;
    sum = sum * rest + 1.0f;
    sum = sum * rest + 1.0f;
    return sum * (vec)((__builtin_convertvector(whole, ints) + 127) << 23);
}

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

/* ---- Whole passes ---- */

static void decode(const Decoder *decoder, const Pass *pass, int me, int all) {
    const int64_t rows = pass->rows, hidden = decoder->hidden;
    float *normed = pass->own + me * jakiro_own_floats(rows, hidden, pass->length + rows);
    float *scores = normed + rows * hidden;
    for (int64_t number = 0; number < decoder->num_layers; number++) {
        const Layer *layer = decoder->layers + number;
        normalize(pass->hidden, normed, layer->input_norm, layer->input_eps, rows, hidden);
        multiply(&layer->query_key_value, normed, pass->joint, rows, 0, me, all);
        if (all > 1) wait_for_all();
        turn_and_store(decoder, pass, number, me, all);
        if (all > 1) wait_for_all();
        const int64_t tasks = rows * decoder->heads;
        for (int64_t task = tasks * me / all; task < tasks * (me + 1) / all; task++)
            attend(decoder, pass, number, task % rows, task / rows, scores);
        if (all > 1) wait_for_all();
        multiply(&layer->output, pass->attended, pass->hidden, rows, 1, me, all);
        if (all > 1) wait_for_all();
        normalize(pass->hidden, normed, layer->middle_norm, layer->middle_eps, rows, hidden);
        gate(&layer->gate_up, normed, pass->gated, rows, decoder->inner, me, all);
        if (all > 1) wait_for_all();
        multiply(&layer->down, pass->gated, pass->hidden, rows, 1, me, all);
        if (all > 1) wait_for_all();
        if (pass->kept[number] && me == 0) memcpy(pass->kept[number], pass->hidden, rows * hidden * sizeof(float));
    }
}

typedef struct {
    const Decoder *decoder;
    const Pass *pass;
    const Matrix *matrix;
    const float *input;
    float *result;
    int64_t rows;
} Work;

static void run(const Work *work, int me, int all) {
    if (work->decoder) decode(work->decoder, work->pass, me, all);
    else multiply(work->matrix, work->input, work->result, work->rows, 0, me, all);
}

static void run_thread(void *work) { run(work, thread_number(), thread_count()); }

static void run_all(Work work, int64_t threads) {
    if (threads > 1) start_threads(run_thread, &work, (unsigned)threads, 0);
    else run(&work, 0, 1);
}

/* (rows, inputs) to (rows, outputs). */
void jakiro_linear(const Matrix *matrix, const float *input, float *result, int64_t rows, int64_t threads) {
    run_all((Work){.matrix = matrix, .input = input, .result = result, .rows = rows}, threads);
}

/* All layers, without the final norm. */
void jakiro_decode(const Decoder *decoder, const Pass *pass, int64_t threads) {
    run_all((Work){.decoder = decoder, .pass = pass}, threads);
}
