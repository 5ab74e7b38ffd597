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

static void noise(const void *context, int thread_id, int num_threads) {
    const Noise *work = context;
    const int64_t count = work->vocabulary;
    const int64_t begin = count * thread_id / num_threads, end = count * (thread_id + 1) / num_threads;
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

/* LANES numbers from a row, those past its end being `missing`. */
static inline vec loaded(const float *row, int64_t place, int64_t count, float missing) {
    if (place + LANES <= count) return *(const vec *)(row + place);
    vec x = (vec){0} + missing;
    memcpy(&x, row + place, (count - place) * sizeof(float));
    return x;
}

static inline doubles halves_sum(vec x) {
    float values[LANES] __attribute__((aligned(64)));
    *(vec *)values = x;
    return __builtin_convertvector(*(half_vec *)values, doubles) +
           __builtin_convertvector(*(half_vec *)(values + DOUBLES), doubles);
}

static inline float log_of_sum(doubles sums) { return (float)natural_log((doubles){0} + sum_of(sums))[0]; }

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
    const float most = highest_of(top);
    float highest = nothing, next = nothing;
    for (int lane = 0; lane < LANES; lane++) {
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
        sums += halves_sum(weight_of(logit, most, nothing));
    }
    work->choices[row] = chosen < count ? chosen : 0;
    work->leads[row] = highest - next;
    work->log_totals[row] = most + log_of_sum(sums);
}

static void choose(const void *context, int thread_id, int num_threads) {
    const Choices *work = context;
    for (int64_t row = thread_id; row < work->rows; row += num_threads) choose_row(work, row);
}

/* Each row's largest logit over the temperature plus noise: the lowest id, its lead over the next, and the log of the
 * sum of e to the logits over the temperature. */
void jakiro_choose(const float *logits, int64_t rows, int64_t vocabulary, float temperature, const float *noise,
                   const int64_t *levels, int64_t *choices, float *leads, float *log_totals, int64_t threads) {
    Choices work = {logits, rows, vocabulary, temperature, noise, levels, choices, leads, log_totals};
    run_in_threads(choose, &work, at_most(threads, rows));
}

/* ---- Mixtures ---- */

typedef struct {
    const float *logits;      /* (experts, rows, vocabulary) */
    const float *log_weights; /* (experts, rows) */
    int64_t experts, rows, vocabulary;
    float *offsets; /* (experts, rows) */
    float *result;  /* (rows, vocabulary) */
} Mixture;

static void mix_row(const Mixture *work, int64_t row) {
    const int64_t count = work->vocabulary, experts = work->experts;
    const float nothing = -__builtin_inff();
    const float *logits = work->logits + row * count;
    for (int64_t expert = 0; expert < experts; expert++) {
        const float *own = logits + expert * work->rows * count;
        vec top = (vec){0} + nothing;
        for (int64_t place = 0; place < count; place += LANES) top = larger(top, loaded(own, place, count, nothing));
        const float most = highest_of(top);
        doubles sums = {0};
        for (int64_t place = 0; place < count; place += LANES)
            sums += halves_sum(weight_of(loaded(own, place, count, nothing), most, nothing));
        const int64_t at = expert * work->rows + row;
        work->offsets[at] = work->log_weights[at] - (most + log_of_sum(sums));
    }
    for (int64_t place = 0; place < count; place += LANES) {
        vec most = (vec){0} + nothing, sum = {0};
        for (int64_t expert = 0; expert < experts; expert++)
            most = larger(most, loaded(logits + expert * work->rows * count, place, count, 0) +
                                    work->offsets[expert * work->rows + row]);
        for (int64_t expert = 0; expert < experts; expert++)
            sum += exponential(loaded(logits + expert * work->rows * count, place, count, 0) +
                               work->offsets[expert * work->rows + row] - most);
        float sums[LANES] __attribute__((aligned(64))), logs[LANES] __attribute__((aligned(64)));
        *(vec *)sums = sum;
        for (int half = 0; half < LANES; half += DOUBLES)
            *(half_vec *)(logs + half) = __builtin_convertvector(
                natural_log(__builtin_convertvector(*(half_vec *)(sums + half), doubles)), half_vec);
        most += *(vec *)logs;
        memcpy(work->result + row * count + place, &most, at_most(count - place, LANES) * sizeof(float));
    }
}

static void mix(const void *context, int thread_id, int num_threads) {
    const Mixture *work = context;
    for (int64_t row = thread_id; row < work->rows; row += num_threads) mix_row(work, row);
}

