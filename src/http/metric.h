/*
 * metric.h - metrics as Prometheus reads them: text, one line per value.
 *
 *     metric_family(out, "capstan_leases", METRIC_GAUGE, "Leases that are held at the moment.");
 *     metric_value(out, "capstan_leases", NULL, 12);
 *     metric_value(out, "capstan_tasks", "state=\"queued\"", 5);
 *
 * A histogram counts values where they happen, by any thread, at the price of two atomic additions.
 *
 * Ownership: the buffer is the caller's, and so is a histogram. Threads: any, each with its own buffer.
 */
#ifndef CAPSTAN_HTTP_METRIC_H
#define CAPSTAN_HTTP_METRIC_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

#define METRIC_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

/* Begins a family; its values follow. */
void metric_family(struct buf *out, const char *name, enum metric_kind kind, const char *help);

/* `labels` may be NULL. */
void metric_value(struct buf *out, const char *name, const char *labels, double value);

#define METRIC_BOUNDS_MAX 16

/* Set `bounds` (ascending, a constant) and `n_bounds`; all else begins with zero. */
struct metric_histogram {
    const double *bounds;
    uint32_t n_bounds;
    _Atomic uint64_t counts[METRIC_BOUNDS_MAX + 1]; /* of values up to each bound and above the one before; the rest */
    _Atomic uint64_t sum_millionths;
};

/* Sets the bounds of a histogram of seconds, from a millisecond to five minutes: all of them have the same. */
void metric_histogram_of_seconds(struct metric_histogram *histogram);

/* Counts a value, which is not negative. */
void metric_observe(struct metric_histogram *histogram, double value);

/* Writes the histogram's values, after its family. */
void metric_histogram(struct buf *out, const char *name, struct metric_histogram *histogram);

#endif
