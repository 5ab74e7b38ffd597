/* Queries with a common key/value head run together: keys are transposed once, values are converted to float64 once. */

#define _GNU_SOURCE /* memrchr */
#include "attention.h"

#include "sections.h"

/* Queries of one batch; queries with scores, and queries with sums over values, that fit into registers together. */
#define BATCH 24
#if LANES == 16
#define SCORED 12
#define SUMMED 3
#else
#define SCORED 6
#define SUMMED 1
#endif
/* Keys transposed at once. */
#define COLUMNS (2 * LANES)
/* Keys with values converted to float64 at once, and vectors of a stripe of their numbers. */
#define VALUES (2 * LANES)
#define STRIPE 8
/* Distance of prefetching, in numbers. */
#define AHEAD 2048

static const float unseen = -3e38f;

int64_t head_chunks(int64_t heads, int64_t rows, int64_t num_threads) {
    const int64_t tasks = heads * rows, fewest = (tasks + BATCH - 1) / BATCH;
    /* The same for each thread */
    return at_most(at_most((fewest + num_threads - 1) / num_threads * num_threads, tasks), MOST_CHUNKS);
}

int64_t head_chunk_floats(int64_t heads, int64_t rows, int64_t head_dim) {
    const int64_t chunks = head_chunks(heads, rows, 1);
    return (heads * rows + chunks - 1) / chunks * head_dim;
}

void rotate(const Attention *at, int64_t chunk, int64_t chunks, float *result) {
    const int64_t width = at->head_dim, half = width / 2, rotated = at->heads + at->kv_heads;
    const int64_t heads = rotated + at->kv_heads, tasks = at->rows * heads, end = tasks * (chunk + 1) / chunks;
    for (int64_t task = tasks * chunk / chunks; task < end; task++, result += width) {
        const float *x = at->joint + task * width;
        const float *cos = at->cos + task / heads * width, *sin = at->sin + task / heads * width;
        if (task % heads >= rotated) memcpy(result, x, width * sizeof(float));
        else
            for (int64_t i = 0; i < half; i++) {
                result[i] = x[i] * cos[i] + x[i + half] * sin[i];
                result[i + half] = x[i + half] * cos[i + half] + x[i] * sin[i + half];
            }
    }
}

void publish_rotated(const Attention *at, int64_t chunk, int64_t chunks, const float *result) {
    const int64_t width = at->head_dim, rotated = at->heads + at->kv_heads, heads = rotated + at->kv_heads;
    const int64_t tasks = at->rows * heads, end = tasks * (chunk + 1) / chunks;
    for (int64_t task = tasks * chunk / chunks; task < end; task++, result += width) {
        const int64_t row = task / heads, head = task % heads, is_key = head < rotated;
        float *target = at->joint + task * width;
        if (head >= at->heads)
            target = (is_key ? at->keys : at->values) +
                     ((head - (is_key ? at->heads : rotated)) * at->capacity + at->length + row) * width;
        memcpy(target, result, width * sizeof(float));
    }
}

/* A batch: some queries of one key/value head. */
typedef struct {
    const Attention *at;
    int64_t keys;   /* end of the keys that any of its queries sees */
    int64_t open;   /* end of the keys that all of its queries see */
    int64_t padded; /* keys, rounded up to whole tiles */
    int64_t kv_head, count;
    const float *queries[BATCH];   /* each (head_dim,) */
    const uint8_t *visible[BATCH]; /* each (keys,) */
    float *scores;                 /* (count, padded) */
    float *tile;                   /* (head_dim, COLUMNS), one column per key */
    double *sums;                  /* (count, head_dim) */
    double *wide;                  /* (VALUES, head_dim) */
} Batch;

#define SCORES(QUERIES)                                                                                      \
    static void scores_##QUERIES(const float *const *queries, const float *tile, int64_t width, vec *sums) { \
        vec left[QUERIES], right[QUERIES];                                                                   \
        for (int query = 0; query < QUERIES; query++) left[query] = right[query] = (vec){0};                 \
        for (int64_t i = 0; i < width; i++) {                                                                \
            const vec first = from_float(tile + i * COLUMNS), second = from_float(tile + i * COLUMNS + LANES); \
            for (int query = 0; query < QUERIES; query++) {                                                  \
                const vec value = all_lanes(queries[query][i]);                                              \
                left[query] = fused(value, first, left[query]);                                              \
                right[query] = fused(value, second, right[query]);                                           \
            }                                                                                                \
        }                                                                                                    \
        for (int query = 0; query < QUERIES; query++) {                                                      \
            sums[2 * query] = left[query];                                                                   \
            sums[2 * query + 1] = right[query];                                                              \
        }                                                                                                    \
    }
SCORES(1) SCORES(2) SCORES(3) SCORES(4) SCORES(5) SCORES(6)
#if SCORED > 6
SCORES(7) SCORES(8) SCORES(9) SCORES(10) SCORES(11) SCORES(12)
static void (*const scores_of[])(const float *const *, const float *, int64_t, vec *) = {
    0, scores_1, scores_2, scores_3, scores_4, scores_5, scores_6, scores_7, scores_8, scores_9, scores_10, scores_11,
    scores_12};
