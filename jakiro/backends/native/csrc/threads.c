#define _GNU_SOURCE /* syscall */
#include "threads.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Waiting has two stages: spin, then sleep. Spinning is fastest if every thread has its own core: a sleeping thread needs
 * about ten microseconds to wake up. If another program occupies a core, the last thread may not run for milliseconds,
 * and a spinning thread occupies the core that it could use.
 *
 * The spinning time is SPIN_FACTOR times the moving average of waiting times, within bounds. A wait of LATE_FACTOR times
 * the average indicates an occupied core: the next waits hardly spin, twice as many each time this happens again, until
 * a probe shows that waits are short again. These cautious waits do not update the average: they end with waking a
 * thread, which is sometimes slow even if all cores are free, and caution would reinforce itself.
 * Times in nanoseconds. */
#define LEAST_SPIN 20000
#define MOST_SPIN 200000
#define SPIN_FACTOR 8
#define LATE_FACTOR 20
#define LATE_AT_LEAST 400000
#define CAUTIOUS_SPIN 2000
#define FEWEST_CAUTIOUS 8
#define MOST_CAUTIOUS 2048

static void (*start)(void (*)(void *), void *, unsigned, unsigned);
static int (*thread_number)(void);
static int (*thread_count)(void);

/* GOMP_parallel, omp_get_thread_num and omp_get_num_threads. */
void jakiro_threads(void *parallel, void *number, void *count) {
    start = (void (*)(void (*)(void *), void *, unsigned, unsigned))parallel;
    thread_number = (int (*)(void))number;
    thread_count = (int (*)(void))count;
}

/* Statistics of waits, shared by all threads. Lost updates are harmless. */
static int64_t usual_wait = LEAST_SPIN / SPIN_FACTOR, cautious_waits, next_caution = FEWEST_CAUTIOUS;

static int64_t get(int64_t *value) { return __atomic_load_n(value, __ATOMIC_RELAXED); }

static void set(int64_t *value, int64_t to) { __atomic_store_n(value, to, __ATOMIC_RELAXED); }

int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static int is_cautious(void) {
    const int64_t left = get(&cautious_waits);
    if (left > 0) set(&cautious_waits, left - 1);
    return left > 0;
}

static int64_t spin_limit(void) {
    const int64_t limit = SPIN_FACTOR * get(&usual_wait);
    return limit < LEAST_SPIN ? LEAST_SPIN : limit > MOST_SPIN ? MOST_SPIN : limit;
}

static void learn(int64_t waited, int slept) {
    const int64_t usual = get(&usual_wait), late = LATE_FACTOR * usual;
    if (waited > (late > LATE_AT_LEAST ? late : LATE_AT_LEAST)) {
        const int64_t caution = get(&next_caution);
        set(&cautious_waits, caution);
        set(&next_caution, caution < MOST_CAUTIOUS ? 2 * caution : MOST_CAUTIOUS);
    } else if (!slept) {
        set(&usual_wait, usual + (waited - usual) / 64);
        if (get(&next_caution) > FEWEST_CAUTIOUS) set(&next_caution, get(&next_caution) - 1);
    }
}

int round_of(const Meeting *meeting) { return __atomic_load_n(&meeting->round, __ATOMIC_ACQUIRE); }

void begin_round_after(Meeting *meeting, int round) {
    if (!__atomic_compare_exchange_n(&meeting->round, &round, round + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) return;
    if (__atomic_load_n(&meeting->sleeping, __ATOMIC_SEQ_CST))
        syscall(SYS_futex, &meeting->round, FUTEX_WAKE_PRIVATE, INT_MAX, 0, 0, 0);
}

/* Return whether the thread slept. */
static int spin_then_sleep(Meeting *at, int round, int64_t began, int64_t limit) {
    do
        for (int look = 0; look < LOOKS; look++) {
            if (round_of(at) != round) return 0;
            relax();
        }
    while (now() - began < limit);
    __atomic_add_fetch(&at->sleeping, 1, __ATOMIC_SEQ_CST);
    while (round_of(at) == round) syscall(SYS_futex, &at->round, FUTEX_WAIT_PRIVATE, round, 0, 0, 0);
    __atomic_sub_fetch(&at->sleeping, 1, __ATOMIC_SEQ_CST);
    return 1;
}

void wait_for_end_of(Meeting *meeting, int round) {
    const int64_t began = now();
    const int cautious = is_cautious();
    const int slept = spin_then_sleep(meeting, round, began, cautious ? CAUTIOUS_SPIN : spin_limit());
    if (!cautious) learn(now() - began, slept);
}

typedef struct {
    void (*work)(const void *, int, int);
    const void *context;
    int arrived;
    Meeting end;
} Call;

static void run_one(void *context) {
    Call *call = context;
    const int num_threads = thread_count();
    call->work(call->context, thread_number(), num_threads);
    /* Here instead of at the join of OpenMP, where threads may spin for milliseconds */
    if (__atomic_add_fetch(&call->arrived, 1, __ATOMIC_ACQ_REL) < num_threads) wait_for_end_of(&call->end, 0);
    else begin_round_after(&call->end, 0);
}

void run_in_threads(void (*work)(const void *, int, int), const void *context, int64_t threads) {
    Call call = {work, context, 0, {0}};
    if (threads > 1) start(run_one, &call, (unsigned)threads, 0);
    else work(context, 0, 1);
}
