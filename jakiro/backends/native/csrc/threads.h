/* Threads of torch's OpenMP, so that no second pool competes for the cores, and their waiting. */

#pragma once

#include <stdint.h>

/* Reads of a number between two reads of the clock. */
#define LOOKS 32

/* Synchronization of threads, which wait for the next round. */
typedef struct {
    int round, sleeping;
} Meeting;

/* Call work(context, thread_id, num_threads) in so many threads at once and wait for them. */
void run_in_threads(void (*work)(const void *, int, int), const void *context, int64_t threads);

int round_of(const Meeting *meeting);

/* Begin the round after this one, unless another thread has, and wake the sleeping threads. */
void begin_round_after(Meeting *meeting, int round);

/* Wait until a round is over. */
void wait_for_end_of(Meeting *meeting, int round);

/* Return the monotonic clock in nanoseconds. */
int64_t now(void);

/* Pause between two reads. */
static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
