/* Work in sections, each of which reads what those before it wrote, by threads that need not wait for a slow one.
 *
 * A section is cut into chunks. A thread takes a chunk, computes it into a workspace of its own and publishes the
 * numbers. Where none is left it waits a moment for those that others took, then computes them too: another program may
 * have taken the other thread's core, and may keep it for milliseconds. Who is first publishes. The late thread finds its
 * chunk published, drops its numbers, which may come from what the next sections wrote by then, and goes on with the
 * others.
 */

#pragma once

#include "threads.h"

#define MOST_CHUNKS 512

/* What the threads of a pass have done; begins with zeros. */
typedef struct {
    Meeting section __attribute__((aligned(64))); /* its round: the section under way */
    int64_t chunks[MOST_CHUNKS] __attribute__((aligned(64)));
} Progress;

/* The workspace is a thread's own. */
typedef struct {
    int64_t count;
    /* How many chunks a section has, at most MOST_CHUNKS; the same for every thread. */
    int64_t (*cut)(const void *pass, int64_t section, void *workspace);
    /* Before a thread's first chunk of a section. */
    void (*enter)(const void *pass, int64_t section, void *workspace);
    /* Writes to the workspace alone, unless nothing is published: then every chunk is computed once. */
    void (*compute)(const void *pass, int64_t section, int64_t chunk, void *workspace);
    /* Null, or writes what `compute` found to where later sections read it. */
    void (*publish)(const void *pass, int64_t section, int64_t chunk, const void *workspace);
} Sections;

/* This thread's part of all sections. */
void go_through(const Sections *sections, const void *pass, Progress *progress, void *workspace, int thread_id,
                int num_threads);
