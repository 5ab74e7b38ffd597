/* A whole draft in one call: the head reads the committed tokens, then the tree grows level by level as in `TreeGrower`,
 * and the best candidates of all levels become its nodes. */

#include <stdlib.h>

#include "head.h"
#include "sampling.h"

typedef struct {
    const Head *head;
    const Matrix *output;
    const float *embedding;   /* (tokens, hidden), or null to use the rows of `table` */
    const Matrix *table;
    const int64_t *token_ids; /* (draft vocabulary,) */
    /* (draft vocabulary, hidden) and (hidden,), rows of the output function and their mean, for evidence; or null */
    const float *directions, *mean;
    const float *angles; /* (2, positions, head_dim), cosines and signed sines */
    int64_t positions;
    float *rows;             /* (2, kv_heads, capacity, head_dim), keys and values */
    int64_t start, capacity; /* filled rows of the cache, and its capacity */
    const int64_t *ids;      /* (committed,), the root is the last one */
    const float *features;   /* (committed, …), the target's features one position before each token */
    int64_t committed;
    /* Maxima of children per node and of expanded nodes per level; of passes after the first; nodes of the largest tree */
    int64_t width, passes, explored;
    int64_t contrastive; /* whether the last pass gives two levels */
    int64_t kept;        /* maximum number of nodes of the result, root included */
    float temperature;
    const float *weights; /* (levels, 3), weight of log q, weight of the noise, log of the kept share */
    const float *noise;   /* (levels, draft vocabulary) or null */
    /* Columns of the nodes, root first: (6, kept) tokens, parents, depths, passes, proposers, other proposers; (2, kept)
     * scores and draft probabilities, followed by the evidence: (experts, kept) router weights, (experts, kept)
     * contributions to the logit, (kept,) contribution of the residual. NaN for missing numbers. */
    int64_t *int_columns;
    float *float_columns;
} Draft;

enum { TOKEN, PARENT, DEPTH, PASS, PROPOSER, ALSO };
enum { SCORE, CHANCE, EVIDENCE };

/* A node during growth: its index in the draft vocabulary, its parent's number (-1 is the root), and its row over all
 * passes; the first committed row is 0. */
typedef struct {
    int64_t place, parent, depth, pass, proposer, row;
    float score, chance;
} Candidate;

/* Memory of one pass and its children, and columns of the tree so far. */
typedef struct {
    const Draft *draft;
    int64_t threads, rows; /* maximum */
    float *input, *cos, *sin, *joint, *attended, *activity, *memory;
    float *read, *logits, *log_weights, *offsets, *linear_memory, *mixture_memory, *estimates, *chances;
    float *stream, *outputs, *router, *mixed, *contrast; /* of all rows, as in a pass */
    Candidate *candidates;
    int64_t *places, *proposers, *frontier, *best, *made_by; /* of each row, the row of its candidate */
    uint8_t *visible;
    int64_t count, expanded, first_row, num_rows, pass; /* rows of the newest pass */
    int64_t level; /* first candidate of the newest level */
} Growing;

static int64_t most_candidates(const Draft *draft) {
    return draft->width * (1 + draft->width * (draft->passes + (draft->contrastive ? 1 : 0)));
}

/* Maximum number of ranked rows: experts that are mixed, or two branches. */
static int64_t ranked_rows(const Draft *draft) {
    return draft->width * (draft->head->summed ? 1 + draft->contrastive : draft->head->experts);
}

static void *taken(char *memory, int64_t *used, int64_t bytes) {
    char *place = memory + *used;
    *used += (bytes + 63) / 64 * 64;
    return place;
}

/* Floats per thread in passes of up to so many rows: fewer rows may need more memory than many. */
static int64_t head_floats(const Head *head, int64_t most_rows, int64_t keys) {
    int64_t most = 0;
    for (int64_t rows = 1; rows <= most_rows; rows++) most = at_least(most, jakiro_head_floats(head, rows, keys));
    return most;
}

