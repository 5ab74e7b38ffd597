/* What a step does over the whole vocabulary: keyed noise, and each row's choice with its lead and its log total. */

#include "threads.h"
#include "vectors.h"

#define GOLDEN 0x9E3779B97F4A7C15ull
#define MIX_1 0xBF58476D1CE4E5B9ull
#define MIX_2 0x94D049BB133111EBull

/* ---- Noise ---- */

typedef struct {
    uint64_t seed;
    int64_t first, positions, vocabulary;
    const int64_t *token_ids; /* (vocabulary,) */
    float *result;            /* (positions, vocabulary) */
} Noise;

/* SplitMix64's finaliser. */
#define MIXED(TYPE, NAME)                                                                \
    static inline TYPE NAME(TYPE x) {                                                    \
        x = (x ^ (x >> 30)) * MIX_1;                                                     \
        x = (x ^ (x >> 27)) * MIX_2;                                                     \
        return x ^ (x >> 31);                                                            \
    }
MIXED(uint64_t, mixed)
MIXED(words, all_mixed)

static inline doubles gumbel(words token_ids, uint64_t position) {
    const words hash = all_mixed((token_ids + 1) * GOLDEN + position) >> 12;
    const doubles uniform = (__builtin_convertvector((longs)hash, doubles) + 0.5) * 0x1p-52;
    return -natural_log(-natural_log(uniform));
}

static void noise(void *context, int me, int all) {
    const Noise *work = context;
    const int64_t count = work->vocabulary, begin = count * me / all, end = count * (me + 1) / all;
    for (int64_t index = 0; index < work->positions; index++) {
        const uint64_t position = mixed(mixed(work->seed) + (uint64_t)(work->first + index));
        float *row = work->result + index * count;
        int64_t place = begin;
        for (; place + DOUBLES <= end; place += DOUBLES)
            *(half_vec *)(row + place) =
                __builtin_convertvector(gumbel(*(const words *)(work->token_ids + place), position), half_vec);
        for (; place < end; place++)
            row[place] = (float)gumbel((words){0} + (uint64_t)work->token_ids[place], position)[0];
    }
}

/* Gumbel noise at consecutive positions, the same numbers as `KeyedNoise.at`. */
void jakiro_noise(uint64_t seed, int64_t first, int64_t positions, const int64_t *token_ids, int64_t vocabulary,
                  float *result, int64_t threads) {
    run_in_threads(noise, &(Noise){seed, first, positions, vocabulary, token_ids, result}, threads);
}

/* ---- Choices ---- */

typedef struct {
    const float *logits; /* (rows, vocabulary) */
    int64_t rows, vocabulary;
    float temperature;
    const float *noise;    /* (levels, vocabulary) or null */
    const int64_t *levels; /* (rows,) which row of noise */
    int64_t *choices;      /* (rows,) */
    float *leads, *log_totals;
} Choices;

static inline vec divided(vec x, float temperature) { return temperature == 1.0f ? x : x / temperature; }

/* LANES numbers from a row, those behind its end being `missing`. */
static inline vec loaded(const float *row, int64_t place, int64_t count, float missing) {
    if (place + LANES <= count) return *(const vec *)(row + place);
    vec x = (vec){0} + missing;
    memcpy(&x, row + place, (count - place) * sizeof(float));
    return x;
}

static void choose_row(const Choices *work, int64_t row) {
    const int64_t count = work->vocabulary;
    const float *logits = work->logits + row * count;
    const float *noise = work->noise ? work->noise + work->levels[row] * count : 0;
    const float nothing = -__builtin_inff();
    vec best = (vec){0} + nothing, second = best, top = best;
    ints places = {0};
    for (int64_t place = 0; place < count; place += LANES) {
        const vec logit = divided(loaded(logits, place, count, nothing), work->temperature);
        const vec score = noise ? logit + loaded(noise, place, count, 0) : logit;
        top = larger(top, logit);
        second = larger(second, smaller(best, score));
        const ints better = score > best;
        places = (places & ~better) | (((ints){0} + (int32_t)(place / LANES)) & better);
        best = larger(best, score);
    }
    int64_t chosen = count;
    float highest = nothing, next = nothing, most = nothing;
    for (int lane = 0; lane < LANES; lane++) {
        if (top[lane] > most) most = top[lane];
        const float last = best[lane] > highest ? highest : best[lane];
        if (last > next) next = last;
        if (second[lane] > next) next = second[lane];
        const int64_t place = (int64_t)places[lane] * LANES + lane;
        if (best[lane] > highest || (best[lane] == highest && place < chosen)) chosen = place;
        if (best[lane] > highest) highest = best[lane];
    }
    doubles sums = {0};
    for (int64_t place = 0; place < count; place += LANES) {
        const vec logit = divided(loaded(logits, place, count, nothing), work->temperature);
        const vec weight = (vec)((ints)exponential(logit - most) & (logit > nothing));
        float weights[LANES] __attribute__((aligned(64)));
        *(vec *)weights = weight;
        sums += __builtin_convertvector(*(half_vec *)weights, doubles);
        sums += __builtin_convertvector(*(half_vec *)(weights + DOUBLES), doubles);
    }
    double total = 0;
    for (int lane = 0; lane < DOUBLES; lane++) total += sums[lane];
    work->choices[row] = chosen < count ? chosen : 0;
    work->leads[row] = highest - next;
    work->log_totals[row] = (float)(most + natural_log((doubles){0} + total)[0]);
}

static void choose(void *context, int me, int all) {
    const Choices *work = context;
    for (int64_t row = me; row < work->rows; row += all) choose_row(work, row);
}

/* Each row's largest logit over the temperature plus noise: the lowest id, its lead over the next, and the log of the
 * sum of e to the logits over the temperature. */
void jakiro_choose(const float *logits, int64_t rows, int64_t vocabulary, float temperature, const float *noise,
                   const int64_t *levels, int64_t *choices, float *leads, float *log_totals, int64_t threads) {
    Choices work = {logits, rows, vocabulary, temperature, noise, levels, choices, leads, log_totals};
    run_in_threads(choose, &work, threads < rows ? threads : rows);
}
