/*
 * bench.h - what all benchmarks share: a cluster to measure, calls to it, the conditions that are printed with figures.
 *
 * Each benchmark is a function that gets a struct bench whose cluster runs, and prints. It stops the cluster itself when
 * the measuring is over, unless it does not care; verb_bench.c does it in any case.
 *
 * Ownership: texts live in the cli's arena. Threads: bench_start before the process has others (private.h); the rest from
 * any, with a client of its own.
 */
#ifndef CAPSTAN_MAIN_BENCH_H
#define CAPSTAN_MAIN_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/check.h"
#include "base/err.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/interrupt.h"
#include "main/private.h"

#define BENCH_SETTINGS_MAX 64

struct bench {
    struct cli *cli;
    struct interrupt *interrupt;
    struct client_options client;
    struct private_cluster cluster;
    bool is_private; /* else somebody else's, named by --server */
    const char *settings[BENCH_SETTINGS_MAX];
    uint32_t n_settings;
    uint32_t workers; /* that are healthy, as the cluster tells it */
    uint32_t slots;   /* of all of them together */
};

/* What a private cluster consists of; the options --store and --set come on top. */
struct bench_shape {
    uint32_t workers;
    uint32_t slots;   /* of each worker */
    bool has_metrics; /* of workers: for bench_exchange */
    const char *const *settings;
    uint32_t n_settings;
};

/* Starts a private cluster, or takes that of --server, and counts its workers. bench_end in any case. */
MUST_USE enum err bench_start(struct bench *bench, const struct bench_shape *shape, struct error *e);

/* Stops what bench_start started. Once more does no harm. */
void bench_stop(struct bench *bench);

/* Stops it and removes its folder, or says where it is kept. */
void bench_end(struct bench *bench);

/* Waits for the end of a job. ERR_INTERNAL with its message if it did not succeed. */
MUST_USE enum err bench_await(const struct bench *bench, struct client *client, const char *job_id, struct error *e);

/* ---- figures ---- */

/* The value that `part` of all are not above, in milliseconds. The array gets sorted. */
double bench_percentile_ms(int64_t *us, size_t n, double part);
double bench_median_ms(int64_t *us, size_t n);

/* ---- conditions ---- */

/* Appends "store":…,"workers":…,"slots":…,"cores":…,"version":…,"private":…,"limits":…, without braces around. */
void bench_write_conditions_json(const struct bench *bench, struct buf *out);

/* The same as lines for people. */
void bench_write_conditions(const struct bench *bench, struct buf *out);

/* How many processes wanted a processor in the last minute; below 0: not known. */
double bench_load(void);

/*
 * The processor time that the private cluster's processes have used so far, and that this process has, in milliseconds.
 * The former comes in steps of 10 ms per process. 0 if it is not known.
 */
double bench_cluster_cpu_ms(const struct bench *bench);
double bench_own_cpu_ms(void);

/* The same by who has used it: this process, the coordinator, all workers. 0 of what is not known. */
struct bench_cpu {
    double client_ms;
    double coordinator_ms;
    double workers_ms;
};
struct bench_cpu bench_cpu(const struct bench *bench);

/* "sqlite", "postgres" or "unknown": the address itself may have a password in it. */
const char *bench_store_kind(const struct bench *bench);

/* Prints to the cli's stdout. */
void bench_print(const struct bench *bench, const struct buf *text);

/* ---- the benchmarks; `bench` has its cli and interrupt, each starts its own cluster ---- */

MUST_USE enum err bench_tasks(struct bench *bench, struct error *e);
MUST_USE enum err bench_latency(struct bench *bench, struct error *e);
MUST_USE enum err bench_sql(struct bench *bench, struct error *e);
MUST_USE enum err bench_shuffle(struct bench *bench, struct error *e);

#endif