/* Lay out the memory; return its size in bytes. */
static int64_t lay_out(Growing *growing, const Draft *draft, int64_t threads, char *memory) {
    const Head *head = draft->head;
    const int64_t most_rows = at_least(draft->committed, draft->width), ranked = ranked_rows(draft), f = sizeof(float);
    const int64_t width = draft->width, joint = (head->heads + 2 * head->kv_heads) * head->head_dim;
    const int64_t rows = draft->committed + width * draft->passes, vocabulary = draft->output->outputs;
    const int64_t inputs = at_least(draft->committed, width) * head->projection.inputs;
    const int64_t keys = draft->start + rows;
    int64_t used = 0;
    *growing = (Growing){
        .draft = draft, .threads = threads, .rows = rows,
        .input = taken(memory, &used, f * inputs),
        .cos = taken(memory, &used, f * width * head->head_dim),
        .sin = taken(memory, &used, f * width * head->head_dim),
        .joint = taken(memory, &used, f * most_rows * joint),
        .attended = taken(memory, &used, f * most_rows * head->heads * head->head_dim),
        .activity = taken(memory, &used, f * head->experts * most_rows * head->inner),
        .memory = taken(memory, &used,
                        f * threads * at_least(head_floats(head, draft->committed, keys), head_floats(head, width, keys))),
        .read = taken(memory, &used, f * ranked * head->hidden),
        .logits = taken(memory, &used, f * ranked * vocabulary),
        .log_weights = taken(memory, &used, f * ranked),
        .offsets = taken(memory, &used, f * ranked),
        .linear_memory = taken(memory, &used, f * threads * jakiro_linear_floats(draft->output, ranked)),
        .mixture_memory = taken(memory, &used, f * threads * (head->experts + 1) * vocabulary),
        .estimates = taken(memory, &used, f * width * width),
        .chances = taken(memory, &used, f * width * width),
        .stream = taken(memory, &used, f * rows * head->hidden),
        .outputs = taken(memory, &used, f * head->experts * rows * head->hidden),
        .router = taken(memory, &used, f * rows * head->router.outputs),
        .mixed = taken(memory, &used, f * (head->summed ? 1 : head->experts) * rows * head->hidden),
        .contrast = taken(memory, &used, f * rows * head->hidden),
        .candidates = taken(memory, &used, sizeof(Candidate) * most_candidates(draft)),
        .places = taken(memory, &used, sizeof(int64_t) * width * width),
        .proposers = taken(memory, &used, sizeof(int64_t) * width * width),
        .frontier = taken(memory, &used, sizeof(int64_t) * width),
        .best = taken(memory, &used, sizeof(int64_t) * draft->kept),
        .made_by = taken(memory, &used, sizeof(int64_t) * rows),
        .visible = taken(memory, &used, most_rows * keys),
    };
    return used;
}

/* Write a row's token and feature side by side. */
static void put(Growing *growing, int64_t row, int64_t token, const float *feature, int64_t inputs) {
    const int64_t hidden = growing->draft->head->hidden;
    float *input = growing->input + row * inputs;
    const Draft *draft = growing->draft;
    if (draft->embedding) memcpy(input, draft->embedding + token * hidden, hidden * sizeof(float));
    else jakiro_rows(draft->table, &token, 1, input);
    memcpy(input + hidden, feature, (inputs - hidden) * sizeof(float));
}

/* Run the pass over `rows` further rows; their input and mask are written. */
static void run(Growing *growing, int64_t rows, const float *cos, const float *sin) {
    const Draft *draft = growing->draft;
    const Head *head = draft->head;
    const int64_t first = growing->first_row += growing->num_rows, hidden = head->hidden;
    const HeadPass pass = {head, rows, draft->start + first, draft->capacity, growing->input, cos, sin, growing->visible,
                           draft->rows, draft->rows + head->kv_heads * draft->capacity * head->head_dim,
                           growing->stream + first * hidden, growing->joint, growing->attended, growing->activity,
                           growing->outputs + first * hidden, growing->router + first * head->router.outputs,
                           growing->mixed + first * hidden, growing->contrast + first * hidden, growing->memory,
                           growing->rows * hidden};
    growing->num_rows = rows;
    growing->pass++;
    jakiro_draft(&pass, growing->threads);
}

