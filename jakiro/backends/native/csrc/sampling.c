/* Operations over the whole vocabulary: keyed noise, verification, and the best candidates of a draft. */

#include "sampling.h"

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

/* The finalizer of SplitMix64. */
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

/* Gumbel noise at consecutive positions, equal to `KeyedNoise.at`. */
void jakiro_noise(uint64_t seed, int64_t first, int64_t positions, const int64_t *token_ids, int64_t vocabulary,
                  float *result, int64_t threads) {
    run_in_threads(noise, &(Noise){seed, first, positions, vocabulary, token_ids, result}, threads);
}

/* ---- Verification ---- */

/* Numbers summed in 32 bits before their sum is added to one in 64 bits. */
#define BLOCK (16 * LANES)
/* A row is read in parts, each by one thread, so that its sums do not depend on the number of threads. */
#define PARTS 16

/* Results of one part of a row. */
typedef struct {
    float best, next, top; /* its largest score, the next score, and its largest logit */
    int64_t place;         /* the lowest id of the largest score */
    double sum;            /* sum of e^(logit - largest logit), for rows of parents */
} Part;

/* A token that may be chosen, its logit / temperature, and e^(that - the row's largest). */
typedef struct {
    float value;
    int32_t id;
    double chance;
} Candidate;

/* Filters of sampling, and the key of the noise of the tokens that pass them. */
typedef struct {
    int64_t top_k; /* 0 for all */
    double top_p;  /* 1 for all */
    float log_min_p; /* -infinity for all */
    uint64_t seed;
    int64_t first; /* the position after the root */
} Filters;

typedef struct {
    const float *logits; /* (rows, vocabulary) */
    int64_t rows, vocabulary;
    float temperature;
    const float *noise;                          /* (levels, vocabulary) or null */
    const int64_t *token_ids, *parents, *depths; /* (rows,) */
    int64_t *choices;
    float *margins, *target_probs;
    uint8_t *on_path;
    Part *parts;            /* (rows, PARTS) */
    const Filters *filters; /* null if every token may be chosen */
    Candidate *candidates;  /* (threads, vocabulary) */
} Verification;

static inline vec divided(vec x, float temperature) { return temperature == 1.0f ? x : x / temperature; }

static inline doubles halves_sum(vec x) {
    half_vec halves[2];
    memcpy(halves, &x, sizeof x);
    return __builtin_convertvector(halves[0], doubles) + __builtin_convertvector(halves[1], doubles);
}

static inline float log_of_sum(doubles sums) { return (float)natural_log((doubles){0} + sum_of(sums))[0]; }

/* Children follow their parents. */
static int has_children(const Verification *work, int64_t row) {
    int64_t child = row + 1;
    while (child < work->rows && work->parents[child] != row) child++;
    return child < work->rows;
}

/* Read the numbers from `begin` to `end` of a row; `noise` is null or belongs to its position. */
static inline Part best_of_part(const float *logits, const float *noise, float temperature, int64_t begin, int64_t end) {
    const float nothing = -__builtin_inff();
    vec best = all_lanes(nothing), next = best, top = best;
    ints places = {0};
    for (int64_t place = begin; place < end; place += LANES) {
        const vec logit = divided(loaded(logits, place, end, nothing), temperature);
        const vec score = noise ? logit + loaded(noise, place, end, 0) : logit;
        top = larger(top, logit);
        next = larger(next, smaller(best, score));
        const ints better = score > best;
        places = (places & ~better) | (((ints){0} + (int32_t)place) & better);
        best = larger(best, score);
    }
    Part part = {nothing, nothing, highest_of(top), end, 0};
    for (int lane = 0; lane < LANES; lane++) {
        const float lesser = best[lane] > part.best ? part.best : best[lane];
        if (lesser > part.next) part.next = lesser;
        if (next[lane] > part.next) part.next = next[lane];
        const int64_t place = places[lane] + lane;
        if (best[lane] > part.best || (best[lane] == part.best && place < part.place)) part.place = place;
        if (best[lane] > part.best) part.best = best[lane];
    }
    return part;
}

