#include "blocks.h"

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

int64_t room_floats(int64_t rows, int64_t hidden, Largest largest, int64_t keys, int64_t head_dim) {
    return rows * hidden + largest.chunk + largest.factor + attention_floats(keys, head_dim);
}

Room room_of(float *memory, int64_t hidden, Largest largest, Attention at, int thread_id, int num_threads) {
    float *normed = memory + thread_id * room_floats(at.rows, hidden, largest, at.length + at.rows, at.head_dim);
    float *results = normed + at.rows * hidden, *parts = results + largest.chunk;
    return (Room){num_threads, normed, results, parts + largest.factor, parts, at};
}

static void use(const Matrix *matrix, const float *input, Room *room) {
    if (room->factor.matrix == matrix) return;
    if (room->factor.matrix) finish(room->factor);
    room->factor = prepare(matrix, input, room->attention.rows, room->parts);
}

void leave(const void *pass, int64_t section, void *room) {
    Factor *factor = &((Room *)room)->factor;
    if (factor->matrix) finish(*factor);
    factor->matrix = 0;
}

void multiply(const Matrix *matrix, const float *input, Cut cut, int64_t chunk, Room *room) {
    use(matrix, input, room);
    multiply_chunk(&room->factor, cut, chunk, 0, room->results);
}

void gate(const Matrix *matrix, const float *input, Cut cut, int64_t chunk, Room *room) {
    const int64_t count = room->attention.rows * cut.together * PANEL;
    float *gates = room->results, *ups = gates + count;
    use(matrix, input, room);
    multiply_chunk(&room->factor, cut, chunk, 0, gates);
    multiply_chunk(&room->factor, cut, chunk, cut.panels, ups);
    for (int64_t i = 0; i < count; i += LANES) {
        const vec x = from_float(gates + i), up = from_float(ups + i);
        *(vec *)(gates + i) = x / (1.0f + exponential(-x)) * up;
    }
}

Cut cut_half(Half half, int64_t section, const Room *room) {
    const Attention *at = &room->attention;
    switch (section) {
    case ROTATE: return in_chunks(head_chunks(at->heads + 2 * at->kv_heads, at->rows, room->num_threads));
    case ATTEND: return in_chunks(head_chunks(at->heads, at->rows, room->num_threads));
    }
    const Matrix *matrix = section == OUTPUT ? half.output : half.query_key_value;
    return cut(matrix, panels_of(matrix), at->rows, room->num_threads, MOST_CHUNKS);
}

void compute_half(Half half, int64_t section, int64_t chunk, const float *input, Room *room) {
    const Attention *at = &room->attention;
    switch (section) {
    case QUERY_KEY_VALUE: multiply(half.query_key_value, input, room->cut, chunk, room); break;
    case ROTATE: rotate(at, chunk, room->cut.chunks, room->results); break;
    case ATTEND: attend(at, room->own, chunk, room->cut.chunks, room->results); break;
    case OUTPUT: multiply(half.output, at->attended, room->cut, chunk, room); break;
    }
}

void publish_half(int64_t section, int64_t chunk, float *stream, const Room *room) {
    const Attention *at = &room->attention;
    if (section == ROTATE) publish_rotated(at, chunk, room->cut.chunks, room->results);
    else if (section == ATTEND) publish_attended(at, chunk, room->cut.chunks, room->results);
    else
        publish_chunk(room->cut, chunk, at->rows, room->factor.matrix->outputs, room->results,
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