#else
static void (*const scores_of[])(const float *const *, const float *, int64_t, vec *) = {
    0, scores_1, scores_2, scores_3, scores_4, scores_5, scores_6};
#endif

/* Return which of LANES keys from `key` on a query sees. */
static inline ints seen(const Batch *batch, int64_t query, int64_t key) {
    typedef uint8_t bytes __attribute__((vector_size(LANES), aligned(1)));
    const uint8_t *visible = batch->visible[query] + key;
    bytes flags = {0};
    if (key + LANES <= batch->keys) flags = *(const bytes *)visible;
    else if (key < batch->keys) memcpy(&flags, visible, batch->keys - key);
    return __builtin_convertvector(flags, ints) != 0;
}

/* (columns, width) to (width, COLUMNS), with zeros after the last column. */
static void transpose(const float *keys, int64_t columns, int64_t width, float *tile) {
    for (int64_t first = 0; first < COLUMNS; first += LANES) {
        int64_t i = 0;
        for (; first + LANES <= columns && i + LANES <= width; i += LANES) {
            vec rows[LANES];
            for (int row = 0; row < LANES; row++) {
                rows[row] = from_float(keys + (first + row) * width + i);
                __builtin_prefetch(keys + (first + row) * width + i + AHEAD);
            }
            exchange(rows);
            for (int row = 0; row < LANES; row++) *(vec *)(tile + (i + row) * COLUMNS + first) = rows[row];
        }
        for (; i < width; i++)
            for (int64_t column = first; column < first + LANES; column++)
                tile[i * COLUMNS + column] = column < columns ? keys[column * width + i] : 0;
    }
}

static void score(const Batch *batch) {
    const Attention *at = batch->at;
    const int64_t width = at->head_dim;
    const float *keys = at->keys + batch->kv_head * at->capacity * width;
    for (int64_t tile = 0; tile < batch->keys; tile += COLUMNS) {
        transpose(keys + tile * width, at_most(batch->keys - tile, COLUMNS), width, batch->tile);
        for (int64_t done = 0, together; done < batch->count; done += together) {
            together = at_most(batch->count - done, SCORED);
            vec sums[2 * SCORED];
            scores_of[together](batch->queries + done, batch->tile, width, sums);
            for (int64_t half = 0; half < 2 * together; half++) {
                const int64_t query = done + half / 2, key = tile + half % 2 * LANES;
                const vec scores = sums[half] * at->scaling;
                *(vec *)(batch->scores + query * batch->padded + key) =
                    key + LANES <= batch->open ? scores : either(seen(batch, query, key), scores, (vec){0} + unseen);
            }
        }
    }
}

/* Rounds a weight, 0 to 1, to a whole number of UNITs: the sum with this constant is rounded at the end of a float64.
 * Sums of whole numbers do not depend on their order; those of 2^19 keys fit into 64 bits. */
#define ROUNDING (1.5 * 256)
#define UNIT 0x1p-44

static inline longs units(const float *weights) {
    return (longs)(__builtin_convertvector(*(const half_vec *)weights, doubles) + ROUNDING) - (longs)all_doubles(ROUNDING);
}

double jakiro_weigh(float *scores, int64_t padded) {
    vec top = (vec){0} + unseen;
    for (int64_t key = 0; key < padded; key += LANES) top = larger(top, *(vec *)(scores + key));
    const float highest = highest_of(top);
    longs sums = {0};
    for (int64_t key = 0; key < padded; key += LANES) {
        *(vec *)(scores + key) = weight_of(*(vec *)(scores + key), highest, unseen);
        sums += units(scores + key) + units(scores + key + DOUBLES);
    }
    int64_t sum = 0;
    for (int lane = 0; lane < DOUBLES; lane++) sum += sums[lane];
    return sum * UNIT;
}

#define SUMS(QUERIES)                                                                                      \
    static void sums_##QUERIES(const float *const *weights, const double *wide, int64_t keys, int64_t width, \
                               double *sums) {                                                             \
        doubles sum[QUERIES][STRIPE];                                                                      \
        for (int query = 0; query < QUERIES; query++)                                                      \
            for (int part = 0; part < STRIPE; part++)                                                      \
                sum[query][part] = *(doubles *)(sums + query * width + part * DOUBLES);                    \
        for (int64_t key = 0; key < keys; key++)                                                           \
            for (int part = 0; part < STRIPE; part++) {                                                    \
                const doubles values = *(const doubles *)(wide + key * width + part * DOUBLES);            \
                for (int query = 0; query < QUERIES; query++) {                                            \
                    const doubles weight = all_doubles(weights[query][key]);                               \
                    sum[query][part] = fused_doubles(weight, values, sum[query][part]);                    \
                }                                                                                          \
            }                                                                                              \
        for (int query = 0; query < QUERIES; query++)                                                      \
            for (int part = 0; part < STRIPE; part++)                                                      \
                *(doubles *)(sums + query * width + part * DOUBLES) = sum[query][part];                    \
    }
