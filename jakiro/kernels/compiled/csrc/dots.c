#include "dots.h"

#include "products.h"

/* Numbers of a row that one instruction reads. */
#define STEP 2

typedef int16_t shorts __attribute__((vector_size(4 * LANES), aligned(2)));
typedef int16_t lane_shorts __attribute__((vector_size(2 * LANES), aligned(2)));

/* To each lane of a sum the products of its two numbers of x and of y. */
static inline ints add_pairs(ints sum, shorts x, shorts y) {
#if LANES == 16 && defined(__AVX512VNNI__)
    return (ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)x, (__m512i)y);
#elif LANES == 16 && defined(__AVX512BW__)
    return sum + (ints)_mm512_madd_epi16((__m512i)x, (__m512i)y);
#elif LANES == 8 && defined(__AVXVNNI__)
    return (ints)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)x, (__m256i)y);
#elif LANES == 8
    return sum + (ints)_mm256_madd_epi16((__m256i)x, (__m256i)y);
#elif defined(__SSE2__)
    return sum + (ints)_mm_madd_epi16((__m128i)x, (__m128i)y);
#else
    return sum + ((ints)x << 16 >> 16) * ((ints)y << 16 >> 16) + ((ints)x >> 16) * ((ints)y >> 16);
#endif
}

/* LANES numbers of a row times their factors, those past its end being 0. */
static inline vec factored(const float *row, const float *factors, int64_t place, int64_t inputs) {
    return loaded(row, place, inputs, 0) * loaded(factors, place, inputs, 0);
}

static int64_t padded_inputs(int64_t inputs) { return (inputs + LANES - 1) / LANES * LANES; }

/* The largest number of a row: with weights of 127 no sum leaves 32 bits. */
static float largest_number(int64_t inputs) { return (float)at_most(INT32_MAX / (127 * inputs), INT16_MAX); }

int64_t rounded_floats(int64_t rows, int64_t inputs) {
    return rows * (1 + padded_inputs(inputs) * (int64_t)sizeof(int16_t) / (int64_t)sizeof(float));
}

Rounded round_rows(const float *input, const float *factors, int64_t rows, int64_t inputs, float *scales) {
    const int64_t padded = padded_inputs(inputs);
    const float most = largest_number(inputs);
    const vec shift = all_lanes(12582912.0f); /* 1.5 * 2^23: adding it rounds to a whole number */
    int16_t *numbers = (int16_t *)(scales + rows);
    for (int64_t row = 0; row < rows; row++) {
        const float *source = input + row * inputs;
        vec sizes = all_lanes(1e-30f);
        for (int64_t place = 0; place < inputs; place += LANES) {
            const vec x = factored(source, factors, place, inputs);
            sizes = larger(sizes, larger(x, -x));
        }
        const float largest = highest_of(sizes), inverse = most / largest;
        scales[row] = largest / most;
        for (int64_t place = 0; place < inputs; place += LANES) {
            const vec whole = factored(source, factors, place, inputs) * inverse + shift - shift;
            *(lane_shorts *)(numbers + row * padded + place) =
                __builtin_convertvector(__builtin_convertvector(whole, ints), lane_shorts);
        }
    }
    return (Rounded){numbers, scales, padded};
}

/* So many weights of a panel, as pairs. */
static inline shorts widened(const int8_t *weights) {
    typedef int8_t bytes __attribute__((vector_size(2 * LANES), aligned(1)));
    return __builtin_convertvector(*(const bytes *)weights, shorts);
}

/* (ROWS, inputs) times one panel, into (ROWS, PANEL) sums. */
#define PRODUCT(ROWS)                                                                                        \
    static void product_##ROWS(const int8_t *panel, const int16_t *numbers, int64_t inputs, int32_t *sums) { \
        ints left[ROWS], right[ROWS];                                                                        \
        for (int row = 0; row < ROWS; row++) left[row] = right[row] = (ints){0};                             \
        for (int64_t k = 0; k < inputs; k += STEP) {                                                         \
            const int8_t *weights = panel + k * PANEL;                                                       \
            read_ahead(weights);                                                                             \
            const shorts first = widened(weights), second = widened(weights + STEP * LANES);                 \
            for (int row = 0; row < ROWS; row++) {                                                           \
                int32_t pair;                                                                                \
                memcpy(&pair, numbers + row * inputs + k, sizeof pair);                                      \
                const shorts all = (shorts)((ints){0} + pair);                                               \
                left[row] = add_pairs(left[row], all, first);                                                \
                right[row] = add_pairs(right[row], all, second);                                             \
            }                                                                                                \
        }                                                                                                    \
        for (int row = 0; row < ROWS; row++) {                                                               \
            *(ints *)(sums + row * PANEL) = left[row];                                                       \
            *(ints *)(sums + row * PANEL + LANES) = right[row];                                              \
        }                                                                                                    \
    }
FOR_EVERY_COUNT(PRODUCT)

void dot_product(const int8_t *panel, Rounded rows, int64_t first, int64_t count, float *tile) {
    const int16_t *numbers = rows.numbers + first * rows.inputs;
    int32_t sums[MOST_ROWS * PANEL];
#define CASE(ROWS) \
    case ROWS: product_##ROWS(panel, numbers, rows.inputs, sums); break;
    switch (count) { FOR_EVERY_COUNT(CASE) }
    for (int64_t row = 0; row < count; row++)
        for (int64_t place = 0; place < PANEL; place += LANES) {
            const vec sum = __builtin_convertvector(*(const ints *)(sums + row * PANEL + place), vec);
            *(vec *)(tile + row * PANEL + place) = sum * rows.scales[first + row];
        }
}
