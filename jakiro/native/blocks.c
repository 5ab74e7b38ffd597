#include "blocks.h"

void normalize(const float *rows_in, float *rows_out, const float *weight, float eps, int64_t rows, int64_t width) {
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

void gate(const Matrix *matrix, const float *input, float *result, int64_t rows, int64_t inner, int me, int all) {
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

void turn_and_store(const Attention *at, int me, int all) {
    const int64_t width = at->head_dim, half = width / 2, turned = at->heads + at->kv_heads;
    const int64_t heads = turned + at->kv_heads, tasks = at->rows * heads;
    for (int64_t task = tasks * me / all; task < tasks * (me + 1) / all; task++) {
        const int64_t row = task / heads, head = task % heads;
        float *x = at->joint + (row * heads + head) * width;
        const float *cos = at->cos + row * width, *sin = at->sin + row * width;
        for (int64_t i = 0; i < half && head < turned; i++) {
            const float first = x[i], second = x[i + half];
            x[i] = first * cos[i] + second * sin[i];
            x[i + half] = second * cos[i + half] + first * sin[i + half];
        }
        if (head < at->heads) continue;
        const int64_t place = head - (head < turned ? at->heads : turned);
        float *rows = head < turned ? at->keys : at->values;
        memcpy(rows + (place * at->capacity + at->length + row) * width, x, width * sizeof(float));
    }
}

/* One row's head: float32 scores and weights, each from its own key alone; float64 sums over keys. */
static void attend_one(const Attention *at, int64_t row, int64_t head, float *scores) {
    const int64_t width = at->head_dim, keys_count = at->length + at->rows;
    const int64_t kv_head = head / (at->heads / at->kv_heads);
    const float *keys = at->keys + kv_head * at->capacity * width, *values = at->values + kv_head * at->capacity * width;
    const uint8_t *visible = at->visible + row * keys_count;
    const float *query = at->joint + (row * (at->heads + 2 * at->kv_heads) + head) * width;
    float *result = at->attended + (row * at->heads + head) * width;
    const float unseen = -3e38f;
    float highest = unseen;
    for (int64_t key = 0; key < keys_count; key++) {
        scores[key] = visible[key] ? dot(query, keys + key * width, width) * at->scaling : unseen;
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

int64_t num_scores(int64_t keys) { return keys + LANES; }

void attend(const Attention *at, float *scores, int me, int all) {
    const int64_t tasks = at->rows * at->heads;
    for (int64_t task = tasks * me / all; task < tasks * (me + 1) / all; task++)
        attend_one(at, task % at->rows, task / at->rows, scores);
}
