#include "head.h"

#include "passes.h"

enum { PROJECTION, READ = PROJECTION + 1 + HALF_SECTIONS, WRITE, MIX, HEAD_SECTIONS };

/* x times the probability that a normal number is below x. With z = |x| / sqrt 2 the probability of the smaller side is
 * erfc(z) / 2, here formula 7.1.26 of Abramowitz and Stegun's handbook with an error of at most 1.5e-7. `count` is a
 * multiple of LANES. */
static void gelu(float *values, int64_t count) {
    const vec one = all_lanes(1.0f);
    const float terms[] = {-1.453152027f, 1.421413741f, -0.284496736f, 0.254829592f};
    for (int64_t i = 0; i < count; i += LANES) {
        const vec x = *(vec *)(values + i), z = larger(x, -x) * 0.707106781f;
        const vec t = one / fused(z, all_lanes(0.3275911f), one);
        vec sum = all_lanes(1.061405429f);
        for (int term = 0; term < 4; term++) sum = fused(sum, t, all_lanes(terms[term]));
        const vec rarer = sum * t * exponential(-z * z) * 0.5f;
        *(vec *)(values + i) = x * either(x < 0, rarer, one - rarer);
    }
}

/* Convert the router's logits to weights: a softmax over the experts, and one over the pair, negative for the weaker. */
static void weigh_experts(const Head *head, float *logits) {
    float total = 0, highest = logits[0];
    for (int64_t expert = 1; expert < head->experts; expert++)
        if (logits[expert] > highest) highest = logits[expert];
    for (int64_t expert = 0; expert < head->experts; expert++)
        total += logits[expert] = __builtin_expf(logits[expert] - highest);
    for (int64_t expert = 0; expert < head->experts; expert++) logits[expert] /= total;
    if (!head->contrastive) return;
    float *pair = logits + head->experts;
    const int first_is_stronger = pair[0] >= pair[1];
    const float stronger = 1.0f / (1.0f + __builtin_expf(-__builtin_fabsf(pair[0] - pair[1])));
    pair[0] = first_is_stronger ? stronger : stronger - 1.0f;
    pair[1] = first_is_stronger ? stronger - 1.0f : stronger;
}

/* Compute some numbers of the rows: the stream plus the weighted experts. */
static void mix(const HeadPass *pass, const float *weights, int64_t first, int64_t end, float *result) {
    const Head *head = pass->head;
    const int64_t hidden = head->hidden;
    for (int64_t i = first; i < end; i++) {
        const float *own = weights + i / hidden * head->router.outputs;
        float sum = pass->stream[i];
        for (int64_t expert = 0; expert < head->experts; expert++) sum += own[expert] * pass->outputs[expert * pass->apart + i];
        result[i - first] = sum;
    }
}

static Half half_of(const Head *head) { return (Half){&head->query_key_value, &head->output}; }

/* Maximum number of chunks of one expert, or of the router, in a common section. */
static int64_t chunks_of_one(const Head *head) { return MOST_CHUNKS / (head->experts + 1); }

static Largest largest_of(const Head *head, int64_t rows) {
    const int64_t most = chunks_of_one(head), mixed = 2 * rows * at_least(head->hidden, head->router.outputs);
    Largest largest = largest_of_half(half_of(head), rows, head->heads, head->kv_heads, head->head_dim);
    largest = with_matrix((Largest){at_least(largest.chunk, mixed), largest.factor}, &head->router, rows, 1, most);
    largest = with_matrix(largest, &head->projection, rows, 1, MOST_CHUNKS);
    for (int64_t expert = 0; expert < head->experts; expert++) {
        largest = with_matrix(largest, head->read + expert, rows, 2, most);
        largest = with_matrix(largest, head->write + expert, rows, 1, most);
    }
    return largest;
}

int64_t jakiro_head_floats(const Head *head, int64_t rows, int64_t keys) {
    return workspace_floats(rows, head->hidden, largest_of(head, rows), keys, head->head_dim);
}

