#include "coordinator/metrics.h"

#include "base/check.h"

void metrics_init(struct metrics *metrics)
{
    static const double size_bounds[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000};
    metric_histogram_of_seconds(&metrics->assign_seconds);
    metric_histogram_of_seconds(&metrics->commit_seconds);
    metrics->commit_batch_size.bounds = size_bounds;
    metrics->commit_batch_size.n_bounds = ARRAY_LEN(size_bounds);
    metric_histogram_of_seconds(&metrics->query_seconds);
    metric_histogram_of_seconds(&metrics->fetch_seconds);
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
