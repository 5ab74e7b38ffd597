#include "threads.h"

static void (*start)(void (*)(void *), void *, unsigned, unsigned);
static void (*barrier)(void);
static int (*thread_number)(void);
static int (*thread_count)(void);

/* GOMP_parallel, GOMP_barrier, omp_get_thread_num and omp_get_num_threads. */
void jakiro_threads(void *parallel, void *wait, void *number, void *count) {
    start = (void (*)(void (*)(void *), void *, unsigned, unsigned))parallel;
    barrier = (void (*)(void))wait;
    thread_number = (int (*)(void))number;
    thread_count = (int (*)(void))count;
}

typedef struct {
    void (*work)(const void *, int, int);
    const void *context;
} Call;

static void run_one(void *call) {
    ((Call *)call)->work(((Call *)call)->context, thread_number(), thread_count());
}

void run_in_threads(void (*work)(const void *, int, int), const void *context, int64_t threads) {
    Call call = {work, context};
    if (threads > 1) start(run_one, &call, (unsigned)threads, 0);
    else work(context, 0, 1);
}

void meet(int threads) {
    if (threads > 1) barrier();
}
