/*
 * patience.h - how long somebody who sends may be kept waiting by somebody who reads.
 *
 * A reader has so much time to let us wait, all in all, and gets some back with each byte that it takes. One that takes
 * nothing is given up after that time; one that takes a little now and then, soon after. Who reads faster than
 * `bytes_per_s` never is.
 *
 * Nothing here reads a clock. Ownership: a value. Threads: one at a time.
 */
#ifndef CAPSTAN_COORDINATOR_PATIENCE_H
#define CAPSTAN_COORDINATOR_PATIENCE_H

#include <stddef.h>
#include <stdint.h>

#define PATIENCE_MS 20000
#define PATIENCE_BYTES_PER_S (256 * 1024)

struct patience {
    int64_t left_ms; /* 0 or less: none */
    int64_t max_ms;  /* of that */
    int64_t bytes_per_s;
};

#define PATIENCE_FULL ((struct patience){PATIENCE_MS, PATIENCE_MS, PATIENCE_BYTES_PER_S})

/* So long it took until so many bytes were taken. */
static inline void patience_spend(struct patience *patience, int64_t waited_ms, size_t bytes)
{
    int64_t earned_ms = (int64_t)bytes * 1000 / patience->bytes_per_s;
    int64_t left_ms = patience->left_ms - waited_ms + earned_ms;
    patience->left_ms = left_ms < patience->max_ms ? left_ms : patience->max_ms;
}

#endif