static Cut cut_router(const HeadPass *pass, const Workspace *workspace) {
    const Matrix *router = &pass->head->router;
    return cut(panels_of(router), chunks_of_one(pass->head));
}

/* Cut one expert's matrix; summed experts have gates in the first half of their panels. */
static Cut cut_expert(const HeadPass *pass, int64_t section, const Workspace *workspace) {
    const Head *head = pass->head;
    const Matrix *matrix = section == WRITE ? head->write : head->read;
    const int64_t panels = section == READ && head->summed ? head->inner / PANEL : panels_of(matrix);
    return cut(panels, chunks_of_one(head));
}

/* Return a chunk of a section in which experts follow `before` other chunks. */
typedef struct {
    int64_t expert, chunk;
    Cut cut;
} Part;
static Part part_of(const HeadPass *pass, int64_t section, int64_t chunk, int64_t before, const Workspace *workspace) {
    const Cut cut = cut_expert(pass, section, workspace);
    return (Part){(chunk - before) / cut.chunks, (chunk - before) % cut.chunks, cut};
}

static int64_t cut_draft(const void *context, int64_t section, void *workspace) {
    const HeadPass *pass = context;
    const Head *head = pass->head;
    Workspace *own = workspace;
    switch (section) {
    case PROJECTION:
        own->cut = cut(panels_of(&head->projection), MOST_CHUNKS);
        break;
    /* The router, then the experts; the router's weights follow them */
    case READ: own->cut = in_chunks(cut_router(pass, own).chunks + head->experts * cut_expert(pass, READ, own).chunks); break;
    case WRITE: own->cut = in_chunks(head->experts * cut_expert(pass, WRITE, own).chunks + 1); break;
    case MIX: own->cut = in_chunks(at_most(own->num_threads, MOST_CHUNKS)); break;
    default: own->cut = cut_half(half_of(head), section - 1, own);
    }
    return own->cut.chunks;
}

static void enter(const void *context, int64_t section, void *workspace) {
    const HeadPass *pass = context;
    const Head *head = pass->head;
    float *normed = ((Workspace *)workspace)->normed;
    if (section == READ) normalize(pass->stream, normed, head->norm, head->eps, pass->rows, head->hidden);
}

static void compute_read(const HeadPass *pass, int64_t chunk, Workspace *workspace) {
    const Head *head = pass->head;
    const Cut router = cut_router(pass, workspace);
    const Part part = part_of(pass, READ, chunk, router.chunks, workspace);
    if (chunk < router.chunks) multiply(&head->router, workspace->normed, router, chunk, workspace);
    else if (head->summed) gate(head->read + part.expert, workspace->normed, part.cut, part.chunk, workspace);
    else {
        multiply(head->read + part.expert, workspace->normed, part.cut, part.chunk, workspace);
        gelu(workspace->results, pass->rows * part.cut.together * PANEL);
    }
}

static void compute_write(const HeadPass *pass, int64_t chunk, Workspace *workspace) {
    const Head *head = pass->head;
    const int64_t width = head->router.outputs;
    if (chunk < workspace->cut.chunks - 1) {
        const Part part = part_of(pass, WRITE, chunk, 0, workspace);
        multiply(head->write + part.expert, pass->activity + part.expert * pass->rows * head->inner, part.cut, part.chunk,
                 workspace);
        return;
    }
    memcpy(workspace->results, pass->router, pass->rows * width * sizeof(float));
    for (int64_t row = 0; row < pass->rows; row++) weigh_experts(head, workspace->results + row * width);
}

/* Numbers of a chunk of MIX. */
static int64_t mixed_before(const HeadPass *pass, int64_t chunk, const Workspace *workspace) {
    return pass->rows * pass->head->hidden * chunk / workspace->cut.chunks;
}

