#include "dots.h"

#include "products.h"

/* Numbers of a row read by one instruction. */
#define STEP 2

typedef int16_t shorts __attribute__((vector_size(4 * LANES), aligned(2)));
typedef int16_t lane_shorts __attribute__((vector_size(2 * LANES), aligned(2)));

/* Add to each lane of a sum the products of its two numbers of x and of y. */
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

/* Return LANES numbers of a row times their factors; numbers after its end are 0. */
static inline vec factored(const float *row, const float *factors, int64_t place, int64_t inputs) {
    if (place >= inputs) return (vec){0};
    const vec x = loaded(row, place, inputs, 0);
    return factors ? x * loaded(factors, place, inputs, 0) : x;
}

/* A block's numbers are rounded in whole vectors. */
static int64_t padded_inputs(Blocks blocks) { return (blocks.blocks * blocks.block + LANES - 1) / LANES * LANES; }

/* Largest number of a block: with weights of at most 127, sums fit into 32 bits. */
static float largest_number(int64_t block) { return (float)at_most(INT32_MAX / (127 * block), INT16_MAX); }

int64_t rounded_floats(int64_t rows, Blocks blocks) {
    const int64_t per_row = padded_inputs(blocks) * (int64_t)sizeof(int16_t) / (int64_t)sizeof(float);
    return rows * (per_row + (1 + blocks.minima) * blocks.blocks);
}

/* Numbers without sign, or sizes of floats: an infinity is larger than all finite numbers, NaN is larger than that. */
#define INFINITE 0x7F800000

static inline int32_t highest_whole(ints x) {
#if LANES == 16
    return _mm512_reduce_max_epi32((__m512i)x);
#else
    int32_t highest = x[0];
    for (int lane = 1; lane < LANES; lane++) highest = x[lane] > highest ? x[lane] : highest;
    return highest;
#endif
}

static inline int32_t sum_of_whole(ints x) {
#if LANES == 16
    return _mm512_reduce_add_epi32((__m512i)x);
#else
    int32_t sum = 0;
    for (int lane = 0; lane < LANES; lane++) sum += x[lane];
    return sum;
#endif
}

Rounded round_rows(const float *input, const float *factors, int64_t rows, int64_t inputs, Blocks blocks, float *memory) {
    const int64_t padded = padded_inputs(blocks);
    const float most = largest_number(blocks.block);
    /* 1.5 * 2^23: the sum with this number is rounded to a whole number, which is in the lowest 16 bits of the float */
    const vec shift = all_lanes(12582912.0f), least = all_lanes(1e-30f);
    int16_t *numbers = (int16_t *)memory;
    float *scales = (float *)(numbers + rows * padded), *sums = scales + rows * blocks.blocks;
    for (int64_t row = 0, at = 0; row < rows; row++)
        for (int64_t first = 0; first < blocks.blocks * blocks.block; first += blocks.block, at++) {
            const float *source = input + row * inputs;
            ints sizes = (ints)least, sum = {0};
            for (int64_t place = first; place < first + blocks.block; place += LANES) {
                const ints size = (ints)factored(source, factors, place, inputs) & INT32_MAX, more = size > sizes;
                sizes = (size & more) | (sizes & ~more);
            }
            const int32_t largest = highest_whole(sizes);
            float size;
            memcpy(&size, &largest, sizeof size);
            const vec inverse = all_lanes(most / size);
            scales[at] = largest < INFINITE ? size / most : __builtin_nanf("");
            for (int64_t place = first; place < first + blocks.block; place += LANES) {
                const ints whole = (ints)(factored(source, factors, place, inputs) * inverse + shift);
                *(lane_shorts *)(numbers + row * padded + place) = __builtin_convertvector(whole, lane_shorts);
                if (blocks.minima) sum += whole - (ints)shift;
            }
            if (blocks.minima) sums[at] = scales[at] * (float)sum_of_whole(sum);
        }
    return (Rounded){blocks, numbers, scales, sums};
}

