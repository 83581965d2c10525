#include "coordinator/metrics.h"

#include "base/check.h"

static const double second_bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
                                       0.5,   1,      2.5,   5,    10,    30,   60,  300};
static const double size_bounds[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000};

static void init_one(struct metric_histogram *histogram, const double *bounds, uint32_t n)
{
    histogram->bounds = bounds;
    histogram->n_bounds = n;
}

void metrics_init(struct metrics *metrics)
{
    init_one(&metrics->assign_seconds, second_bounds, ARRAY_LEN(second_bounds));
    init_one(&metrics->commit_seconds, second_bounds, ARRAY_LEN(second_bounds));
    init_one(&metrics->commit_batch_size, size_bounds, ARRAY_LEN(size_bounds));
    init_one(&metrics->query_seconds, second_bounds, ARRAY_LEN(second_bounds));
    init_one(&metrics->fetch_seconds, second_bounds, ARRAY_LEN(second_bounds));
}

static void note_job(struct metrics *metrics, const struct row_job *job)
{
    if (job->kind == JOB_KIND_QUERY && job_state_is_terminal(job->state)) {
        int64_t ms = job->finished_at_ms - job->submitted_at_ms;
        metric_observe(&metrics->query_seconds, ms > 0 ? (double)ms / 1000 : 0);
    }
}

static void note_event(struct metrics *metrics, const struct row_event *event)
{
    if (event->ref.job_id == NULL || event->ref.stage != EVENT_WHOLE_JOB) {
        return;
    }
    metrics->succeeded += event->type == EVENT_COMPLETED;
    metrics->failed += event->type == EVENT_FAILED;
    metrics->canceled += event->type == EVENT_CANCELLED;
}

void metrics_durable(struct metrics *metrics, const struct row *rows)
{
    for (const struct row *row = rows; row != NULL; row = row->next) {
        if (row->kind == ROW_JOB) {
            note_job(metrics, (const struct row_job *)(const void *)row);
        } else if (row->kind == ROW_EVENT) {
            note_event(metrics, (const struct row_event *)(const void *)row);
        }
    }
}
