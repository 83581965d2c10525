/*
 * bench_exchange.h - how long the tasks of a private cluster have been busy with rows that go from stage to stage, as its
 * workers count it (capstan_shuffle_work_seconds_total).
 *
 * Ownership: nothing is kept. Threads: any.
 */
#ifndef CAPSTAN_MAIN_BENCH_EXCHANGE_H
#define CAPSTAN_MAIN_BENCH_EXCHANGE_H

#include "main/bench.h"

/* Since the workers began, all tasks together. */
struct bench_exchange {
    double in_ms;  /* they waited for rows of other tasks, and took them */
    double out_ms; /* they wrote rows for other tasks */
};

/* Asks all workers. False if one does not say: it has been started anew, or it serves no metrics (bench_shape). */
MUST_USE bool bench_exchange(const struct bench *bench, struct bench_exchange *out);

/* Adds what is in one worker's metrics, as text. False if it is not there. */
MUST_USE bool bench_exchange_add(const char *metrics, struct bench_exchange *sum);

#endif