/* Return the sum of e^(number - largest) over the numbers from `begin` to `end`. */
static double sum_of_part(const float *logits, float temperature, float top, int64_t begin, int64_t end) {
    const float nothing = -__builtin_inff();
    doubles sums = {0};
    for (int64_t block = begin; block < end; block += BLOCK) {
        vec sum = {0};
        for (int64_t place = block; place < at_most(block + BLOCK, end); place += LANES)
            sum += weight_of(divided(loaded(logits, place, end, nothing), temperature), top, nothing);
        sums += halves_sum(sum);
    }
    return sum_of(sums);
}

static void look_at_parts(const void *context, int thread_id, int num_threads) {
    const Verification *work = context;
    const int64_t count = work->vocabulary, width = ((count - 1) / (PARTS * LANES) + 1) * LANES;
    for (int64_t row = 0; row < work->rows; row++) {
        const float *logits = work->logits + row * count;
        const float *noise = work->noise ? work->noise + work->depths[row] * count : 0;
        const int parent = has_children(work, row);
        for (int64_t at = PARTS * thread_id / num_threads; at < PARTS * (thread_id + 1) / num_threads; at++) {
            const int64_t begin = at_most(at * width, count), end = at_most(begin + width, count);
            Part *part = work->parts + row * PARTS + at;
            *part = noise ? best_of_part(logits, noise, work->temperature, begin, end)
                          : best_of_part(logits, 0, work->temperature, begin, end);
            if (parent) part->sum = sum_of_part(logits, work->temperature, part->top, begin, end);
        }
    }
}

/* Write a row's choice and its margin. */
static void choose(const Verification *work, int64_t row) {
    float best = -__builtin_inff(), next = best;
    int64_t place = 0;
    for (const Part *part = work->parts + row * PARTS; part < work->parts + (row + 1) * PARTS; part++) {
        const float lesser = part->best > best ? best : part->best;
        if (lesser > next) next = lesser;
        if (part->next > next) next = part->next;
        if (part->best > best) best = part->best, place = part->place;
    }
    work->choices[row] = place;
    work->margins[row] = best - next;
}

static float top_of(const Part *parts) {
    float top = -__builtin_inff();
    for (int at = 0; at < PARTS; at++)
        if (parts[at].top > top) top = parts[at].top;
    return top;
}

/* ---- Filters ---- */

/* Collect all tokens of a row with logit / temperature >= `least`; return their number. */
static int64_t collect(const float *logits, int64_t count, float temperature, float least, Candidate *found) {
    const float nothing = -__builtin_inff();
    int64_t number = 0;
    for (int64_t block = 0; block < count; block += BLOCK) {
        const int64_t end = at_most(block + BLOCK, count);
        vec highest = all_lanes(nothing);
        for (int64_t place = block; place < end; place += LANES)
            highest = larger(highest, loaded(logits, place, end, nothing));
        if (divided(all_lanes(highest_of(highest)), temperature)[0] < least) continue;
        for (int64_t place = block; place < end; place += LANES) {
            const vec values = divided(loaded(logits, place, end, nothing), temperature);
            for (int lane = 0; lane < LANES; lane++)
                if (values[lane] >= least) found[number++] = (Candidate){values[lane], (int32_t)(place + lane), 1};
        }
    }
    return number;
}

/* Return the sum of e^(number - largest) over a row's logits / temperature. */
static double exact_sum(const float *logits, int64_t count, float temperature, float top) {
    doubles sums = {0};
    for (int64_t place = 0; place < count; place += LANES) {
        const vec values = divided(loaded(logits, place, count, -__builtin_inff()), temperature);
        half_vec halves[2];
        memcpy(halves, &values, sizeof values);
        for (int half = 0; half < 2; half++)
            sums += exponential_doubles(__builtin_convertvector(halves[half], doubles) - (double)top);
    }
    return sum_of(sums);
}

