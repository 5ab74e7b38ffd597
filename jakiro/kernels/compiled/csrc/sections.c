#include "sections.h"

/* Nanoseconds to wait for a chunk at least, and how many times as long as this thread's slowest one took. */
#define LEAST_PATIENCE 20000
#define PATIENCE 2

/* States of a chunk; with its section they make a number that only grows. */
enum { TAKEN = 1, PUBLISHED = 2, STATES = 4 };

/* One thread in one section. */
typedef struct {
    const Sections *sections;
    const void *pass;
    Progress *progress;
    void *room;
    int64_t section, chunks, slowest;
    int entered;
} Visit;

static int is_over(const Visit *visit) { return round_of(&visit->progress->section) != visit->section; }

static int move(Visit *visit, int64_t chunk, int64_t from, int64_t to) {
    return __atomic_compare_exchange_n(visit->progress->chunks + chunk, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static int64_t state_of(const Visit *visit, int64_t chunk) {
    return __atomic_load_n(visit->progress->chunks + chunk, __ATOMIC_RELAXED);
}

static int take(Visit *visit, int64_t chunk) {
    const int64_t state = state_of(visit, chunk), taken = STATES * visit->section + TAKEN;
    return state < taken && move(visit, chunk, state, taken);
}

static void compute(Visit *visit, int64_t chunk) {
    const Sections *sections = visit->sections;
    Progress *progress = visit->progress;
    const int64_t section = visit->section, began = now();
    if (!visit->entered) sections->enter(visit->pass, section, visit->room);
    visit->entered = 1;
    sections->compute(visit->pass, section, chunk, visit->room);
    const int64_t took = now() - began;
    if (took > visit->slowest) visit->slowest = took;
    if (!move(visit, chunk, STATES * section + TAKEN, STATES * section + PUBLISHED)) return;
    if (sections->publish) sections->publish(visit->pass, section, chunk, visit->room);
    if (__atomic_add_fetch(&progress->published, 1, __ATOMIC_ACQ_REL) < visit->chunks) return;
    __atomic_store_n(&progress->published, 0, __ATOMIC_RELAXED);
    begin_round(&progress->section, (int)section + 1);
}

/* Whether the section was over before patience ended. */
static int is_over_soon(const Visit *visit) {
    const int64_t began = now(), longest = PATIENCE * visit->slowest;
    const int64_t patience = longest > LEAST_PATIENCE ? longest : LEAST_PATIENCE;
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
    /* What is left of the others', from the end that they come to last */
    for (int64_t i = 0; i < chunks - own; i++) {
        const int64_t chunk = (first - 1 - i + chunks) % chunks;
        if (take(visit, chunk)) compute(visit, chunk);
    }
    if (visit->sections->publish && !is_over_soon(visit))
        for (int64_t chunk = 0; chunk < chunks && !is_over(visit); chunk++)
            if (state_of(visit, chunk) == STATES * visit->section + TAKEN) compute(visit, chunk);
    if (visit->entered) visit->sections->leave(visit->pass, visit->section, visit->room);
    if (!is_over(visit)) wait_for_end_of(&visit->progress->section, (int)visit->section);
}

void go_through(const Sections *sections, const void *pass, Progress *progress, void *room, int thread_id,
                int num_threads) {
    for (int64_t section; (section = round_of(&progress->section)) < sections->count;) {
        Visit visit = {sections, pass, progress, room, section, sections->cut(pass, section, room), 0, 0};
        visit_section(&visit, thread_id, num_threads);
    }
}
