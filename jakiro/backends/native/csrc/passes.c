#include "passes.h"

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

int64_t workspace_floats(int64_t rows, int64_t hidden, Largest largest, int64_t keys, int64_t head_dim) {
    return rows * hidden + largest.chunk + largest.factor + attention_floats(keys, head_dim);
}

Workspace workspace_of(float *memory, int64_t hidden, Largest largest, Attention at, int thread_id, int num_threads) {
    float *normed = memory + thread_id * workspace_floats(at.rows, hidden, largest, at.length + at.rows, at.head_dim);
    float *results = normed + at.rows * hidden, *parts = results + largest.chunk;
    return (Workspace){num_threads, normed, results, parts + largest.factor, parts, at};
}

static void use(const Matrix *matrix, const float *input, Workspace *workspace) {
    if (workspace->factor.matrix != matrix)
        workspace->factor = prepare(matrix, input, workspace->attention.rows, workspace->parts);
}

void multiply(const Matrix *matrix, const float *input, Cut cut, int64_t chunk, Workspace *workspace) {
    use(matrix, input, workspace);
    multiply_chunk(&workspace->factor, cut, chunk, 0, workspace->results);
}

void gate(const Matrix *matrix, const float *input, Cut cut, int64_t chunk, Workspace *workspace) {
    const int64_t count = workspace->attention.rows * cut.together * PANEL;
    float *gates = workspace->results, *ups = gates + count;
    use(matrix, input, workspace);
    multiply_chunk(&workspace->factor, cut, chunk, 0, gates);
    multiply_chunk(&workspace->factor, cut, chunk, cut.panels, ups);
    for (int64_t i = 0; i < count; i += LANES) {
        const vec x = from_float(gates + i), up = from_float(ups + i);
        *(vec *)(gates + i) = x / (1.0f + exponential(-x)) * up;
    }
}

Cut cut_half(Half half, int64_t section, const Workspace *workspace) {
    const Attention *at = &workspace->attention;
    switch (section) {
    case ROTATE: return in_chunks(head_chunks(at->heads + 2 * at->kv_heads, at->rows, workspace->num_threads));
    case ATTEND: return in_chunks(head_chunks(at->heads, at->rows, workspace->num_threads));
    }
    const Matrix *matrix = section == OUTPUT ? half.output : half.query_key_value;
    return cut(panels_of(matrix), MOST_CHUNKS);
}

void compute_half(Half half, int64_t section, int64_t chunk, const float *input, Workspace *workspace) {
    const Attention *at = &workspace->attention;
    switch (section) {
    case QUERY_KEY_VALUE: multiply(half.query_key_value, input, workspace->cut, chunk, workspace); break;
    case ROTATE: rotate(at, chunk, workspace->cut.chunks, workspace->results); break;
    case ATTEND: attend(at, workspace->own, chunk, workspace->cut.chunks, workspace->results); break;
    case OUTPUT: multiply(half.output, at->attended, workspace->cut, chunk, workspace); break;
    }
}

void publish_half(int64_t section, int64_t chunk, float *stream, const Workspace *workspace) {
    const Attention *at = &workspace->attention;
    if (section == ROTATE) publish_rotated(at, chunk, workspace->cut.chunks, workspace->results);
    else if (section == ATTEND) publish_attended(at, chunk, workspace->cut.chunks, workspace->results);
    else
        publish_chunk(workspace->cut, chunk, at->rows, workspace->factor.matrix->outputs, workspace->results,
                      section == OUTPUT ? stream : at->joint, section == OUTPUT);
}

Largest with_matrix(Largest largest, const Matrix *matrix, int64_t rows, int64_t halves, int64_t most_chunks) {
    return (Largest){at_least(largest.chunk, halves * chunk_floats(matrix, rows, most_chunks)),
                     at_least(largest.factor, factor_floats(matrix, rows))};
}

Largest largest_of_half(Half half, int64_t rows, int64_t heads, int64_t kv_heads, int64_t head_dim) {
    const Largest attention = {head_chunk_floats(heads + 2 * kv_heads, rows, head_dim), 0};
    return with_matrix(with_matrix(attention, half.query_key_value, rows, 1, MOST_CHUNKS), half.output, rows, 1, MOST_CHUNKS);
}
