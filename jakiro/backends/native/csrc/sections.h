/* Work in sections that read the results of earlier ones, by threads that do not have to wait for a slow one.
 *
 * A section is cut into chunks. A thread takes a chunk, computes it in its own workspace and publishes the numbers. If no
 * chunk is left, it waits a moment for chunks that other threads took, then computes them, too: another program may
 * occupy the core of the other thread for milliseconds. The first thread publishes. The late thread finds its chunk
 * published, drops its numbers, which may depend on results of later sections, and continues.
 */

#pragma once

#include "threads.h"

#define MOST_CHUNKS 512

/* Progress of the threads of a pass; initialized with zeros. */
typedef struct {
    Meeting section __attribute__((aligned(64))); /* its round is the current section */
    int64_t chunks[MOST_CHUNKS] __attribute__((aligned(64)));
} Progress;

/* Functions of the sections; each thread has its own workspace. */
typedef struct {
    int64_t count;
    /* Return the number of chunks of a section, at most MOST_CHUNKS; the same for every thread. */
    int64_t (*cut)(const void *pass, int64_t section, void *workspace);
    /* Called before a thread's first chunk of a section. */
    void (*enter)(const void *pass, int64_t section, void *workspace);
    /* Writes only to the workspace, unless nothing is published: then every chunk is computed once. */
    void (*compute)(const void *pass, int64_t section, int64_t chunk, void *workspace);
    /* Null, or copies the results of `compute` to the memory that later sections read. */
    void (*publish)(const void *pass, int64_t section, int64_t chunk, const void *workspace);
} Sections;

/* Run this thread's part of all sections. */
void go_through(const Sections *sections, const void *pass, Progress *progress, void *workspace, int thread_id,
                int num_threads);
