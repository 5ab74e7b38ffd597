/* Attention of one row of each of many texts, keys and values in bfloat16, where rows need not round alike.
 *
 * The queries that share a key/value head read its keys and values once.
 */

#include "threads.h"
#include "vectors.h"

/* Vectors of a value's numbers that are summed at once; floats by which reading runs ahead. */
#define STRIPE 4
#define AHEAD 1024
#define MOST_QUERIES 8

typedef struct {
    int64_t texts, heads, kv_heads, head_dim, capacity;
    int64_t stride;  /* numbers from one text's keys to those of the next */
    int64_t longest; /* a multiple of LANES, no less than any length */
    float scaling;
    const int64_t *lengths;        /* (texts,) keys that a text's row sees, at least one */
    const float *queries;          /* (texts, heads, head_dim) */
    const uint16_t *keys, *values; /* of a text (kv_heads, capacity, head_dim) */
    float *scores;                 /* (threads, MOST_QUERIES, longest) */
    float *attended;               /* (texts, heads, head_dim) */
} Texts;

/* Scores of all queries of a key/value head; those after the last key are not defined. */
#define SCORES(QUERIES)                                                                                        \
    static void scores_##QUERIES(const Texts *all, const float *queries, const uint16_t *keys, int64_t length,   \
                                 float *scores) {                                                             \
        const int64_t width = all->head_dim;                                                                  \
        for (int64_t key = 0; key < length; key += LANES) {                                                   \
            vec sums[QUERIES][LANES];                                                                         \
            for (int64_t lane = 0; lane < LANES; lane++) {                                                    \
                const uint16_t *row = keys + at_most(key + lane, length - 1) * width;                         \
                vec sum[QUERIES];                                                                             \
                for (int query = 0; query < QUERIES; query++) sum[query] = (vec){0};                          \
                for (int64_t i = 0; i < width; i += LANES) {                                                  \
                    const vec numbers = from_bfloat(row + i);                                                   \
                    __builtin_prefetch(row + i + AHEAD);                                                      \
                    for (int query = 0; query < QUERIES; query++)                                             \
                        sum[query] = fused(from_float(queries + query * width + i), numbers, sum[query]);     \
                }                                                                                             \
                for (int query = 0; query < QUERIES; query++) sums[query][lane] = sum[query];                 \
            }                                                                                                 \
            for (int query = 0; query < QUERIES; query++) {                                                   \
                exchange(sums[query]);                                                                        \
                vec total = sums[query][0];                                                                   \
                for (int lane = 1; lane < LANES; lane++) total += sums[query][lane];                          \
                *(vec *)(scores + query * all->longest + key) = total * all->scaling;                         \
            }                                                                                                 \
        }                                                                                                     \
    }
SCORES(1) SCORES(2) SCORES(3) SCORES(4) SCORES(5) SCORES(6) SCORES(7) SCORES(8)
static void (*const scores_of[])(const Texts *, const float *, const uint16_t *, int64_t, float *) = {
    0, scores_1, scores_2, scores_3, scores_4, scores_5, scores_6, scores_7, scores_8};

/* Scores to weights that add up to one. */
static void weigh(float *scores, int64_t length) {
    float highest = scores[0], total = 0;
    for (int64_t key = 1; key < length; key++)
        if (scores[key] > highest) highest = scores[key];
    for (int64_t key = 0; key < length; key += LANES) *(vec *)(scores + key) = exponential(*(vec *)(scores + key) - highest);
    for (int64_t key = 0; key < length; key++) total += scores[key];
    for (int64_t key = 0; key < length; key++) scores[key] /= total;
}

/* Weighed sums of the values, for all queries of a key/value head. */
#define SUMS(QUERIES)                                                                                        \
    static void sums_##QUERIES(const Texts *all, const float *weights, const uint16_t *values, int64_t length,  \
                               float *attended) {                                                           \
        const int64_t width = all->head_dim;                                                                \
        for (int64_t first = 0; first < width; first += STRIPE * LANES) {                                   \
            const int parts = (int)at_most((width - first) / LANES, STRIPE);                                \
            vec sums[QUERIES][STRIPE];                                                                      \
            memset(sums, 0, sizeof sums);                                                                   \
            for (int64_t key = 0; key < length; key++)                                                      \
                for (int part = 0; part < STRIPE; part++) {                                                 \
                    if (part >= parts) break;                                                               \
                    const uint16_t *row = values + key * width + first + part * LANES;                      \
                    const vec numbers = from_bfloat(row);                                                     \
                    __builtin_prefetch(row + AHEAD);                                                        \
                    for (int query = 0; query < QUERIES; query++)                                           \
                        sums[query][part] =                                                                 \
                            fused(all_lanes(weights[query * all->longest + key]), numbers, sums[query][part]); \
                }                                                                                           \
            for (int query = 0; query < QUERIES; query++)                                                   \
                for (int part = 0; part < parts; part++)                                                    \
                    *(vec *)(attended + query * width + first + part * LANES) = sums[query][part];          \
        }                                                                                                   \
    }
SUMS(1) SUMS(2) SUMS(3) SUMS(4) SUMS(5) SUMS(6) SUMS(7) SUMS(8)
static void (*const sums_of[])(const Texts *, const float *, const uint16_t *, int64_t, float *) = {
    0, sums_1, sums_2, sums_3, sums_4, sums_5, sums_6, sums_7, sums_8};

static void attend_texts(const void *context, int thread_id, int num_threads) {
    const Texts *all = context;
    const int64_t group = all->heads / all->kv_heads, width = all->head_dim, tasks = all->texts * all->kv_heads;
    float *scores = all->scores + thread_id * MOST_QUERIES * all->longest;
    for (int64_t task = tasks * thread_id / num_threads; task < tasks * (thread_id + 1) / num_threads; task++) {
        const int64_t text = task / all->kv_heads, kv_head = task % all->kv_heads, length = all->lengths[text];
        const int64_t first = text * all->stride + kv_head * all->capacity * width;
        for (int64_t done = 0, together; done < group; done += together) {
            together = at_most(group - done, MOST_QUERIES);
            const int64_t place = (text * all->heads + kv_head * group + done) * width;
            scores_of[together](all, all->queries + place, all->keys + first, length, scores);
            for (int64_t query = 0; query < together; query++) weigh(scores + query * all->longest, length);
            sums_of[together](all, scores, all->values + first, length, all->attended + place);
        }
    }
}

void jakiro_attend_texts(const Texts *all, int64_t threads) { run_in_threads(attend_texts, all, threads); }