static void compute_mix(const HeadPass *pass, int64_t chunk, Workspace *workspace) {
    const int64_t first = mixed_before(pass, chunk, workspace), end = mixed_before(pass, chunk + 1, workspace);
    mix(pass, pass->router, first, end, workspace->results);
    if (pass->head->contrastive)
        mix(pass, pass->router + pass->head->experts, first, end, workspace->results + end - first);
}

static void compute(const void *context, int64_t section, int64_t chunk, void *workspace) {
    const HeadPass *pass = context;
    const Head *head = pass->head;
    Workspace *own = workspace;
    switch (section) {
    case PROJECTION: multiply(&head->projection, pass->input, own->cut, chunk, own); break;
    case READ: compute_read(pass, chunk, own); break;
    case WRITE: compute_write(pass, chunk, own); break;
    case MIX: compute_mix(pass, chunk, own); break;
    default: compute_half(half_of(head), section - 1, chunk, pass->stream, own);
    }
}

static void publish_read(const HeadPass *pass, int64_t chunk, const Workspace *workspace) {
    const int64_t rows = pass->rows, inner = pass->head->inner;
    const Cut router = cut_router(pass, workspace);
    const Part part = part_of(pass, READ, chunk, router.chunks, workspace);
    if (chunk < router.chunks)
        publish_chunk(router, chunk, rows, pass->head->router.outputs, workspace->results, pass->router, 0);
    else
        publish_chunk(part.cut, part.chunk, rows, inner, workspace->results,
                      pass->activity + part.expert * rows * inner, 0);
}

static void publish_write(const HeadPass *pass, int64_t chunk, const Workspace *workspace) {
    const int64_t rows = pass->rows, hidden = pass->head->hidden;
    if (chunk == workspace->cut.chunks - 1) {
        memcpy(pass->router, workspace->results, rows * pass->head->router.outputs * sizeof(float));
        return;
    }
    const Part part = part_of(pass, WRITE, chunk, 0, workspace);
    publish_chunk(part.cut, part.chunk, rows, hidden, workspace->results,
                  pass->outputs + part.expert * pass->apart, 0);
}

static void publish(const void *context, int64_t section, int64_t chunk, const void *workspace) {
    const HeadPass *pass = context;
    const Workspace *own = workspace;
    if (section == PROJECTION)
        publish_chunk(own->cut, chunk, pass->rows, pass->head->hidden, own->results, pass->stream, 0);
    else if (section == READ) publish_read(pass, chunk, own);
    else if (section == WRITE) publish_write(pass, chunk, own);
    else if (section == MIX) {
        const int64_t first = mixed_before(pass, chunk, own), count = mixed_before(pass, chunk + 1, own) - first;
        memcpy(pass->features + first, own->results, count * sizeof(float));
        if (pass->head->contrastive) memcpy(pass->contrast + first, own->results + count, count * sizeof(float));
    } else publish_half(section - 1, chunk, pass->stream, own);
}

typedef struct {
    const HeadPass *pass;
    Progress *progress;
} Shared;

static void draft(const void *context, int thread_id, int num_threads) {
    const Shared *shared = context;
    const HeadPass *pass = shared->pass;
    const Head *head = pass->head;
    const Attention attention = {head->heads, head->kv_heads, head->head_dim, pass->rows, pass->length, pass->capacity,
                                 head->scaling, pass->cos, pass->sin, pass->visible, pass->joint, pass->keys,
                                 pass->values, pass->attended};
    const Largest largest = largest_of(head, pass->rows);
    Workspace workspace = workspace_of(pass->memory, head->hidden, largest, attention, thread_id, num_threads);
    const Sections sections = {head->summed ? HEAD_SECTIONS : MIX, cut_draft, enter, compute, publish};
    go_through(&sections, pass, shared->progress, &workspace, thread_id, num_threads);
}

void jakiro_draft(const HeadPass *pass, int64_t threads) {
    Progress progress = {{0}};
    run_in_threads(draft, &(Shared){pass, &progress}, threads);
}
