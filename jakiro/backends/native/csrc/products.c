#include "products.h"

#include "sections.h"

/* LANES weights of an input and LANES more. */
typedef struct {
    vec first, second;
} Column;

/* A bfloat16 is the upper half of a float. */
static inline Column column_pairs(const uint16_t *weights) {
    const ints both = *(const ints *)weights;
    return (Column){(vec)(both << 16), (vec)(both & (int32_t)0xFFFF0000)};
}

static inline Column column_float(const float *weights) { return (Column){from_float(weights), from_float(weights + LANES)}; }

/* Multiply (ROWS, inputs) by one panel into (ROWS, PANEL); all sums stay in registers. */
#define PRODUCT(ROWS, KIND, TYPE)                                                                          \
    static void product_##KIND##_##ROWS(const TYPE *weights, const float *input, int64_t inputs,           \
                                        float *tile) {                                                     \
        vec left[ROWS], right[ROWS];                                                                       \
        for (int row = 0; row < ROWS; row++) left[row] = right[row] = (vec){0};                            \
        for (int64_t k = 0; k < inputs; k++) {                                                             \
            read_ahead(weights + k * PANEL);                                                               \
            const Column column = column_##KIND(weights + k * PANEL);                                      \
            for (int row = 0; row < ROWS; row++) {                                                         \
                const vec value = all_lanes(input[row * inputs + k]);                                      \
                left[row] = fused(value, column.first, left[row]);                                         \
                right[row] = fused(value, column.second, right[row]);                                      \
            }                                                                                              \
        }                                                                                                  \
        for (int row = 0; row < ROWS; row++) {                                                             \
            *(vec *)(tile + row * PANEL) = left[row];                                                      \
            *(vec *)(tile + row * PANEL + LANES) = right[row];                                             \
        }                                                                                                  \
    }
#define ALL(ROWS) PRODUCT(ROWS, pairs, uint16_t) PRODUCT(ROWS, float, float)
FOR_EVERY_COUNT(ALL)

static void rows_product(const Matrix *matrix, int64_t panel, const float *input, int64_t rows, float *tile) {
    const int64_t inputs = matrix->inputs, first = panel * PANEL * inputs;
    const uint16_t *pairs = (const uint16_t *)matrix->weights + first;
    const float *floats = (const float *)matrix->weights + first;
#define CASE(ROWS)                                                                    \
    case ROWS:                                                                        \
        if (matrix->kind == PAIRS) product_pairs_##ROWS(pairs, input, inputs, tile);  \
        else product_float_##ROWS(floats, input, inputs, tile);                       \
        break;
    switch (rows) { FOR_EVERY_COUNT(CASE) }
}

/* One more cache line, so that the memory can be aligned */
int64_t factor_floats(const Matrix *matrix, int64_t rows) {
    return matrix->kind == BLOCKS ? rounded_floats(rows, matrix->blocks) + LINE / (int64_t)sizeof(float) : 0;
}

Factor prepare(const Matrix *matrix, const float *input, int64_t rows, float *memory) {
    Factor factor = {matrix, input, rows, {{0}}};
    memory = (float *)(((uintptr_t)memory + LINE - 1) & ~(uintptr_t)(LINE - 1));
    if (matrix->kind == BLOCKS)
        factor.rounded = round_rows(input, matrix->factors, rows, matrix->inputs, matrix->blocks, memory);
    return factor;
}

int64_t panels_of(const Matrix *matrix) { return (matrix->outputs + PANEL - 1) / PANEL; }

Cut cut(int64_t panels, int64_t most_chunks) {
    const int64_t together = (panels + most_chunks - 1) / most_chunks;
    return (Cut){panels, together, (panels + together - 1) / together};
}

int64_t chunk_floats(const Matrix *matrix, int64_t rows, int64_t most_chunks) {
    return rows * PANEL * ((panels_of(matrix) + most_chunks - 1) / most_chunks);
}

/* Return how many of the remaining rows run together: as many as registers hold, without a short rest at the end. */
static int64_t rows_together(int64_t left) {
    if (left <= MOST_ROWS) return left;
    return left < 2 * MOST_ROWS ? (left + 1) / 2 : MOST_ROWS;
}

static const int8_t *blocks_of(const Matrix *matrix, int64_t panel) {
    return (const int8_t *)matrix->weights + panel * panel_bytes(matrix->blocks);
}

/* Multiply the factor's `count` rows from `first` on by one panel, into (count, PANEL). */
static void product(const Factor *factor, int64_t panel, int64_t first, int64_t count, float *tile) {
    const Matrix *matrix = factor->matrix;
    if (matrix->kind == BLOCKS) dot_product(blocks_of(matrix, panel), factor->rounded, first, count, tile);
    else rows_product(matrix, panel, factor->input + first * matrix->inputs, count, tile);
    const int64_t output = panel * PANEL, width = at_most(matrix->outputs - output, PANEL);
    for (int64_t row = 0; matrix->bias && row < count; row++)
        for (int64_t column = 0; column < width; column++) tile[row * PANEL + column] += matrix->bias[output + column];
}

static float scale_at(const int8_t *panel, Blocks blocks, int64_t at) {
    return blocks.scale_bytes == 2 ? one_half(panel + 2 * at) : ((const float *)panel)[at];
}

