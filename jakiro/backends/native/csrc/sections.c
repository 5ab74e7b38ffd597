#include "sections.h"

/* Shortest time in nanoseconds to wait for chunks of other threads, and this time as a multiple of the mean time of this
 * thread's chunks. */
#define LEAST_PATIENCE 20000
#define PATIENCE 2

/* States of a chunk; together with its section they form a number that only increases. */
enum { TAKEN = 1, PUBLISHING, PUBLISHED, STATES };

/* One thread in one section. */
typedef struct {
    const Sections *sections;
    const void *pass;
    Progress *progress;
    void *workspace;
    int64_t section, chunks;
    int64_t began, computed; /* time of its first chunk, and number of computed chunks */
} Visit;

static int is_over(const Visit *visit) { return round_of(&visit->progress->section) != visit->section; }

static int64_t number_of(const Visit *visit, int state) { return STATES * visit->section + state; }

static int64_t now_at(const Visit *visit, int64_t chunk) {
    return __atomic_load_n(visit->progress->chunks + chunk, __ATOMIC_SEQ_CST);
}

static int move(Visit *visit, int64_t chunk, int64_t from, int64_t to) {
    return __atomic_compare_exchange_n(visit->progress->chunks + chunk, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static int take(Visit *visit, int64_t chunk) {
    const int64_t number = now_at(visit, chunk), taken = number_of(visit, TAKEN);
    return number < taken && move(visit, chunk, number, taken);
}

static void compute(Visit *visit, int64_t chunk) {
    const Sections *sections = visit->sections;
    const int64_t section = visit->section;
    if (!visit->computed++) {
        visit->began = now();
        sections->enter(visit->pass, section, visit->workspace);
    }
    sections->compute(visit->pass, section, chunk, visit->workspace);
    if (!move(visit, chunk, number_of(visit, TAKEN), number_of(visit, PUBLISHING))) return;
    if (sections->publish) sections->publish(visit->pass, section, chunk, visit->workspace);
    __atomic_store_n(visit->progress->chunks + chunk, number_of(visit, PUBLISHED), __ATOMIC_SEQ_CST);
}

/* Begin the next section if all chunks of this one are published: of two threads that publish the last ones, at least
 * one sees both. */
static void end_if_published(Visit *visit) {
    for (int64_t chunk = 0; chunk < visit->chunks; chunk++)
        if (now_at(visit, chunk) != number_of(visit, PUBLISHED)) return;
    if (!is_over(visit)) begin_round_after(&visit->progress->section, (int)visit->section);
}

/* Return whether the section ends before the waiting time is over. */
static int is_over_soon(const Visit *visit) {
    const int64_t began = now(), usual = visit->computed ? (began - visit->began) / visit->computed : 0;
    const int64_t patience = PATIENCE * usual > LEAST_PATIENCE ? PATIENCE * usual : LEAST_PATIENCE;
    do
        for (int look = 0; look < LOOKS; look++) {
            if (is_over(visit)) return 1;
            relax();
        }
    while (now() - began < patience);
    return 0;
}

static void visit_section(Visit *visit, int thread_id, int num_threads) {
    const int64_t chunks = visit->chunks, first = chunks * thread_id / num_threads;
    const int64_t own = chunks * (thread_id + 1) / num_threads - first;
    for (int64_t i = 0; i < own; i++)
        if (take(visit, first + i)) compute(visit, first + i);
    /* Remaining chunks of other threads, starting at the end that they reach last */
    for (int64_t i = 0; i < chunks - own; i++) {
        const int64_t chunk = (first - 1 - i + chunks) % chunks;
        if (take(visit, chunk)) compute(visit, chunk);
    }
    end_if_published(visit);
    if (visit->sections->publish && !is_over_soon(visit)) {
        for (int64_t chunk = 0; chunk < chunks && !is_over(visit); chunk++)
            if (now_at(visit, chunk) == number_of(visit, TAKEN)) compute(visit, chunk);
        end_if_published(visit);
    }
    if (!is_over(visit)) wait_for_end_of(&visit->progress->section, (int)visit->section);
}

void go_through(const Sections *sections, const void *pass, Progress *progress, void *workspace, int thread_id,
                int num_threads) {
    for (int64_t section; (section = round_of(&progress->section)) < sections->count;) {
        Visit visit = {sections, pass, progress, workspace, section, sections->cut(pass, section, workspace), 0, 0};
        visit_section(&visit, thread_id, num_threads);
    }
}
