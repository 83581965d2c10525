#include "http/metric.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/json.h"

void metric_family(struct buf *out, const char *name, enum metric_kind kind, const char *help)
{
    static const char *const kinds[] = {"counter", "gauge", "histogram"};
    buf_format(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kinds[kind]);
}

void metric_value(struct buf *out, const char *name, const char *labels, double value)
{
    buf_text(out, name);
    if (labels != NULL) {
        buf_format(out, "{%s}", labels);
    }
    buf_char(out, ' ');
    json_write_number(out, value);
    buf_char(out, '\n');
}

void metric_histogram_of_seconds(struct metric_histogram *histogram)
{
    static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                    0.5,   1,      2.5,   5,    10,    30,   60,  300};
    histogram->bounds = bounds;
    histogram->n_bounds = ARRAY_LEN(bounds);
}

void metric_observe(struct metric_histogram *histogram, double value)
{
    uint32_t i = 0;
    ASSERT(histogram->n_bounds <= METRIC_BOUNDS_MAX);
    while (i < histogram->n_bounds && value > histogram->bounds[i]) {
        i++;
    }
    atomic_fetch_add_explicit(&histogram->counts[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&histogram->sum_millionths, (uint64_t)(value * 1e6), memory_order_relaxed);
}

void metric_histogram(struct buf *out, const char *name, struct metric_histogram *histogram)
{
    uint64_t sum_millionths = atomic_load_explicit(&histogram->sum_millionths, memory_order_relaxed);
    uint64_t n = 0;
    for (uint32_t i = 0; i <= histogram->n_bounds; i++) {
        n += atomic_load_explicit(&histogram->counts[i], memory_order_relaxed);
        buf_format(out, "%s_bucket{le=\"", name);
        if (i < histogram->n_bounds) {
            json_write_number(out, histogram->bounds[i]);
        } else {
            buf_text(out, "+Inf");
        }
        buf_format(out, "\"} %" PRIu64 "\n", n);
    }
    buf_format(out, "%s_sum ", name);
    json_write_number(out, (double)sum_millionths / 1e6);
    buf_format(out, "\n%s_count %" PRIu64 "\n", name, n);
}