/* Write the probabilities of candidates; return their sum. */
static double weigh(Candidate *found, int64_t number, float top) {
    double sum = 0;
    for (int64_t begin = 0; begin < number; begin += DOUBLES) {
        doubles values = {0};
        const int64_t lanes = at_most(DOUBLES, number - begin);
        for (int64_t lane = 0; lane < lanes; lane++) values[lane] = (double)found[begin + lane].value - (double)top;
        const doubles chances = exponential_doubles(values);
        for (int64_t lane = 0; lane < lanes; lane++) sum += found[begin + lane].chance = chances[lane];
    }
    return sum;
}

static void exchange_candidates(Candidate *a, Candidate *b) {
    const Candidate held = *a;
    *a = *b, *b = held;
}

/* Return the value of the first candidate, best first, at which the probabilities reach a sum; moves candidates. */
static float last_value(Candidate *found, int64_t number, double wanted) {
    int64_t begin = 0, end = number;
    while (begin < end) {
        const float a = found[begin].value, b = found[(begin + end) / 2].value, c = found[end - 1].value;
        const float pivot = a > b ? (b > c ? b : a > c ? c : a) : (a > c ? a : b > c ? c : b);
        int64_t above = begin, at = begin, below = end;
        double sum_above = 0, sum_equal = 0;
        while (at < below) {
            if (found[at].value < pivot) {
                exchange_candidates(found + at, found + --below);
            } else if (found[at].value > pivot) {
                sum_above += found[at].chance;
                exchange_candidates(found + at++, found + above++);
            } else {
                sum_equal += found[at++].chance;
            }
        }
        if (sum_above >= wanted) {
            end = above;
        } else if (sum_above + sum_equal >= wanted) {
            return pivot;
        } else {
            wanted -= sum_above + sum_equal;
            begin = below;
        }
    }
    return -__builtin_inff();
}

/* Move the candidates from a value on to the front; return their number. */
static int64_t keep_from(Candidate *found, int64_t number, float value) {
    int64_t kept = 0;
    for (int64_t at = 0; at < number; at++)
        if (found[at].value >= value) found[kept++] = found[at];
    return kept;
}

/* Select the tokens of a row that top-k, top-p and min-p keep; return their number. Tokens that tie with the last one are
 * kept, too. Tokens far below the best one are read only if the better ones are not enough. */
static int64_t kept_of(const Verification *work, const float *logits, float top, Candidate *found) {
    const Filters *filters = work->filters;
    const int64_t count = work->vocabulary;
    const int limits_k = filters->top_k > 0 && filters->top_k < count, limits_p = filters->top_p < 1;
    const float lowest = top + filters->log_min_p;
    double total = limits_p && !limits_k ? exact_sum(logits, count, work->temperature, top) : 0;
    int64_t number = 0;
    for (float depth = 6;; depth *= 2) {
        const int all = depth > 100;
        number = collect(logits, count, work->temperature, all ? -__FLT_MAX__ : top - depth, found);
        const int enough = limits_k   ? number >= filters->top_k
                           : limits_p ? weigh(found, number, top) > filters->top_p * total
                                      : top - depth <= lowest;
        if (enough || all) break;
    }
    if (limits_k) number = keep_from(found, number, last_value(found, number, (double)filters->top_k));
    if (limits_k && limits_p) total = weigh(found, number, top);
    if (limits_p) number = keep_from(found, number, last_value(found, number, filters->top_p * total));
    return keep_from(found, number, lowest);
}

/* Write a row's choice among the tokens that pass the filters, and its margin. */
static void choose_among_kept(const Verification *work, int64_t row, Candidate *found) {
    const Filters *filters = work->filters;
    const float top = top_of(work->parts + row * PARTS);
    if (!(top > -__builtin_inff())) return;
    const int64_t kept = kept_of(work, work->logits + row * work->vocabulary, top, found);
    const uint64_t position = mixed(mixed(filters->seed) + (uint64_t)(filters->first + work->depths[row]));
    float best = -__builtin_inff(), next = best;
    int64_t choice = 0;
    for (int64_t begin = 0; begin < kept; begin += DOUBLES) {
        words ids = {0};
        for (int lane = 0; lane < DOUBLES; lane++) ids[lane] = (uint64_t)found[at_most(begin + lane, kept - 1)].id;
        const half_vec noise = __builtin_convertvector(gumbel(ids, position), half_vec);
        for (int lane = 0; lane < DOUBLES && begin + lane < kept; lane++) {
            const float score = found[begin + lane].value + noise[lane];
            const float lesser = score > best ? best : score;
            if (lesser > next) next = lesser;
            if (score > best || (score == best && found[begin + lane].id < choice)) choice = found[begin + lane].id;
            if (score > best) best = score;
        }
    }
    work->choices[row] = choice;
    work->margins[row] = best - next;
}

