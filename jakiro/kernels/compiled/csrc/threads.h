/* Threads that torch's OpenMP starts, so that no second pool competes for the cores, and barriers of our own. */

#pragma once

#include <stdint.h>

/* Calls work(context, thread_id, num_threads) in so many threads at once and waits for them. */
void run_in_threads(void (*work)(const void *, int, int), const void *context, int64_t threads);

/* Waits until every thread of the running work has called this. */
void barrier(int num_threads);
