#include "blocks.h"

#include "threads.h"

void normalize(const float *rows_in, float *rows_out, const float *weight, float eps, int64_t rows, int64_t width) {
    for (int64_t row = 0; row < rows; row++) {
        const float *source = rows_in + row * width;
        float *target = rows_out + row * width;
        doubles sums = {0};
        double squares = 0;
        int64_t done = 0;
        for (; done + DOUBLES <= width; done += DOUBLES) {
            const doubles part = __builtin_convertvector(*(const half_vec *)(source + done), doubles);
            sums += part * part;
        }
        for (; done < width; done++) squares += (double)source[done] * source[done];
        for (int lane = 0; lane < DOUBLES; lane++) squares += sums[lane];
        const float factor = (float)(1.0 / __builtin_sqrt(squares / width + eps));
        for (int64_t i = 0; i < width; i++) target[i] = source[i] * factor * weight[i];
    }
}

void gate(const Matrix *matrix, const float *input, float *result, int64_t rows, int64_t inner, int thread_id,
          int num_threads) {
    float gates[MOST_ROWS * PANEL], ups[MOST_ROWS * PANEL];
    const int64_t panels = inner / PANEL;
    const Factor factor = prepare(matrix, input, rows);
    const int64_t end = panels * (thread_id + 1) / num_threads;
    for (int64_t panel = panels * thread_id / num_threads, group; panel < end; panel += group) {
        group = at_most(end - panel, panels_together(factor));
        for (int64_t done = 0, count; done < rows; done += count) {
            count = together(matrix, rows - done);
            for (int64_t member = panel; member < panel + group; member++) {
                product(factor, member, end, done, count, gates);
                product(factor, member + panels, end + panels, done, count, ups);
                for (int64_t row = 0; row < count; row++)
                    for (int64_t column = 0; column < PANEL; column += LANES) {
                        const vec x = *(vec *)(gates + row * PANEL + column), up = *(vec *)(ups + row * PANEL + column);
                        *(vec *)(result + (done + row) * inner + member * PANEL + column) =
                            x / (1.0f + exponential(-x)) * up;
                    }
            }
        }
    }
    finish(factor);
}

int64_t jakiro_own_floats(int64_t rows, int64_t hidden, int64_t keys, int64_t head_dim) {
    return rows * hidden + attention_floats(keys, head_dim);
}

void add_attended(const Matrix *query_key_value, const Matrix *output, const Attention *attention, const float *input,
                  float *stream, float *own, int thread_id, int num_threads) {
    multiply(query_key_value, input, attention->joint, attention->rows, 0, thread_id, num_threads);
    barrier(num_threads);
    rotate_and_store(attention, thread_id, num_threads);
    barrier(num_threads);
    attend(attention, own, thread_id, num_threads);
    barrier(num_threads);
    multiply(output, attention->attended, stream, attention->rows, 1, thread_id, num_threads);
    barrier(num_threads);
}
