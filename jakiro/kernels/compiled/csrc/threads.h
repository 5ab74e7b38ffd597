/* The threads of the OpenMP that torch computes with: a second pool would fight for the same cores. */

#pragma once

#include <stdint.h>

/* Calls work(context, thread, threads) in so many threads at once and waits for them. */
void run_in_threads(void (*work)(const void *, int, int), const void *context, int64_t threads);

/* Until every thread of the running work is here. */
void meet(int threads);