static void choose_filtered(const void *context, int thread_id, int num_threads) {
    const Verification *work = context;
    for (int64_t row = thread_id; row < work->rows; row += num_threads)
        choose_among_kept(work, row, work->candidates + thread_id * work->vocabulary);
}

/* Return the log of the sum of e^x over a parent's logits / temperature. */
static float total_of_parts(const Part *parts) {
    const float top = top_of(parts);
    double sum = 0;
    for (int at = 0; at < PARTS; at++)
        sum += parts[at].sum * weight_of(all_lanes(parts[at].top), top, -__builtin_inff())[0];
    return top + log_of_sum((doubles){sum});
}

/* Bytes of memory for so many rows; `vocabulary` is 0 without filters. */
int64_t jakiro_verify_bytes(int64_t rows, int64_t vocabulary, int64_t threads) {
    return rows * PARTS * (int64_t)sizeof(Part) + threads * vocabulary * (int64_t)sizeof(Candidate);
}

/* Write each row's choice, the largest logit / temperature + noise among all tokens or those that pass the filters, with
 * the lowest id, and its margin; each node's probability after its parent; and which nodes are right together with all
 * ancestors. Return the last of these. */
int64_t jakiro_verify(const float *logits, int64_t rows, int64_t vocabulary, float temperature, const float *noise,
                      const Filters *filters, const int64_t *token_ids, const int64_t *parents, const int64_t *depths, int64_t *choices,
                      float *margins, float *target_probs, uint8_t *on_path, void *memory, int64_t threads) {
    Verification work = {logits,  rows,    vocabulary,   temperature, noise, token_ids, parents, depths,
                         choices, margins, target_probs, on_path,     memory, filters};
    work.candidates = (Candidate *)(work.parts + rows * PARTS);
    run_in_threads(look_at_parts, &work, at_most(threads, PARTS));
    for (int64_t row = 0; row < rows; row++) choose(&work, row);
    if (filters) run_in_threads(choose_filtered, &work, at_most(threads, rows));
    target_probs[0] = __builtin_nanf("");
    memset(on_path, 0, rows);
    on_path[0] = 1;
    int64_t end = 0;
    for (int64_t row = 0; row < rows; row++) {
        const float total = has_children(&work, row) ? total_of_parts(work.parts + row * PARTS) : 0;
        for (int64_t child = row + 1; child < rows; child++) {
            if (parents[child] != row) continue;
            const vec logit = divided(all_lanes(logits[row * vocabulary + token_ids[child]]), temperature);
            target_probs[child] = weight_of(logit, total, -__builtin_inff())[0];
            on_path[child] = on_path[row] && token_ids[child] == choices[row];
            if (on_path[child] && depths[child] > depths[end]) end = child;
        }
    }
    memset(on_path, 0, rows);
    for (int64_t node = end; node >= 0; node = parents[node]) on_path[node] = 1;
    return end;
}

/* ---- Mixtures ---- */

/* Replaces probabilities that are too small for a logarithm. */
#define LEAST_CHANCE 1e-30f

typedef struct {
    const float *logits;      /* (experts, rows, vocabulary) */
    const float *log_weights; /* (experts, rows), logs of weights with sum 1 */
    int64_t experts, rows, vocabulary;
    float *offsets; /* (experts, rows), offsets from an expert's logits to log(w_e q_e) */
    float *memory;  /* (threads, experts + 1, vocabulary) */
} Mixture;