static void read_committed(Growing *growing) {
    const Draft *draft = growing->draft;
    const int64_t rows = draft->committed, inputs = draft->head->projection.inputs, hidden = draft->head->hidden;
    const int64_t keys = draft->start + rows, head_dim = draft->head->head_dim;
    const float *cos = draft->angles + draft->start * head_dim;
    for (int64_t row = 0; row < rows; row++) {
        uint8_t *visible = growing->visible + row * keys;
        put(growing, row, draft->ids[row], draft->features + row * (inputs - hidden), inputs);
        memset(visible, 1, draft->start + row + 1);
        memset(visible + draft->start + row + 1, 0, rows - row - 1);
    }
    run(growing, rows, cos, cos + draft->positions * head_dim);
}

/* Run the pass over the frontier; each node sees the committed rows, its ancestors and itself. */
static void expand(Growing *growing) {
    const Draft *draft = growing->draft;
    const Head *head = draft->head;
    const int64_t rows = growing->expanded, first = growing->first_row + growing->num_rows, hidden = head->hidden;
    const int64_t keys = draft->start + first + rows, committed = draft->start + draft->committed;
    const int64_t position = committed - 1 + growing->candidates[growing->frontier[0]].depth, head_dim = head->head_dim;
    const float *cos = draft->angles + position * head_dim;
    for (int64_t i = 0; i < rows; i++) {
        const Candidate *node = growing->candidates + growing->frontier[i];
        const int64_t expert = head->summed ? 0 : node->proposer;
        uint8_t *visible = growing->visible + i * keys;
        growing->made_by[first + i] = node->row;
        put(growing, i, draft->token_ids[node->place], growing->mixed + (expert * growing->rows + node->row) * hidden,
            head->projection.inputs);
        memset(visible, 1, committed);
        memset(visible + committed, 0, keys - committed);
        for (int64_t row = first + i; row >= draft->committed; row = growing->made_by[row]) visible[draft->start + row] = 1;
        memcpy(growing->cos + i * head_dim, cos, head_dim * sizeof(float));
        memcpy(growing->sin + i * head_dim, cos + draft->positions * head_dim, head_dim * sizeof(float));
    }
    run(growing, rows, growing->cos, growing->sin);
}

/* Divide features by the temperature, so that their logits are divided by it. */
static void put_features(const Growing *growing, const float *features, int64_t at, int64_t rows) {
    const int64_t count = rows * growing->draft->head->hidden;
    float *read = growing->read + at * growing->draft->head->hidden;
    for (int64_t i = 0; i < count; i++) read[i] = features[i] / growing->draft->temperature;
}

/* Compute the logits of the newest pass's last `rows` rows: of every expert separately, or of their sum and, with
 * `both`, of their contrast. */
static void score(Growing *growing, int64_t rows, int both) {
    const Draft *draft = growing->draft;
    const Head *head = draft->head;
    const int64_t first = growing->first_row + growing->num_rows - rows, hidden = head->hidden;
    int64_t ranked = rows;
    if (head->summed) {
        put_features(growing, growing->mixed + first * hidden, 0, rows);
        if (both) put_features(growing, growing->contrast + first * hidden, rows, rows), ranked = 2 * rows;
    } else {
        ranked = head->experts * rows;
        for (int64_t expert = 0; expert < head->experts; expert++) {
            const int64_t offset = (expert * growing->rows + first) * hidden;
            for (int64_t i = 0; i < rows * hidden; i++)
                growing->mixed[offset + i] = growing->stream[first * hidden + i] + growing->outputs[offset + i];
            put_features(growing, growing->mixed + offset, expert * rows, rows);
            for (int64_t row = 0; row < rows; row++)
                growing->log_weights[expert * rows + row] =
                    __builtin_logf(growing->router[(first + row) * head->router.outputs + expert]);
        }
    }
    jakiro_linear(draft->output, growing->read, growing->logits, growing->linear_memory, ranked, growing->threads);
}

