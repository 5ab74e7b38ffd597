/* Threads that torch's OpenMP starts, so that no second pool competes for the cores, and how they wait. */

#pragma once

#include <stdint.h>

/* Looks at a number between two looks at the clock. */
#define LOOKS 32

/* What threads wait for: that its round is another one. */
typedef struct {
    int round, sleeping;
} Meeting;

/* Calls work(context, thread_id, num_threads) in so many threads at once and waits for them. */
void run_in_threads(void (*work)(const void *, int, int), const void *context, int64_t threads);

int round_of(const Meeting *meeting);

/* Begins the round after this one, unless another thread has, and wakes who waits for it. */
void begin_round_after(Meeting *meeting, int round);

/* Waits until a round is over. */
void wait_for_end_of(Meeting *meeting, int round);

/* Nanoseconds of a clock. */
int64_t now(void);

/* A pause between two looks. */
static inline void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