/* Return so many weights of a panel, as pairs. */
static inline shorts widened(const int8_t *weights) {
    typedef int8_t bytes __attribute__((vector_size(2 * LANES), aligned(1)));
    return __builtin_convertvector(*(const bytes *)weights, shorts);
}

/* Return LANES scales or minima of a panel, starting at an index. */
static inline vec scales_at(const int8_t *panel, int64_t scale_bytes, int64_t at) {
    return scale_bytes == 2 ? from_half((const uint16_t *)panel + at) : from_float((const float *)panel + at);
}

static inline void add_block(float *result, ints sum, vec scale, vec minimum, float row_scale, const float *row_sum) {
    vec total = *(vec *)result + __builtin_convertvector(sum, vec) * (scale * row_scale);
    if (row_sum) total = total + minimum * *row_sum;
    *(vec *)result = total;
}

/* Multiply (ROWS, inputs) by one panel into (ROWS, PANEL); sums of a block stay in registers, results in the L1 cache. */
#define PRODUCT(ROWS)                                                                                                \
    static void product_##ROWS(const int8_t *panel, const int16_t *numbers, const float *row_scales,                 \
                               const float *row_sums, Blocks blocks, int64_t inputs, float *tile) {                  \
        const int64_t head = scales_bytes(blocks), bytes = blocks.scale_bytes, after = blocks.minima * PANEL;        \
        for (int64_t block = 0; block < blocks.blocks; block++, numbers += blocks.block) {                           \
            const vec scale = scales_at(panel, bytes, 0), other_scale = scales_at(panel, bytes, LANES);              \
            const vec minimum = scales_at(panel, bytes, after), other = scales_at(panel, bytes, after + LANES);      \
            for (int64_t line = 0; line < head; line += LINE) read_ahead(panel + line);                              \
            panel += head;                                                                                           \
            ints left[ROWS], right[ROWS];                                                                            \
            _Pragma("GCC unroll 16") for (int row = 0; row < ROWS; row++) left[row] = right[row] = (ints){0};        \
            for (int64_t k = 0; k < blocks.block; k += STEP, panel += STEP * PANEL) {                                \
                read_ahead(panel);                                                                                   \
                const shorts first = widened(panel), second = widened(panel + STEP * LANES);                         \
                _Pragma("GCC unroll 16") for (int row = 0; row < ROWS; row++) {                                      \
                    int32_t pair;                                                                                    \
                    memcpy(&pair, numbers + row * inputs + k, sizeof pair);                                          \
                    const shorts all = (shorts)((ints){0} + pair);                                                   \
                    left[row] = add_pairs(left[row], all, first);                                                    \
                    right[row] = add_pairs(right[row], all, second);                                                 \
                }                                                                                                    \
            }                                                                                                        \
            _Pragma("GCC unroll 16") for (int row = 0; row < ROWS; row++) {                                          \
                const int64_t at = row * blocks.blocks + block;                                                      \
                const float *sum = blocks.minima ? row_sums + at : 0;                                                \
                float *result = tile + row * PANEL;                                                                  \
                add_block(result, left[row], scale, minimum, row_scales[at], sum);                                   \
                add_block(result + LANES, right[row], other_scale, other, row_scales[at], sum);                      \
            }                                                                                                        \
        }                                                                                                            \
    }
FOR_EVERY_COUNT(PRODUCT)

void dot_product(const int8_t *panel, Rounded rows, int64_t first, int64_t count, float *tile) {
    const int64_t inputs = padded_inputs(rows.blocks), at = first * rows.blocks.blocks;
    const int16_t *numbers = rows.numbers + first * inputs;
    memset(tile, 0, count * PANEL * sizeof(float));
#define CASE(ROWS) \
    case ROWS: product_##ROWS(panel, numbers, rows.scales + at, rows.sums + at, rows.blocks, inputs, tile); break;
    switch (count) { FOR_EVERY_COUNT(CASE) }
}

int64_t scales_bytes(Blocks blocks) { return (1 + blocks.minima) * PANEL * blocks.scale_bytes; }

int64_t panel_bytes(Blocks blocks) { return blocks.blocks * (scales_bytes(blocks) + PANEL * blocks.block); }