/* The log of the experts' mixture, the sum of w_e times the softmax of their logits; and for each expert the
 * number that makes its logits log(w_e q_e). */
void jakiro_mix(const float *logits, const float *log_weights, int64_t experts, int64_t rows, int64_t vocabulary,
                float *offsets, float *result, int64_t threads) {
    Mixture work = {logits, log_weights, experts, rows, vocabulary, offsets, result};
    run_in_threads(mix, &work, at_most(threads, rows));
}

/* ---- Candidates ---- */

#define BLOCK (16 * LANES)
#define MOST_CANDIDATES 64

typedef struct {
    const float *scores; /* (rows, vocabulary) log probabilities up to a constant */
    int64_t rows, vocabulary;
    float weight;
    const float *noise; /* (vocabulary,) or null */
    float noise_weight;
    int64_t width;
    int64_t *places;            /* (rows, width) */
    float *estimates, *chances; /* (rows, width) */
} Candidates;

static inline vec ranked(const Candidates *work, const float *scores, int64_t place) {
    const vec rank = loaded(scores, place, work->vocabulary, -__builtin_inff()) * work->weight;
    return work->noise ? rank + loaded(work->noise, place, work->vocabulary, 0) * work->noise_weight : rank;
}

/* Inserts a value after all that are not smaller; the last one is dropped. */
static void insert(float *values, int64_t *places, int64_t width, float value, int64_t place) {
    int64_t at = width - 1;
    for (; at > 0 && values[at - 1] < value; at--) values[at] = values[at - 1], places[at] = places[at - 1];
    values[at] = value, places[at] = place;
}

static void best_of_row(const Candidates *work, int64_t row) {
    const int64_t count = work->vocabulary, width = work->width;
    const float *scores = work->scores + row * count;
    const float nothing = -__builtin_inff();
    int64_t *places = work->places + row * width;
    float *estimates = work->estimates + row * width, *chances = work->chances + row * width;
    float best[MOST_CANDIDATES];
    for (int64_t rank = 0; rank < width; rank++) best[rank] = nothing, places[rank] = rank;
    vec top = (vec){0} + nothing;
    for (int64_t block = 0; block < count; block += BLOCK) {
        const int64_t end = at_most(block + BLOCK, count);
        vec highest = (vec){0} + nothing;
        for (int64_t place = block; place < end; place += LANES) {
            highest = larger(highest, ranked(work, scores, place));
            top = larger(top, loaded(scores, place, count, nothing));
        }
        if (highest_of(highest) <= best[width - 1]) continue;
        for (int64_t place = block; place < end; place += LANES) {
            const vec rank = ranked(work, scores, place);
            for (int lane = 0; lane < LANES && place + lane < end; lane++)
                if (rank[lane] > best[width - 1]) insert(best, places, width, rank[lane], place + lane);
        }
    }
    const float highest = best[0], most = highest_of(top);
    doubles rank_sums = {0}, score_sums = {0};
    for (int64_t place = 0; place < count; place += LANES) {
        const vec rank = ranked(work, scores, place), score = loaded(scores, place, count, nothing);
        rank_sums += halves_sum(weight_of(rank, highest, nothing));
        score_sums += halves_sum(weight_of(score, most, nothing));
    }
    const float rank_total = highest + log_of_sum(rank_sums), score_total = most + log_of_sum(score_sums);
    for (int64_t rank = 0; rank < width; rank++) {
        estimates[rank] = best[rank] - rank_total;
        chances[rank] = exponential((vec){0} + (scores[places[rank]] - score_total))[0];
    }
}

static void best(const void *context, int thread_id, int num_threads) {
    const Candidates *work = context;
    for (int64_t row = thread_id; row < work->rows; row += num_threads) best_of_row(work, row);
}

int64_t jakiro_most_candidates(void) { return MOST_CANDIDATES; }

/* Each row's best tokens by weight * score + noise_weight * noise, the lower place first among equals: their places, log
 * softmax of what they were ranked by, and softmax of their scores. */
void jakiro_best(const float *scores, int64_t rows, int64_t vocabulary, float weight, const float *noise,
                 float noise_weight, int64_t width, int64_t *places, float *estimates, float *chances, int64_t threads) {
    Candidates work = {scores, rows, vocabulary, weight, noise, noise_weight, width, places, estimates, chances};
    run_in_threads(best, &work, at_most(threads, rows));
}
