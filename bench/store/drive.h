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

/* Starts a coordinator that prunes what is older than `history_ttl_ms` (0: a week), and waits until it leads. */
struct drive *drive_start(const char *url, int64_t history_ttl_ms);
void drive_stop(struct drive *drive);

/*
 * Starts a coordinator, waits until it has answered a submit, and stops it. `*out_s`: how long the answer took from the
 * start on, the load included; `*out_cpu_s`: the time of this process's cores that it took. The job stays behind.
 */
void drive_recover(const char *url, double *out_s, double *out_cpu_s);

/*
 * How a lane looks whether the ids of its new jobs are known: all of them by one question, or each by one of its own, as
 * the services do, one after the other on one connection. Then each job also has an input, which is stored with it.
 */
enum drive_manner { DRIVE_TOGETHER, DRIVE_EACH };

/* Lifecycles per second, over at least `n` of them. */
double drive_lifecycles(struct drive *drive, enum drive_manner manner, uint32_t n_lanes, uint32_t width, uint32_t n);

/* Submits one job and waits for the answer. Seconds. */
double drive_submit(struct drive *drive);

/* Jobs of one task to be multiplied by SQL: it waits, it runs under a lease of worker-2, it has ended and had an input. */
struct drive_templates {
    const char *waiting_id;
    const char *leased_id;
    const char *ended_id;
};

void drive_make_templates(struct drive *drive, const struct drive_templates *ids);

double seconds(void);

#endif