/* Find the best children of the scored rows at this depth. */
static void rank(Growing *growing, int64_t rows, int64_t depth, int contrastive) {
    const Draft *draft = growing->draft;
    const int64_t vocabulary = draft->output->outputs, width = draft->width;
    const float *weights = draft->weights + (depth - 1) * 3;
    const float *noise = draft->noise ? draft->noise + (depth - 1) * vocabulary : 0;
    if (!draft->head->summed) {
        jakiro_best_of_mixture(growing->logits, growing->log_weights, draft->head->experts, rows, vocabulary, weights[0],
                               noise, weights[1], width, growing->offsets, growing->mixture_memory, growing->places,
                               growing->estimates, growing->chances, growing->proposers, growing->threads);
        return;
    }
    jakiro_best(growing->logits + (contrastive ? rows * vocabulary : 0), rows, vocabulary, weights[0], noise, weights[1],
                width, growing->places, growing->estimates, growing->chances, growing->threads);
    for (int64_t i = 0; i < rows * width; i++) growing->proposers[i] = contrastive ? draft->head->experts : 0;
}

/* Append the children of a scored row to a node; the root is -1. */
static void add(Growing *growing, int64_t node, int64_t scored, int64_t row, int64_t depth) {
    const Draft *draft = growing->draft;
    const float above = node < 0 ? 0 : growing->candidates[node].score, log_kept = draft->weights[(depth - 1) * 3 + 2];
    for (int64_t i = scored * draft->width; i < (scored + 1) * draft->width; i++) {
        const float score = above + (growing->estimates[i] + log_kept);
        /* NaN, as corrupted weights give it, is the lowest score */
        growing->candidates[growing->count++] =
            (Candidate){growing->places[i], node, depth, growing->pass, growing->proposers[i], row,
                        score == score ? score : -__builtin_inff(), growing->chances[i]};
    }
}

/* Find the best candidates from an index on, at most so many (1 or more), earlier ones first among equals; return their
 * number. */
static int64_t best_from(const Growing *growing, int64_t first, int64_t most, int64_t *best) {
    const Candidate *candidates = growing->candidates;
    int64_t count = 0;
    for (int64_t node = first; node < growing->count; node++) {
        const float score = candidates[node].score;
        if (count == most && !(score > candidates[best[count - 1]].score)) continue;
        int64_t at = count < most ? count++ : count - 1;
        for (; at > 0 && candidates[best[at - 1]].score < score; at--) best[at] = best[at - 1];
        best[at] = node;
    }
    return count;
}

/* Return whether no child of a node can be in the largest tree, because so many candidates are better: a child's score
 * is at most its parent's, so both must be in the tree. */
static int is_hopeless(const Growing *growing, float score) {
    int64_t better = 0;
    for (int64_t other = 0; other < growing->count; other++) better += growing->candidates[other].score > score;
    return better >= growing->draft->explored - 2;
}

/* Find the best nodes of the newest level that are worth expanding. */
static void choose_frontier(Growing *growing) {
    int64_t *frontier = growing->frontier, count = best_from(growing, growing->level, growing->draft->width, frontier);
    while (count && is_hopeless(growing, growing->candidates[frontier[count - 1]].score)) count--;
    growing->expanded = count;
}

/* Return a part of the logit of an index in the draft vocabulary; the parts add up by linearity. */
static float part_of(const Draft *draft, int64_t place, const float *part) {
    const int64_t hidden = draft->head->hidden;
    const float *row = draft->directions + place * hidden;
    vec sum = {0};
    for (int64_t i = 0; i < hidden; i += LANES)
        sum += (loaded(row, i, hidden, 0) - loaded(draft->mean, i, hidden, 0)) * loaded(part, i, hidden, 0);
    double total = 0;
    for (int lane = 0; lane < LANES; lane++) total += sum[lane];
    return (float)total;
}