SUMS(1)
#if SUMMED > 1
SUMS(2) SUMS(3)
static void (*const sums_of[])(const float *const *, const double *, int64_t, int64_t, double *) = {
    0, sums_1, sums_2, sums_3};
#else
static void (*const sums_of[])(const float *const *, const double *, int64_t, int64_t, double *) = {0, sums_1};
#endif

static void to_doubles(const float *values, int64_t count, double *wide) {
    int64_t i = 0;
    for (; i + DOUBLES <= count; i += DOUBLES) {
        *(doubles *)(wide + i) = __builtin_convertvector(*(const half_vec *)(values + i), doubles);
        __builtin_prefetch(values + i + AHEAD);
    }
    for (; i < count; i++) wide[i] = values[i];
}

static void sum_values(const Batch *batch) {
    const Attention *at = batch->at;
    const int64_t width = at->head_dim;
    const float *values = at->values + batch->kv_head * at->capacity * width;
    memset(batch->sums, 0, batch->count * width * sizeof(double));
    for (int64_t key = 0; key < batch->keys; key += VALUES) {
        const int64_t keys = at_most(batch->keys - key, VALUES);
        to_doubles(values + key * width, keys * width, batch->wide);
        for (int64_t done = 0, together; done < batch->count; done += together) {
            together = at_most(batch->count - done, SUMMED);
            const float *weights[SUMMED];
            for (int64_t query = 0; query < together; query++)
                weights[query] = batch->scores + (done + query) * batch->padded + key;
            int64_t first = 0;
            for (; first + STRIPE * DOUBLES <= width; first += STRIPE * DOUBLES)
                sums_of[together](weights, batch->wide + first, keys, width, batch->sums + done * width + first);
            for (; first < width; first++)
                for (int64_t query = 0; query < together; query++)
                    for (int64_t each = 0; each < keys; each++)
                        batch->sums[(done + query) * width + first] +=
                            (double)weights[query][each] * batch->wide[each * width + first];
        }
    }
}

static int64_t padded_keys(int64_t keys) { return (keys + COLUMNS - 1) / COLUMNS * COLUMNS; }

int64_t attention_floats(int64_t keys, int64_t head_dim) {
    return BATCH * padded_keys(keys) + head_dim * COLUMNS + 2 * (BATCH + VALUES) * head_dim + 16;
}

void attend(const Attention *at, float *own, int64_t chunk, int64_t chunks, float *result) {
    const int64_t keys = at->length + at->rows, padded = padded_keys(keys), width = at->head_dim;
    const int64_t shared = at->heads / at->kv_heads * at->rows, tasks = at->kv_heads * shared;
    const int64_t end = tasks * (chunk + 1) / chunks;
    /* Vectors across two cache lines take twice as long */
    double *sums = (double *)(((uintptr_t)own + 63) & ~(uintptr_t)63), *wide = sums + BATCH * width;
    float *scores = (float *)(wide + VALUES * width), *tile = scores + BATCH * padded;
    for (int64_t task = tasks * chunk / chunks, count; task < end; task += count) {
        const int64_t kv_head = task / shared;
        count = at_most(at_most((kv_head + 1) * shared, end) - task, BATCH);
        Batch batch = {at, 0, keys, 0, kv_head, count, {0}, {0}, scores, tile, sums, wide};
        for (int64_t query = 0; query < count; query++) {
            const int64_t head = (task + query) / at->rows, row = (task + query) % at->rows;
            batch.queries[query] = at->joint + (row * (at->heads + 2 * at->kv_heads) + head) * width;
            batch.visible[query] = at->visible + row * keys;
            const uint8_t *last = memrchr(batch.visible[query], 1, keys);
            if (last && last - batch.visible[query] >= batch.keys) batch.keys = last - batch.visible[query] + 1;
            const uint8_t *unseen_key = memchr(batch.visible[query], 0, batch.open);
            if (unseen_key) batch.open = unseen_key - batch.visible[query];
        }
        batch.padded = padded_keys(batch.keys);
        score(&batch);
        double totals[BATCH];
        for (int64_t query = 0; query < count; query++)
            totals[query] = jakiro_weigh(scores + query * batch.padded, batch.padded);
        sum_values(&batch);
        for (int64_t query = 0; query < count; query++, result += width)
            for (int64_t i = 0; i < width; i++) result[i] = (float)(sums[query * width + i] / totals[query]);
    }
}

void publish_attended(const Attention *at, int64_t chunk, int64_t chunks, const float *result) {
    const int64_t width = at->head_dim, tasks = at->heads * at->rows, end = tasks * (chunk + 1) / chunks;
    for (int64_t task = tasks * chunk / chunks; task < end; task++, result += width)
        memcpy(at->attended + (task % at->rows * at->heads + task / at->rows) * width, result, width * sizeof(float));
}
