/* Vectors of this processor's width, in the vector extension of GCC and Clang, and functions over them. */

#pragma once

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES 16
#elif defined(__AVX2__) && defined(__F16C__) && defined(__FMA__)
#include <immintrin.h>
#define LANES 8
#else
#define LANES 4
#if defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#endif
#define DOUBLES (LANES / 2)

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4)));
typedef int32_t ints __attribute__((vector_size(4 * LANES), aligned(4)));
typedef float half_vec __attribute__((vector_size(2 * LANES), aligned(4)));
typedef double doubles __attribute__((vector_size(8 * DOUBLES), aligned(8)));

typedef int64_t longs __attribute__((vector_size(8 * DOUBLES), aligned(8)));
typedef uint64_t words __attribute__((vector_size(8 * DOUBLES), aligned(8)));

/* A float16; infinity and NaN become NaN. */
static inline float one_half(const void *source) {
    uint16_t half;
    memcpy(&half, source, sizeof half);
    if ((half & 0x7C00) == 0x7C00) return __builtin_nanf("");
    /* Move the bits, then correct the bias of the exponent */
    const uint32_t bits = (uint32_t)(half & 0x7FFF) << 13;
    float size;
    memcpy(&size, &bits, sizeof size);
    return half & 0x8000 ? -(size * 0x1p112f) : size * 0x1p112f;
}

/* LANES float16. */
static inline vec from_half(const uint16_t *source) {
#if LANES == 16
    return (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)source));
#elif LANES == 8
    return (vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)source));
#else
    /* Move the bits, then correct the bias of the exponent; numbers are finite */
    typedef uint16_t halves __attribute__((vector_size(2 * LANES), aligned(2)));
    const ints bits = __builtin_convertvector(*(const halves *)source, ints);
    return (vec)((ints)((vec)((bits & 0x7FFF) << 13) * 0x1p112f) | (bits & 0x8000) << 16);
#endif
}

static inline vec from_float(const float *source) { return *(const vec *)source; }

static inline int64_t at_most(int64_t count, int64_t most) { return count < most ? count : most; }

static inline int64_t at_least(int64_t count, int64_t least) { return count > least ? count : least; }

/* The same number in every lane; 0 + x would be computed, because of x = -0. */
static inline vec all_lanes(float x) { return x - (vec){0}; }

static inline doubles all_doubles(double x) { return x - (doubles){0}; }

/* a * b + c, rounded once if the processor supports it. Compilers must not fuse automatically: they decide by the
 * surrounding loop (GCC fuses no single sum on AMD's processors), and one row would be rounded unlike many. */