/* Write the evidence of `DraftHead.node_evidence`. If experts are summed, the one with the largest part proposes. */
static void write_evidence(const Growing *growing, int64_t at) {
    const Draft *draft = growing->draft;
    const Head *head = draft->head;
    const Candidate *node = growing->candidates + growing->best[at - 1];
    const float *router = growing->router + node->row * head->router.outputs;
    const int is_contrastive = node->proposer == head->experts;
    float *weights = draft->float_columns + EVIDENCE * draft->kept + at, *contributions = weights + head->experts * draft->kept;
    float most = -__builtin_inff();
    for (int64_t expert = 0; expert < head->experts; expert++) {
        const float *parts = head->summed ? growing->outputs : growing->mixed;
        float *found = contributions + expert * draft->kept;
        weights[expert * draft->kept] = is_contrastive ? __builtin_fabsf(router[head->experts + expert]) : router[expert];
        if (is_contrastive) continue;
        *found = router[expert] * part_of(draft, node->place, parts + (expert * growing->rows + node->row) * head->hidden);
        if (head->summed && *found > most) most = *found, draft->int_columns[PROPOSER * draft->kept + at] = expert;
    }
    if (!is_contrastive)
        contributions[head->experts * draft->kept] = part_of(draft, node->place, growing->stream + node->row * head->hidden);
}

static int in_order(const void *a, const void *b) { return *(const int64_t *)a < *(const int64_t *)b ? -1 : 1; }

/* Write the root and the best candidates in the order of growth: the score of a child is at most its parent's. */
static int64_t write_tree(Growing *growing) {
    const Draft *draft = growing->draft;
    const int64_t kept = draft->kept, count = 1 + best_from(growing, 0, kept - 1, growing->best);
    int64_t *columns = draft->int_columns;
    qsort(growing->best, count - 1, sizeof(int64_t), in_order);
    for (int64_t i = 0; i < kept * (EVIDENCE + (draft->mean ? 2 * draft->head->experts + 1 : 0)); i++)
        draft->float_columns[i] = __builtin_nanf("");
    memset(columns, 0, 6 * kept * sizeof(int64_t));
    columns[TOKEN * kept] = draft->ids[draft->committed - 1];
    columns[PARENT * kept] = columns[PROPOSER * kept] = -1;
    draft->float_columns[SCORE * kept] = 0;
    for (int64_t at = 1; at < count; at++) {
        const Candidate *node = growing->candidates + growing->best[at - 1];
        int64_t parent = node->parent < 0 ? 0 : at - 1;
        while (parent && growing->best[parent - 1] != node->parent) parent--;
        columns[TOKEN * kept + at] = draft->token_ids[node->place];
        columns[PARENT * kept + at] = parent;
        columns[DEPTH * kept + at] = node->depth;
        columns[PASS * kept + at] = node->pass;
        columns[PROPOSER * kept + at] = node->proposer;
        draft->float_columns[SCORE * kept + at] = node->score;
        draft->float_columns[CHANCE * kept + at] = node->chance;
        if (draft->mean) write_evidence(growing, at);
    }
    return count;
}

int64_t jakiro_grow_bytes(const Draft *draft, int64_t threads) {
    Growing growing;
    return lay_out(&growing, draft, threads, 0);
}

/* Return the number of nodes; the memory has the size jakiro_grow_bytes. */
int64_t jakiro_grow(const Draft *draft, void *memory, int64_t threads) {
    Growing growing;
    lay_out(&growing, draft, threads, memory);
    read_committed(&growing);
    score(&growing, 1, draft->contrastive && !draft->passes);
    rank(&growing, 1, 1, 0);
    add(&growing, -1, 0, draft->committed - 1, 1);
    choose_frontier(&growing);
    for (int64_t depth = 2; depth <= draft->passes + 1 && growing.expanded; depth++) {
        const int64_t rows = growing.expanded, level = growing.count;
        expand(&growing);
        score(&growing, rows, draft->contrastive && depth == draft->passes + 1);
        rank(&growing, rows, depth, 0);
        for (int64_t i = 0; i < rows; i++) add(&growing, growing.frontier[i], i, growing.first_row + i, depth);
        growing.level = level;
        choose_frontier(&growing);
    }
    if (draft->contrastive && growing.expanded) {
        const int64_t rows = draft->passes ? growing.num_rows : 1, first = growing.first_row + growing.num_rows - rows;
        rank(&growing, rows, draft->passes + 2, 1);
        for (int64_t i = 0; i < growing.expanded; i++) {
            const int64_t row = growing.candidates[growing.frontier[i]].row;
            add(&growing, growing.frontier[i], row - first, row, draft->passes + 2);
        }
    }
    return write_tree(&growing);
}
