/*
 * metrics.h - what a coordinator counts for /metrics: where things happen, at the price of an atomic addition or two.
 *
 * What the scheduler itself counts is asked of it when somebody wants to know (core_stats); this is the rest.
 *
 * Ownership: part of the service. Threads: any.
 */
#ifndef CAPSTAN_COORDINATOR_METRICS_H
#define CAPSTAN_COORDINATOR_METRICS_H

#include "core/rows.h"
#include "http/metric.h"

struct metrics {
    struct metric_histogram assign_seconds; /* from queued to handed to a worker */
    struct metric_histogram commit_seconds;
    struct metric_histogram commit_batch_size; /* commands in one commit */
    struct metric_histogram query_seconds;     /* from submitted to ended, of queries */
    struct metric_histogram fetch_seconds;     /* for a piece of rows from a worker */
    _Atomic uint64_t succeeded;                /* jobs that ended while this process led */
    _Atomic uint64_t failed;
    _Atomic uint64_t canceled;
};

void metrics_init(struct metrics *metrics);

/* These rows have just become durable. */
void metrics_durable(struct metrics *metrics, const struct row *rows);

#endif