static inline vec fused(vec a, vec b, vec c) {
#if LANES == 16
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif LANES == 8
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

static inline doubles fused_doubles(doubles a, doubles b, doubles c) {
#if LANES == 16
    return (doubles)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif LANES == 8
    return (doubles)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
    return (doubles)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    return a * b + c;
#endif
}

/* Select, for each lane, the first vector if the mask is set, otherwise the second. */
static inline vec either(ints mask, vec first, vec second) { return (vec)(((ints)first & mask) | ((ints)second & ~mask)); }

/* Returns b if one of both is NaN, as x86's instructions do. */
static inline vec smaller(vec a, vec b) {
#if LANES == 16
    return (vec)_mm512_min_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (vec)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return either(a < b, a, b);
#endif
}

static inline vec larger(vec a, vec b) {
#if LANES == 16
    return (vec)_mm512_max_ps((__m512)a, (__m512)b);
#elif LANES == 8
    return (vec)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return either(a > b, a, b);
#endif
}

/* e^x within two units in the last place, for x from -87 to 88: 2^n times a Taylor series on at most ln 2 / 2. */
static inline vec exponential(vec x) {
    const vec shift = (vec){0} + 12582912.0f; /* 1.5 * 2^23: the sum with it is rounded to a whole number */
    x = smaller(larger(x, all_lanes(-87.0f)), all_lanes(88.0f));
    const vec whole = fused(x, all_lanes(1.44269504f), shift) - shift;
    const vec rest = fused(whole, all_lanes(-1.42860677e-6f), fused(whole, all_lanes(-0.693145752f), x));
    vec sum = all_lanes(1.0f / 5040);
    const float terms[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
#pragma GCC unroll 7
    for (int term = 0; term < 7; term++) sum = fused(sum, rest, all_lanes(terms[term]));
    return sum * (vec)((__builtin_convertvector(whole, ints) + 127) << 23);
}

/* e^x to about the last place, in 64 bits, for x from -700 to 0; see `exponential`. */
static inline doubles exponential_doubles(doubles x) {
    const doubles shift = all_doubles(0x1.8p52);
    x = (doubles)(((longs)x & (x > -700.0)) | ((longs)all_doubles(-700.0) & ~(x > -700.0)));
    const doubles whole = fused_doubles(x, all_doubles(1.4426950408889634), shift) - shift;
    doubles rest = fused_doubles(whole, all_doubles(-0.693147180369123816490), x);
    rest = fused_doubles(whole, all_doubles(-1.9082149292705877e-10), rest);
    double factorial = 6227020800.0;
    doubles sum = all_doubles(1 / factorial);
    for (int term = 13; term > 0; term--) {
        factorial /= term;
        sum = fused_doubles(sum, rest, all_doubles(1 / factorial));
    }
    return sum * (doubles)((__builtin_convertvector(whole, longs) + 1023) << 52);
}

/* log x for normal x above 0, to about the last place: x = 2^e m with m around 1, log m as a series in (m - 1)/(m + 1). */
static inline doubles natural_log(doubles x) {
    const words bits = (words)x;
    doubles m = (doubles)((bits & 0xFFFFFFFFFFFFFull) | 0x3FF0000000000000ull);
    const longs large = m > 1.4142135623730951;
    m = (doubles)(((longs)m & ~large) | ((longs)(m * 0.5) & large));
    const doubles exponent = __builtin_convertvector((longs)(bits >> 52) - 1023 - large, doubles);
    const doubles t = (m - 1.0) / (m + 1.0), s = t * t;
    doubles sum = s * (1.0 / 21) + 1.0 / 19;
    for (int odd = 17; odd > 1; odd -= 2) sum = fused_doubles(sum, s, all_doubles(1.0 / odd));
    const doubles small = fused_doubles(exponent, all_doubles(1.9082149292705877e-10), t * s * sum * 2.0);
    return small + fused_doubles(exponent, all_doubles(0.693147180369123816490), t * 2.0);
}

/* `natural_log` in 32 bits: log m = z + z^2 times a polynomial in z = m - 1, fitted by least squares. */
static inline vec short_log(vec x) {
    const ints bits = (ints)x;
    const vec scaled = (vec)((bits & 0x7FFFFF) | 0x3F800000);
    const ints large = scaled > 1.41421356f;
    const vec z = either(large, scaled * 0.5f, scaled) - 1.0f;
    const vec exponent = __builtin_convertvector((bits >> 23) - 127 - large, vec);
    vec sum = all_lanes(0.0851866081f);
    const float terms[] = {-0.142039523f, 0.149493694f, -0.165868118f, 0.199606553f, -0.250010312f, 0.333339721f, -0.5f};
#pragma GCC unroll 7
    for (int term = 0; term < 7; term++) sum = fused(sum, z, all_lanes(terms[term]));
    return fused(exponent, all_lanes(0.693147182f), fused(z * z, sum, z));
}

static inline float highest_of(vec x) {
    float highest = x[0];
    for (int lane = 1; lane < LANES; lane++)
        if (x[lane] > highest) highest = x[lane];
    return highest;
}

static inline double sum_of(doubles x) {
    double sum = 0;
    for (int lane = 0; lane < DOUBLES; lane++) sum += x[lane];
    return sum;
}

/* e^(x - highest), and 0 if x is at most `nothing`, the value that represents no number. */
static inline vec weight_of(vec x, float highest, float nothing) {
    return (vec)((ints)exponential(x - highest) & (x > nothing));
}

/* LANES numbers from a row; numbers after its end are `missing`. */
static inline vec loaded(const float *row, int64_t place, int64_t count, float missing) {
    if (place + LANES <= count) return *(const vec *)(row + place);
    vec x = (vec){0} + missing;
    memcpy(&x, row + place, (count - place) * sizeof(float));
    return x;
}

static inline void stored(float *row, int64_t place, int64_t count, vec x) {
    if (place + LANES <= count) *(vec *)(row + place) = x;
    else memcpy(row + place, &x, (count - place) * sizeof(float));
}

/* Transpose rows and columns. Lanes of two rows change places at distances 1, 2, 4, …; indices from LANES on refer to
 * the second row. */
static inline void exchange(vec rows[LANES]) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC unroll 4
    for (int distance = 1; distance < LANES; distance *= 2) {
        ints for_first = {0}, for_second = {0};
#pragma GCC unroll 16
        for (int lane = 0; lane < LANES; lane++) {
            for_first[lane] = lane & distance ? (lane ^ distance) + LANES : lane;
            for_second[lane] = lane & distance ? lane + LANES : lane ^ distance;
        }
#pragma GCC unroll 16
        for (int row = 0; row < LANES; row++)
            if (!(row & distance)) {
                const vec first = rows[row], second = rows[row | distance];
                rows[row] = __builtin_shuffle(first, second, for_first);
                rows[row | distance] = __builtin_shuffle(first, second, for_second);
            }
    }
#else
    float values[LANES][LANES];
    for (int row = 0; row < LANES; row++) *(vec *)values[row] = rows[row];
    for (int row = 0; row < LANES; row++)
        for (int lane = 0; lane < LANES; lane++) rows[row][lane] = values[lane][row];
#endif
}