/* Write e^(logit - largest); return the log of the sum of e^logit. */
static float write_chances(const float *logits, int64_t count, float *chances, float *most) {
    const float nothing = -__builtin_inff();
    vec top = (vec){0} + nothing;
    for (int64_t place = 0; place < count; place += LANES) top = larger(top, loaded(logits, place, count, nothing));
    *most = highest_of(top);
    doubles sums = {0};
    for (int64_t block = 0; block < count; block += BLOCK) {
        const int64_t end = at_most(block + BLOCK, count);
        vec sum = {0};
        for (int64_t place = block; place < end; place += LANES) {
            const vec chance = weight_of(loaded(logits, place, count, nothing), *most, nothing);
            stored(chances, place, count, chance);
            sum += chance;
        }
        sums += halves_sum(sum);
    }
    return *most + log_of_sum(sums);
}

/* Return a row's log of the mixture, (vocabulary,), at the end of the thread's memory. */
static const float *mix_row(const Mixture *work, int64_t row, int thread_id) {
    const int64_t count = work->vocabulary, experts = work->experts;
    float *chances = work->memory + thread_id * (experts + 1) * count, *result = chances + experts * count;
    for (int64_t expert = 0; expert < experts; expert++) {
        const int64_t at = expert * work->rows + row;
        float most;
        const float total = write_chances(work->logits + at * count, count, chances + expert * count, &most);
        work->offsets[at] = work->log_weights[at] - total;
        const vec factor = exponential((vec){0} + (work->offsets[at] + most));
        for (int64_t place = 0; place < count; place += LANES) {
            vec sum = loaded(chances + expert * count, place, count, 0) * factor;
            if (expert) sum += loaded(result, place, count, 0);
            stored(result, place, count, expert < experts - 1 ? sum : short_log(larger(sum, all_lanes(LEAST_CHANCE))));
        }
    }
    return result;
}

/* ---- Candidates ---- */

#define MOST_CANDIDATES 64

typedef struct {
    const float *scores; /* (rows, vocabulary) log probabilities up to a constant; null for a mixture */
    int64_t rows, vocabulary;
    float weight;
    const float *noise; /* (vocabulary,) or null */
    float noise_weight;
    int64_t width;
    int64_t *places;            /* (rows, width) */
    float *estimates, *chances; /* (rows, width); chances may be null */
} Candidates;

static inline vec ranked(const Candidates *work, const float *scores, int64_t place) {
    const vec rank = loaded(scores, place, work->vocabulary, -__builtin_inff()) * work->weight;
    return work->noise ? rank + loaded(work->noise, place, work->vocabulary, 0) * work->noise_weight : rank;
}

/* Insert a value after all that are not smaller; the last one is dropped. */
static void insert(float *values, int64_t *places, int64_t width, float value, int64_t place) {
    int64_t at = width - 1;
    for (; at > 0 && values[at - 1] < value; at--) values[at] = values[at - 1], places[at] = places[at - 1];
    values[at] = value, places[at] = place;
}

/* Rank a row's scores; `total` is the log of the sum of e^score. */
static void best_of_row(const Candidates *work, int64_t row, const float *scores, float total) {
    const int64_t count = work->vocabulary, width = work->width;
    const float nothing = -__builtin_inff();
    int64_t *places = work->places + row * width;
    float *estimates = work->estimates + row * width;
    float best[MOST_CANDIDATES];
    for (int64_t rank = 0; rank < width; rank++) best[rank] = nothing, places[rank] = rank;
    for (int64_t block = 0; block < count; block += BLOCK) {
        const int64_t end = at_most(block + BLOCK, count);
        vec highest = (vec){0} + nothing;
        for (int64_t place = block; place < end; place += LANES) highest = larger(highest, ranked(work, scores, place));
        if (highest_of(highest) <= best[width - 1]) continue;
        for (int64_t place = block; place < end; place += LANES) {
            const vec rank = ranked(work, scores, place);
            for (int lane = 0; lane < LANES && place + lane < end; lane++)
                if (rank[lane] > best[width - 1]) insert(best, places, width, rank[lane], place + lane);
        }
    }
    const float highest = best[0];
    doubles sums = {0};
    for (int64_t block = 0; block < count; block += BLOCK) {
        vec sum = {0};
        for (int64_t place = block; place < at_most(block + BLOCK, count); place += LANES)
            sum += weight_of(ranked(work, scores, place), highest, nothing);
        sums += halves_sum(sum);
    }
    const float rank_total = highest + log_of_sum(sums);
    for (int64_t rank = 0; rank < width; rank++) {
        estimates[rank] = best[rank] - rank_total;
        if (work->chances) work->chances[row * width + rank] = exponential((vec){0} + (scores[places[rank]] - total))[0];
    }
}

