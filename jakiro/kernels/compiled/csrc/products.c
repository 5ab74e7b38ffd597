#include "products.h"

#include "threads.h"

/* Bytes by which reading runs ahead of what is multiplied; one core alone wants more than two that share the memory. */
#define AHEAD 6144

/* Weights of one column as they are multiplied. */
#define HALF(source) from_half(source)
#define FLOAT(source) from_float(source)
#define BYTE(source) (from_byte(source) * all_lanes(factors[k]))

/* (ROWS, inputs) times one panel, into (ROWS, PANEL); all sums stay in registers. */
#define PRODUCT(ROWS, KIND, TYPE, LOAD)                                                                     \
    static void product_##KIND##_##ROWS(const TYPE *weights, const float *factors, const float *input,     \
                                        int64_t inputs, float *tile) {                                     \
        vec left[ROWS], right[ROWS];                                                                       \
        (void)factors;                                                                                     \
        for (int row = 0; row < ROWS; row++) left[row] = right[row] = (vec){0};                            \
        for (int64_t k = 0; k < inputs; k++) {                                                             \
            const TYPE *column = weights + k * PANEL;                                                      \
            __builtin_prefetch((const char *)column + AHEAD);                                              \
            const vec first = LOAD(column), second = LOAD(column + LANES);                                 \
            for (int row = 0; row < ROWS; row++) {                                                         \
                const vec value = all_lanes(input[row * inputs + k]);                                      \
                left[row] = fused(value, first, left[row]);                                                \
                right[row] = fused(value, second, right[row]);                                             \
            }                                                                                              \
        }                                                                                                  \
        for (int row = 0; row < ROWS; row++) {                                                             \
            *(vec *)(tile + row * PANEL) = left[row];                                                      \
            *(vec *)(tile + row * PANEL + LANES) = right[row];                                             \
        }                                                                                                  \
    }
#define ALL(ROWS) \
    PRODUCT(ROWS, byte, int8_t, BYTE) PRODUCT(ROWS, half, uint16_t, HALF) PRODUCT(ROWS, float, float, FLOAT)
#if MOST_ROWS == 14
#define FOR_EVERY_COUNT(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8) DO(9) DO(10) DO(11) DO(12) DO(13) DO(14)
#elif MOST_ROWS == 8
#define FOR_EVERY_COUNT(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
#else
#define FOR_EVERY_COUNT(DO) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6)
#endif
FOR_EVERY_COUNT(ALL)

static void rows_product(const Matrix *matrix, int64_t panel, const float *input, int64_t rows, float *tile) {
    const int64_t offset = panel * PANEL * matrix->inputs, inputs = matrix->inputs;
    const void *weights = (const char *)matrix->weights + offset * matrix->itemsize;
#define CASE(ROWS)                                                                                   \
    case ROWS:                                                                                       \
        if (matrix->itemsize == 1) product_byte_##ROWS(weights, matrix->factors, input, inputs, tile); \
        else if (matrix->itemsize == 2) product_half_##ROWS(weights, 0, input, inputs, tile);        \
        else product_float_##ROWS(weights, 0, input, inputs, tile);                                  \
        break;
    switch (rows) { FOR_EVERY_COUNT(CASE) }
}

Factor prepare(const Matrix *matrix, const float *input, int64_t rows) {
    if (matrix->tiled) open_tiles(rows);
    return (Factor){matrix, input, matrix->tiled ? split(input, rows, matrix->inputs) : (Parts){0}};
}

void finish(Factor factor) {
    if (factor.matrix->tiled) close_tiles();
}

int64_t together(const Matrix *matrix, int64_t left) {
    if (matrix->tiled) return at_most(left, TILED_ROWS);
    if (left <= MOST_ROWS) return left;
    return left < 2 * MOST_ROWS ? (left + 1) / 2 : MOST_ROWS;
}

int64_t panels_together(Factor factor) {
    return factor.matrix->tiled ? tiled_panels_together(factor.parts.rows, factor.parts.inputs) : 1;
}

void product(Factor factor, int64_t panel, int64_t end, int64_t first, int64_t count, float *tile) {
    const Matrix *matrix = factor.matrix;
    if (matrix->tiled) {
        const int64_t size = PANEL * ((matrix->inputs + 31) / 32 * 32);
        const uint16_t *weights = matrix->weights;
        tiled_product(weights + panel * size, weights + end * size, factor.parts, first, count, tile);
    } else rows_product(matrix, panel, factor.input + first * matrix->inputs, count, tile);
    if (!matrix->scales && !matrix->bias && matrix->unscale == 1) return;
    const int64_t output = panel * PANEL, width = at_most(matrix->outputs - output, PANEL);
    for (int64_t row = 0; row < count; row++)
        for (int64_t column = 0; column < width; column++) {
            const float scale = matrix->scales ? matrix->scales[output + column] : matrix->unscale;
            const float value = tile[row * PANEL + column] * scale;
            tile[row * PANEL + column] = matrix->bias ? value + matrix->bias[output + column] : value;
        }
}

void multiply(const Matrix *matrix, const float *input, float *result, int64_t rows, int add, int thread_id,
              int num_threads) {
    float tile[MOST_ROWS * PANEL];
    const int64_t outputs = matrix->outputs, panels = (outputs + PANEL - 1) / PANEL;
    const Factor factor = prepare(matrix, input, rows);
    const int64_t end = panels * (thread_id + 1) / num_threads;
    for (int64_t panel = panels * thread_id / num_threads, group; panel < end; panel += group) {
        group = at_most(end - panel, panels_together(factor));
        for (int64_t done = 0, count; done < rows; done += count) {
            count = together(matrix, rows - done);
            for (int64_t member = panel; member < panel + group; member++) {
                const int64_t first = member * PANEL, width = at_most(outputs - first, PANEL);
                product(factor, member, end, done, count, tile);
                for (int64_t row = 0; row < count; row++) {
                    float *target = result + (done + row) * outputs + first;
                    const float *source = tile + row * PANEL;
                    if (add)
                        for (int64_t column = 0; column < width; column++) target[column] += source[column];
                    else
                        memcpy(target, source, width * sizeof(float));
                }
            }
        }
    }
    finish(factor);
}

int64_t jakiro_panel(void) { return PANEL; }

typedef struct {
    const Matrix *matrix;
    const float *input;
    float *result;
    int64_t rows;
} Linear;

static void linear(const void *context, int thread_id, int num_threads) {
    const Linear *work = context;
    multiply(work->matrix, work->input, work->result, work->rows, 0, thread_id, num_threads);
}

/* (rows, inputs) to (rows, outputs). */
void jakiro_linear(const Matrix *matrix, const float *input, float *result, int64_t rows, int64_t threads) {
    run_in_threads(linear, &(Linear){matrix, input, result, rows}, threads);
}
