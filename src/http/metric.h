/*
 * metric.h - metrics as Prometheus reads them: text, one line per value.
 *
 *     metric_family(out, "capstan_leases", METRIC_GAUGE, "Leases that are held at the moment.");
 *     metric_value(out, "capstan_leases", NULL, 12);
 *     metric_value(out, "capstan_tasks", "state=\"queued\"", 5);
 *
 * Ownership: the buffer is the caller's. Threads: any, each with its own buffer.
 */
#ifndef CAPSTAN_HTTP_METRIC_H
#define CAPSTAN_HTTP_METRIC_H

#include "base/buf.h"

#define METRIC_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum metric_kind { METRIC_COUNTER, METRIC_GAUGE, METRIC_HISTOGRAM };

/* Begins a family; its values follow. */
void metric_family(struct buf *out, const char *name, enum metric_kind kind, const char *help);

/* `labels` may be NULL. */
void metric_value(struct buf *out, const char *name, const char *labels, double value);

#endif
