/*
 * drive.h - a coordinator on a store, and clients and workers that keep it busy.
 *
 * A lane has `width` jobs with one task each under way: it submits them with as many requests, polls for their tasks, and
 * reports each by a request of its own; then it starts over. So each transaction has the rows of `width` commands. With two
 * lanes one gathers while the other commits.
 *
 * Everything that goes wrong ends the program. Threads: one.
 */
#ifndef CAPSTAN_BENCH_STORE_DRIVE_H
#define CAPSTAN_BENCH_STORE_DRIVE_H

#include <stdint.h>

struct drive;

/*
 * Starts a coordinator and waits until it leads. `*out_s`: how long that took, the load included; `*out_cpu_s`: the time of
 * this process's cores that it took. Both may be NULL.
 */
struct drive *drive_start(const char *url, double *out_s, double *out_cpu_s);
void drive_stop(struct drive *drive);

/* Lifecycles per second, over at least `n` of them. */
double drive_lifecycles(struct drive *drive, uint32_t n_lanes, uint32_t width, uint32_t n);

/* Submits one job and waits for the answer. Seconds. */
double drive_submit(struct drive *drive);

/* A job with a task under way, and one that has ended: to be multiplied by SQL. */
void drive_templates(struct drive *drive, const char *live_id, const char *ended_id);

double seconds(void);

#endif