/* Return the log of the sum of e^score of a row. */
static float total_of(const float *scores, int64_t count) {
    const float nothing = -__builtin_inff();
    vec top = (vec){0} + nothing;
    for (int64_t place = 0; place < count; place += LANES) top = larger(top, loaded(scores, place, count, nothing));
    const float most = highest_of(top);
    doubles sums = {0};
    for (int64_t place = 0; place < count; place += LANES)
        sums += halves_sum(weight_of(loaded(scores, place, count, nothing), most, nothing));
    return most + log_of_sum(sums);
}

static void best(const void *context, int thread_id, int num_threads) {
    const Candidates *work = context;
    for (int64_t row = thread_id; row < work->rows; row += num_threads) {
        const float *scores = work->scores + row * work->vocabulary;
        best_of_row(work, row, scores, work->chances ? total_of(scores, work->vocabulary) : 0);
    }
}

int64_t jakiro_most_candidates(void) { return MOST_CANDIDATES; }

/* Find each row's best tokens by weight * score + noise_weight * noise, the lower index first among equals. Write their
 * indices, the log softmax of the ranked values, and optionally the softmax of their scores. */
void jakiro_best(const float *scores, int64_t rows, int64_t vocabulary, float weight, const float *noise,
                 float noise_weight, int64_t width, int64_t *places, float *estimates, float *chances, int64_t threads) {
    Candidates work = {scores, rows, vocabulary, weight, noise, noise_weight, width, places, estimates, chances};
    run_in_threads(best, &work, at_most(threads, rows));
}

typedef struct {
    Candidates candidates;
    Mixture mixture;
    int64_t *proposers; /* (rows, width) */
} MixedCandidates;

/* Return the expert with the largest part of a token. */
static int64_t proposer_of(const Mixture *mixture, int64_t row, int64_t token) {
    float largest = -__builtin_inff();
    int64_t found = 0;
    for (int64_t expert = 0; expert < mixture->experts; expert++) {
        const int64_t at = expert * mixture->rows + row;
        const float part = mixture->logits[at * mixture->vocabulary + token] + mixture->offsets[at];
        if (part > largest) largest = part, found = expert;
    }
    return found;
}

static void best_of_mixture(const void *context, int thread_id, int num_threads) {
    const MixedCandidates *work = context;
    const Candidates *candidates = &work->candidates;
    const Mixture *mixture = &work->mixture;
    for (int64_t row = thread_id; row < candidates->rows; row += num_threads) {
        best_of_row(candidates, row, mix_row(mixture, row, thread_id), 0);
        for (int64_t at = row * candidates->width; at < (row + 1) * candidates->width; at++)
            work->proposers[at] = proposer_of(mixture, row, candidates->places[at]);
    }
}

/* `jakiro_best` over the log of the experts' mixture, and the expert with the largest part of each token. */
void jakiro_best_of_mixture(const float *logits, const float *log_weights, int64_t experts, int64_t rows, int64_t vocabulary,
                            float weight, const float *noise, float noise_weight, int64_t width, float *offsets,
                            float *memory, int64_t *places, float *estimates, float *chances, int64_t *proposers,
                            int64_t threads) {
    MixedCandidates work = {{0, rows, vocabulary, weight, noise, noise_weight, width, places, estimates, chances},
                            {logits, log_weights, experts, rows, vocabulary, offsets, memory}, proposers};
    run_in_threads(best_of_mixture, &work, at_most(threads, rows));
}
