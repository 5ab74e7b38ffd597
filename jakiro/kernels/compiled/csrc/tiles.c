#define _GNU_SOURCE
#include "tiles.h"

#include "vectors.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && LANES == 16
#include <sys/syscall.h>
#include <unistd.h>

/* Rows, pairs of inputs and outputs of a tile; inputs and outputs that are read together; numbers of two tiles. */
#define TILE 16
#define STEP (2 * TILE)
#define PARTS 3
#define BLOCK (2 * TILE * STEP)

/* So many numbers of a panel are read into the second cache before they are multiplied. */
#define AHEAD (6 * BLOCK)

/* Up to so many blocks of rows share the prefetching of the next panel; with more, reading costs little anyway. */
#define FEW_BLOCKS 4

/* Else so many bytes of panels stay in the second cache while one block after another is multiplied by them. */
#define GROUP_BYTES (1 << 19)

/* arch_prctl(2): asks the kernel for the tiles' registers */
#define REQUEST_PERMISSION 0x1023
#define TILE_DATA 18

/* The upper half of a float is a bfloat16: the number cut off after eight digits. */
static inline ints upper(vec x) { return (ints)x & (int32_t)0xFFFF0000; }

static inline void keep(uint16_t *target, ints part) {
    typedef uint16_t upper_halves __attribute__((vector_size(2 * LANES), aligned(2)));
    typedef uint32_t plain __attribute__((vector_size(4 * LANES), aligned(4)));
    *(upper_halves *)target = __builtin_convertvector((plain)part >> 16, upper_halves);
}

/* Parts that are read together: those of all rows where one tile holds them, else two tiles; no tile may be empty. */
static inline int64_t parts_together(int64_t rows) {
    if (rows == 0) return PARTS;
    return PARTS * rows <= TILE ? PARTS * rows : 2 * TILE;
}

int64_t parts_floats(int64_t rows, int64_t inputs) {
    const int64_t steps = (inputs + STEP - 1) / STEP, blocks = (rows + TILED_ROWS - 1) / TILED_ROWS;
    return blocks * steps * parts_together(rows) * STEP * (int64_t)sizeof(uint16_t) / (int64_t)sizeof(float);
}

/* Blocks of TILED_ROWS rows, each (steps, parts, STEP): the rows' upper parts, then the middle ones, then the lower. */
Parts split(const float *input, int64_t rows, int64_t inputs, float *memory) {
    const int64_t steps = (inputs + STEP - 1) / STEP, size = parts_together(rows) * STEP;
    uint16_t *numbers = (uint16_t *)memory;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t block = row / TILED_ROWS, count = at_most(rows - block * TILED_ROWS, TILED_ROWS);
        for (int64_t done = 0; done < inputs; done += LANES) {
            float last[LANES] = {0};
            const float *source = input + row * inputs + done;
            if (inputs - done < LANES) source = memcpy(last, source, (inputs - done) * sizeof(float));
            const vec x = from_float(source), rest = x - (vec)upper(x);
            uint16_t *target = numbers + (block * steps + done / STEP) * size + row % TILED_ROWS * STEP + done % STEP;
            keep(target, upper(x));
            keep(target + count * STEP, upper(rest));
            keep(target + 2 * count * STEP, upper(rest - (vec)upper(rest)));
        }
        if ((inputs + LANES - 1) / LANES % 2)
            for (int part = 0; part < PARTS; part++)
                memset(numbers + (block * steps + steps - 1) * size + (part * count + row % TILED_ROWS) * STEP + LANES, 0,
                       LANES * sizeof(uint16_t));
    }
    return (Parts){numbers, rows, inputs};
}

int64_t tiled_panels_together(int64_t rows, int64_t inputs) {
    const int64_t bytes = (inputs + STEP - 1) / STEP * BLOCK * sizeof(uint16_t);
    return rows <= FEW_BLOCKS * TILED_ROWS || bytes > GROUP_BYTES ? 1 : GROUP_BYTES / bytes;
}

/* Two tiles of a panel's weights times one or two of the rows' parts; the sums of TILE parts and outputs stay in tiles. */
void tiled_product(const uint16_t *panel, const uint16_t *end, Parts parts, int64_t first, int64_t count, float *tile) {
    const int64_t steps = (parts.inputs + STEP - 1) / STEP, block = first / TILED_ROWS;
    const int64_t blocks = (parts.rows + TILED_ROWS - 1) / TILED_ROWS, panel_size = steps * BLOCK;
    /* The first block reads ahead in its panel; where blocks are few, the others share the lines of the next one */
    const int64_t ahead = block == 0 ? AHEAD : panel_size, shares = blocks > FEW_BLOCKS ? 0 : blocks - 1;
    const int64_t line = block == 0 || !shares ? 0 : 2 * TILE * (block - 1) / shares;
    const int64_t line_end = block == 0 ? 2 * TILE : shares ? 2 * TILE * block / shares : 0;
    const int64_t size = parts_together(parts.rows) * STEP;
    const uint16_t *part = parts.numbers + block * steps * size;
    const int two = PARTS * count > TILE;
    float sums[2 * TILE * STEP] __attribute__((aligned(64)));
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t step = 0; step < steps; step++, panel += BLOCK, part += size) {
        if (panel + ahead < end)
            for (int64_t next = line; next < line_end; next++) __builtin_prefetch(panel + ahead + next * STEP, 0, 2);
        _tile_loadd(4, part, 64);
        _tile_loadd(6, panel, 64);
        _tile_loadd(7, panel + BLOCK / 2, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (two) {
            _tile_loadd(5, part + TILE * STEP, 64);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, 4 * STEP);
    _tile_stored(1, sums + TILE, 4 * STEP);
    if (two) {
        _tile_stored(2, sums + TILE * STEP, 4 * STEP);
        _tile_stored(3, sums + TILE * STEP + TILE, 4 * STEP);
    }
    for (int64_t number = 0; number < count * STEP; number += LANES)
        *(vec *)(tile + number) = from_float(sums + 2 * count * STEP + number) + from_float(sums + count * STEP + number) +
                                  from_float(sums + number);
}

void open_tiles(int64_t rows) {
    const uint8_t first = parts_together(rows) < TILE ? parts_together(rows) : TILE;
    const struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } shape = {.palette = 1,
               .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
               .rows = {first, first, TILE, TILE, first, TILE, TILE, TILE}};
    /* Compilers believe that only its first bytes are read */
    __asm__ volatile("" : : "r"(&shape) : "memory");
    _tile_loadconfig(&shape);
}

void close_tiles(void) { _tile_release(); }

/* Whether this processor has tiles and the system lets this process use them. */
int64_t jakiro_tiles(void) { return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0; }
#else
int64_t parts_floats(int64_t rows, int64_t inputs) { return 0; }
Parts split(const float *input, int64_t rows, int64_t inputs, float *memory) { return (Parts){0, rows, inputs}; }
void tiled_product(const uint16_t *panel, const uint16_t *end, Parts parts, int64_t first, int64_t count, float *tile) {}
int64_t tiled_panels_together(int64_t rows, int64_t inputs) { return 1; }
void open_tiles(int64_t rows) {}
void close_tiles(void) {}
int64_t jakiro_tiles(void) { return 0; }
#endif
