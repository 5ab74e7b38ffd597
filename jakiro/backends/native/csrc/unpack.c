/* Conversion of quantized blocks of GGUF files to panels of BLOCKS. */

#include "products.h"

/* Types by ggml's numbers; gguf.quants of the Python package is the reference of the format. */
enum { Q4_0 = 2, Q4_1 = 3, Q5_0 = 6, Q5_1 = 7, Q8_0 = 8, Q4_K = 12, Q5_K = 13, Q6_K = 14 };

#define SUPER 256

/* Contents of a stored block: numbers, and for every 32 (Q6_K: 16) of them a scale and a minimum, which is added. */
typedef struct {
    int8_t numbers[SUPER];
    float scales[SUPER / 16], minima[SUPER / 16];
} Unpacked;

/* Numbers of 4 bits: the lower halves of `half` bytes, then the upper ones. */
static void unpack_halves(const uint8_t *source, int half, int8_t *numbers) {
    for (int i = 0; i < half; i++) {
        numbers[i] = source[i] & 15;
        numbers[i + half] = source[i] >> 4;
    }
}

static void shift_by(int8_t *numbers, int count, int shift) {
    for (int i = 0; i < count; i++) numbers[i] -= shift;
}

/* Types in blocks of 32: a scale, a minimum, fifth bits, numbers. */
static void unpack_32(int64_t type, const uint8_t *source, Unpacked *found) {
    const int minimum = type == Q4_1 || type == Q5_1, fifth = type == Q5_0 || type == Q5_1;
    found->scales[0] = one_half(source);
    found->minima[0] = minimum ? one_half(source + 2) : 0;
    source += minimum ? 4 : 2;
    if (type == Q8_0) {
        memcpy(found->numbers, source, 32);
        return;
    }
    unpack_halves(source + 4 * fifth, 16, found->numbers);
    for (int i = 0; fifth && i < 32; i++) found->numbers[i] |= (source[i / 8] >> i % 8 & 1) << 4;
    if (!minimum) shift_by(found->numbers, 32, fifth ? 16 : 8);
}

/* Q4_K and Q5_K: eight blocks of 32, with scales and minima of 6 bits times one common scale each. The file's minima
 * are subtracted, ours are added, hence the minus sign. */
static void unpack_k(int64_t type, const uint8_t *source, Unpacked *found) {
    const uint8_t *sixes = source + 4, *fifths = source + 16, *numbers = fifths + (type == Q5_K ? 32 : 0);
    const float scale = one_half(source), minimum = -one_half(source + 2);
    for (int block = 0; block < 8; block++) {
        const int upper = block >= 4, at = block % 4;
        const int own = upper ? (sixes[at + 8] & 15) | sixes[at] >> 6 << 4 : sixes[at] & 63;
        const int least = upper ? sixes[at + 8] >> 4 | sixes[at + 4] >> 6 << 4 : sixes[at + 4] & 63;
        found->scales[block] = scale * own;
        found->minima[block] = minimum * least;
    }
    for (int pair = 0; pair < 4; pair++) unpack_halves(numbers + 32 * pair, 32, found->numbers + 64 * pair);
    for (int i = 0; type == Q5_K && i < SUPER; i++) found->numbers[i] |= (fifths[i % 32] >> i / 32 & 1) << 4;
}

/* Q6_K: sixteen blocks of 16; lower four bits, upper two, scales of 8 bits, and a common scale. */
static void unpack_6_k(const uint8_t *source, Unpacked *found) {
    const uint8_t *uppers = source + 128;
    const int8_t *scales = (const int8_t *)source + 192;
    const float scale = one_half(source + 208);
    for (int block = 0; block < 16; block++) found->scales[block] = scale * scales[block], found->minima[block] = 0;
    for (int half = 0; half < 2; half++) {
        int8_t *numbers = found->numbers + 128 * half;
        unpack_halves(source + 64 * half, 64, numbers);
        for (int i = 0; i < 128; i++) numbers[i] |= (uppers[32 * half + i % 32] >> i / 32 * 2 & 3) << 4;
    }
    shift_by(found->numbers, SUPER, 32);
}

/* Write one output's numbers of a block of `block` inputs, and its scale and minimum: the float16 bytes of `stored` if
 * scales have 2 bytes, else `scale` and `minimum` as float32. Return whether both are finite. */
static int place(int8_t *panel, Blocks blocks, int64_t lane, float scale, float minimum, const int8_t *numbers,
                 const uint8_t *stored) {
    int8_t *place = panel + scales_bytes(blocks) + 2 * lane;
    const uint8_t none[2] = {0};
    if (blocks.scale_bytes == 2) {
        memcpy(panel + 2 * lane, stored, 2);
        if (blocks.minima) memcpy(panel + 2 * (PANEL + lane), minimum ? stored + 2 : none, 2);
    } else {
        ((float *)panel)[lane] = scale;
        if (blocks.minima) ((float *)panel)[PANEL + lane] = minimum;
    }
    for (int64_t i = 0; i < blocks.block; i += 2) memcpy(place + i * PANEL, numbers + i, 2);
    return scale - scale == 0 && minimum - minimum == 0;
}

/* Write stored rows of a matrix, (rows, row_bytes) of a type, from its output `first` on: output `first` + i is row
 * order[i], or row i if `order` is null. If the matrix's blocks are half as long as the type's, a block becomes two.
 * Return the number of rows with a scale that is not finite. */
int64_t jakiro_unpack(const Matrix *matrix, int64_t first, int64_t type, const uint8_t *source, const int64_t *order,
                      int64_t rows, int64_t row_bytes) {
    const int64_t large = type >= Q4_K, per_stored = large ? SUPER : 32, own = type == Q6_K ? 16 : 32;
    const int64_t block = matrix->blocks.block, inputs = matrix->blocks.blocks * block;
    const int64_t stored_bytes = row_bytes / (inputs / per_stored);
    const int64_t block_bytes = panel_bytes(matrix->blocks) / matrix->blocks.blocks;
    int64_t damaged = 0;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t output = first + row;
        const uint8_t *stored = source + (order ? order[row] : row) * row_bytes;
        int8_t *panel = (int8_t *)matrix->weights + output / PANEL * panel_bytes(matrix->blocks);
        int is_finite = 1;
        for (int64_t done = 0; done < inputs; done += per_stored, stored += stored_bytes) {
            Unpacked found;
            if (type == Q6_K) unpack_6_k(stored, &found);
            else if (large) unpack_k(type, stored, &found);
            else unpack_32(type, stored, &found);
            for (int64_t i = 0; i < per_stored; i += block, panel += block_bytes)
                is_finite &= place(panel, matrix->blocks, output % PANEL, found.scales[i / own], found.minima[i / own],
                                   found.numbers + i, stored);
        }
        damaged += !is_finite;
    }
    return damaged;
}
