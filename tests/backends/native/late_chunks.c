/* Sections in which the first thread that takes a chunk returns only after another thread has published it. */

#include "sections.h"

#define CHUNKS 5
#define LONGEST_NANOSECONDS 5000000000

typedef struct {
    Progress progress;
    int taken[CHUNKS], published[CHUNKS], chunks;
} Pass;

typedef struct {
    int number;
} Workspace;

static int read(const int *number) { return __atomic_load_n(number, __ATOMIC_ACQUIRE); }

static int64_t cut(const void *pass, int64_t section, void *workspace) { return CHUNKS; }

static void nothing(const void *pass, int64_t section, void *workspace) {}

static void compute(const void *context, int64_t section, int64_t chunk, void *workspace) {
    Pass *pass = (Pass *)context;
    ((Workspace *)workspace)->number = (int)(10 * section + chunk);
    if (chunk != 2 || __atomic_fetch_add(pass->taken + section, 1, __ATOMIC_RELAXED)) return;
    for (const int64_t began = now(); !read(pass->published + section) && now() - began < LONGEST_NANOSECONDS;) relax();
    ((Workspace *)workspace)->number = -1000;
}

static void publish(const void *context, int64_t section, int64_t chunk, const void *workspace) {
    Pass *pass = (Pass *)context;
    const int number = ((const Workspace *)workspace)->number;
    __atomic_add_fetch(&pass->chunks, number == 10 * section + chunk, __ATOMIC_RELAXED);
    if (chunk == 2) __atomic_store_n(pass->published + section, 1, __ATOMIC_RELEASE);
}

static const Sections sections = {CHUNKS, cut, nothing, compute, publish};

static void work(const void *context, int thread_id, int num_threads) {
    Workspace workspace = {0};
    go_through(&sections, context, &((Pass *)context)->progress, &workspace, thread_id, num_threads);
}

/* Return how many chunks were published with the right number; there are CHUNKS in each of CHUNKS sections. */
int64_t published_chunks(int64_t threads) {
    Pass pass = {{{0}}};
    run_in_threads(work, &pass, threads);
    return pass.chunks;
}
