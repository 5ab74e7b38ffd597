#include "dots.h"

#include "products.h"

#if LANES == 16 && defined(__AVX512VNNI__)
#define DOT(sums, row, weights) ((ints)_mm512_dpbusd_epi32((__m512i)(sums), (__m512i)(row), (__m512i)(weights)))
#elif LANES == 8 && defined(__AVXVNNI__)
#define DOT(sums, row, weights) ((ints)_mm256_dpbusd_avx_epi32((__m256i)(sums), (__m256i)(row), (__m256i)(weights)))
#endif

#ifdef DOT
/* Numbers of a row that one instruction reads. */
#define STEP 4

typedef uint8_t row_bytes __attribute__((vector_size(LANES), aligned(1)));

/* LANES numbers of a row times their factors, those past its end being 0. */
static inline vec factored(const float *row, const float *factors, int64_t place, int64_t inputs) {
    return loaded(row, place, inputs, 0) * loaded(factors, place, inputs, 0);
}

static int64_t padded_inputs(int64_t inputs) { return (inputs + LANES - 1) / LANES * LANES; }

int64_t rounded_floats(int64_t rows, int64_t inputs, int64_t bytes) {
    return rows * (1 + bytes * padded_inputs(inputs) / (int64_t)sizeof(float));
}

Rounded round_rows(const float *input, const float *factors, int64_t rows, int64_t inputs, int64_t bytes, float *scales) {
    const int64_t padded = padded_inputs(inputs);
    const float half = bytes == 1 ? 128 : 32768;
    uint8_t *numbers = (uint8_t *)(scales + rows);
    for (int64_t row = 0; row < rows; row++) {
        const float *source = input + row * inputs;
        uint8_t *upper = numbers + row * bytes * padded, *lower = upper + (bytes - 1) * padded;
        vec sizes = all_lanes(1e-30f);
        for (int64_t place = 0; place < inputs; place += LANES) {
            const vec x = factored(source, factors, place, inputs);
            sizes = larger(sizes, larger(x, -x));
        }
        const float largest = highest_of(sizes), inverse = (half - 1) / largest;
        scales[row] = largest / (half - 1);
        for (int64_t place = 0; place < inputs; place += LANES) {
            /* Cut off half a number further up it is rounded */
            const vec x = factored(source, factors, place, inputs) * inverse + (half + 0.5f);
            const ints number = __builtin_convertvector(x, ints);
            *(row_bytes *)(lower + place) = __builtin_convertvector(number, row_bytes);
            if (bytes == 2) *(row_bytes *)(upper + place) = __builtin_convertvector(number >> 8, row_bytes);
        }
    }
    return (Rounded){numbers, scales, padded, bytes};
}

/* (ROWS, inputs) times one panel, into (ROWS, PANEL) sums. */
#define PRODUCT(ROWS)                                                                                        \
    static void product_##ROWS(const int8_t *panel, const uint8_t *numbers, int64_t inputs, int32_t *sums) { \
        ints left[ROWS], right[ROWS];                                                                        \
        for (int row = 0; row < ROWS; row++) left[row] = right[row] = (ints){0};                             \
        for (int64_t k = 0; k < inputs; k += STEP) {                                                         \
            const int8_t *weights = panel + k * PANEL;                                                       \
            __builtin_prefetch(weights + AHEAD);                                                             \
            __builtin_prefetch(weights + AHEAD + STEP * LANES);                                              \
            const ints first = *(const ints *)weights, second = *(const ints *)(weights + STEP * LANES);     \
            for (int row = 0; row < ROWS; row++) {                                                           \
                int32_t four;                                                                                \
                memcpy(&four, numbers + row * inputs + k, STEP);                                             \
                const ints all = (ints){0} + four;                                                           \
                left[row] = DOT(left[row], all, first);                                                      \
                right[row] = DOT(right[row], all, second);                                                   \
            }                                                                                                \
        }                                                                                                    \
        for (int row = 0; row < ROWS; row++) {                                                               \
            *(ints *)(sums + row * PANEL) = left[row];                                                       \
            *(ints *)(sums + row * PANEL + LANES) = right[row];                                              \
        }                                                                                                    \
    }
FOR_EVERY_COUNT(PRODUCT)

void dot_product(const int8_t *panel, const int32_t *added, Rounded rows, int64_t first, int64_t count, float *tile) {
    const int64_t bytes = rows.bytes;
    const uint8_t *numbers = rows.numbers + first * bytes * rows.inputs;
    int32_t sums[MOST_ROWS * PANEL];
#define CASE(ROWS) \
    case ROWS: product_##ROWS(panel, numbers, rows.inputs, sums); break;
    switch (count * bytes) { FOR_EVERY_COUNT(CASE) }
    for (int64_t row = 0; row < count; row++)
        for (int64_t place = 0; place < PANEL; place += LANES) {
            const int32_t *upper = sums + row * bytes * PANEL + place;
            vec sum = __builtin_convertvector(*(const ints *)upper - *(const ints *)(added + place), vec);
            if (bytes == 2) sum = sum * 256 + __builtin_convertvector(*(const ints *)(upper + PANEL), vec);
            *(vec *)(tile + row * PANEL + place) = sum * rows.scales[first + row];
        }
}

int64_t jakiro_dots(void) { return 1; }
#else
int64_t rounded_floats(int64_t rows, int64_t inputs, int64_t bytes) { return 0; }
Rounded round_rows(const float *input, const float *factors, int64_t rows, int64_t inputs, int64_t bytes, float *memory) {
    return (Rounded){0};
}
void dot_product(const int8_t *panel, const int32_t *added, Rounded rows, int64_t first, int64_t count, float *tile) {}
int64_t jakiro_dots(void) { return 0; }
#endif