void jakiro_rows(const Matrix *matrix, const int64_t *ids, int64_t count, float *result) {
    const Blocks blocks = matrix->blocks;
    for (int64_t row = 0; row < count; row++) {
        const int64_t lane = ids[row] % PANEL;
        const int8_t *panel = blocks_of(matrix, ids[row] / PANEL);
        for (int64_t place = 0; place < matrix->inputs; panel += panel_bytes(blocks) / blocks.blocks) {
            const float scale = scale_at(panel, blocks, lane);
            const float minimum = blocks.minima ? scale_at(panel, blocks, PANEL + lane) : 0;
            const int8_t *numbers = panel + scales_bytes(blocks) + 2 * lane;
            for (int64_t i = 0; i < blocks.block && place < matrix->inputs; i++, place++)
                *result++ = scale * numbers[i / 2 * 2 * PANEL + i % 2] + minimum;
        }
    }
}

/* Usually a whole panel; a length known to the compiler makes it a few instructions. */
static inline void copy(float *target, const float *source, int64_t count) {
    if (count == PANEL) memcpy(target, source, PANEL * sizeof(float));
    else memcpy(target, source, count * sizeof(float));
}

static inline void add(float *target, const float *source, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) *(vec *)(target + i) += from_float(source + i);
    for (; i < count; i++) target[i] += source[i];
}

/* Write a chunk's products to rows of so many floats, at most `width` of them. */
static void multiply_into(const Factor *factor, Cut cut, int64_t chunk, int64_t shift, float *result, int64_t stride,
                          int64_t width) {
    float spare[MOST_ROWS * PANEL];
    const int64_t first = chunk * cut.together, panels = at_most(cut.panels - first, cut.together);
    for (int64_t done = 0, count; done < factor->rows; done += count) {
        count = rows_together(factor->rows - done);
        for (int64_t panel = 0; panel < panels; panel++) {
            /* If rows are as wide as a panel, the products of a block of rows have the right layout */
            float *tile = stride == PANEL ? result + done * PANEL : spare;
            product(factor, shift + first + panel, done, count, tile);
            if (tile != spare) continue;
            const int64_t columns = at_most(width - panel * PANEL, PANEL);
            for (int64_t row = 0; row < count; row++)
                copy(result + (done + row) * stride + panel * PANEL, tile + row * PANEL, columns);
        }
    }
}

void multiply_chunk(const Factor *factor, Cut cut, int64_t chunk, int64_t shift, float *result) {
    multiply_into(factor, cut, chunk, shift, result, cut.together * PANEL, cut.together * PANEL);
}

void publish_chunk(Cut cut, int64_t chunk, int64_t rows, int64_t width, const float *result, float *target, int added) {
    const int64_t first = chunk * cut.together * PANEL, count = at_most(width - first, cut.together * PANEL);
    for (int64_t row = 0; row < rows; row++) {
        const float *source = result + row * cut.together * PANEL;
        float *place = target + row * width + first;
        if (added) add(place, source, count);
        else copy(place, source, count);
    }
}

int64_t jakiro_panel(void) { return PANEL; }

/* (rows, inputs) to (rows, outputs), chunk by chunk. */
typedef struct {
    const Matrix *matrix;
    const float *input;
    float *result, *memory;
    int64_t rows;
    Progress *progress;
} Linear;

typedef struct {
    float *memory;
    Cut cut;
    Factor factor;
} LinearWorkspace;

static int64_t cut_linear(const void *pass, int64_t section, void *workspace) {
    const Linear *linear = pass;
    LinearWorkspace *own = workspace;
    own->cut = cut(panels_of(linear->matrix), MOST_CHUNKS);
    return own->cut.chunks;
}

static void enter_linear(const void *pass, int64_t section, void *workspace) {
    const Linear *linear = pass;
    LinearWorkspace *own = workspace;
    own->factor = prepare(linear->matrix, linear->input, linear->rows, own->memory);
}

static void multiply_in_place(const void *pass, int64_t section, int64_t chunk, void *workspace) {
    const Linear *linear = pass;
    const LinearWorkspace *own = workspace;
    const int64_t outputs = linear->matrix->outputs, first = chunk * own->cut.together * PANEL;
    multiply_into(&own->factor, own->cut, chunk, 0, linear->result + first, outputs, outputs - first);
}

static const Sections linear_section = {1, cut_linear, enter_linear, multiply_in_place, 0};

static void linear(const void *context, int thread_id, int num_threads) {
    const Linear *all = context;
    float *memory = all->memory + thread_id * factor_floats(all->matrix, all->rows);
    LinearWorkspace workspace = {.memory = memory};
    go_through(&linear_section, all, all->progress, &workspace, thread_id, num_threads);
}

int64_t jakiro_linear_floats(const Matrix *matrix, int64_t rows) { return factor_floats(matrix, rows); }

void jakiro_linear(const Matrix *matrix, const float *input, float *result, float *memory, int64_t rows, int64_t threads) {
    Progress progress = {0};
    run_in_threads(linear, &(Linear){matrix, input, result, memory, rows, &progress}, threads);
}
