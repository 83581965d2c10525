#include "main/bench_times.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct span {
    uint64_t from_ms;
    uint64_t to_ms;
    bool is_planning;
    uint64_t stage_id;
    uint64_t rows;
    uint64_t bytes;
    const char *worker;
};

struct spans {
    struct span *spans;
    uint32_t n;
};

static int by_start(const void *a, const void *b)
{
    const struct span *x = a;
    const struct span *y = b;
    return x->from_ms < y->from_ms ? -1 : x->from_ms > y->from_ms ? 1 : 0;
}

/* How long at least one of them was under way; without planning on request. The array gets sorted. */
static double covered_ms(struct spans *spans, bool with_planning)
{
    uint64_t total_ms = 0;
    uint64_t end_ms = 0;
    if (spans->n > 0) {
        qsort(spans->spans, spans->n, sizeof *spans->spans, by_start);
    }
    for (uint32_t i = 0; i < spans->n; i++) {
        const struct span *span = &spans->spans[i];
        uint64_t from_ms = span->from_ms > end_ms ? span->from_ms : end_ms;
        if ((span->is_planning && !with_planning) || span->to_ms <= from_ms) {
            continue;
        }
        total_ms += span->to_ms - from_ms;
        end_ms = span->to_ms;
    }
    return (double)total_ms;
}

static bool is_planning(const struct pb_query_status *status, uint64_t stage_id)
{
    for (size_t i = 0; i < status->n_stages; i++) {
        const char *name = status->stages[i]->name;
        if (status->stages[i]->stage_id == stage_id) {
            return strcmp(name, "plan") == 0 || strcmp(name, "refine") == 0;
        }
    }
    return false;
}

static struct spans spans_of(const struct pb_query_status *status, const struct pb_task_status *const *tasks, size_t n)
{
    struct spans spans = {.spans = mem_calloc(n, sizeof *spans.spans)};
    for (size_t i = 0; i < n; i++) {
        const struct pb_task_status *task = tasks[i];
        if (task->ref == NULL || task->started_at_ms == 0) {
            continue; /* skipped: it never ran */
        }
        spans.spans[spans.n++] = (struct span){.from_ms = task->started_at_ms,
                                               .to_ms = task->finished_at_ms,
                                               .is_planning = is_planning(status, task->ref->stage_id),
                                               .stage_id = task->ref->stage_id,
                                               .rows = task->rows,
                                               .bytes = task->bytes,
                                               .worker = task->worker_id};
    }
    return spans;
}

#define ALL_STAGES UINT64_MAX

static bool is_of(const struct span *span, uint64_t stage_id)
{
    return !span->is_planning && (stage_id == ALL_STAGES || span->stage_id == stage_id);
}

static uint32_t count_tasks(const struct spans *spans, uint64_t stage_id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < spans->n; i++) {
        n += is_of(&spans->spans[i], stage_id) ? 1 : 0;
    }
    return n;
}

static uint32_t count_workers(const struct spans *spans, uint64_t stage_id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < spans->n; i++) {
        bool is_new = is_of(&spans->spans[i], stage_id);
        for (uint32_t k = 0; k < i && is_new; k++) {
            is_new = !is_of(&spans->spans[k], stage_id) || strcmp(spans->spans[k].worker, spans->spans[i].worker) != 0;
        }
        n += is_new ? 1 : 0;
    }
    return n;
}

/* Whether other stages read what the stage wrote. */
static bool is_read(const struct pb_query_status *status, uint64_t stage_id)
{
    for (size_t i = 0; i < status->n_stages; i++) {
        for (size_t p = 0; p < status->stages[i]->n_parents; p++) {
            if (status->stages[i]->parents[p] == stage_id) {
                return true;
            }
        }
    }
    return false;
}

static void add_stages(const struct pb_query_status *status, const struct spans *spans, struct query_times *out)
{
    for (size_t i = 0; i < status->n_stages; i++) {
        uint64_t id = status->stages[i]->stage_id;
        uint32_t tasks = count_tasks(spans, id);
        uint32_t workers = count_workers(spans, id);
        if (is_planning(status, id)) {
            continue;
        }
        out->stages++;
        out->tasks_max = tasks > out->tasks_max ? tasks : out->tasks_max;
        if (tasks > 1 && (out->workers_least == 0 || workers < out->workers_least)) {
            out->workers_least = workers;
        }
    }
}

void query_times_of(const struct pb_query_status *status, const struct pb_task_status *const *tasks, size_t n,
                    struct query_times *out)
{
    struct spans spans = spans_of(status, tasks, n);
    double busy_ms = covered_ms(&spans, true);
    *out = (struct query_times){.run_ms = covered_ms(&spans, false)};
    out->plan_ms = busy_ms - out->run_ms;
    out->job_ms = (double)status->finished_at_ms - (double)status->submitted_at_ms;
    out->dispatch_ms = out->job_ms > busy_ms ? out->job_ms - busy_ms : 0;
    for (uint32_t i = 0; i < spans.n; i++) {
        const struct span *span = &spans.spans[i];
        if (span->is_planning) {
            continue;
        }
        out->task_ms += span->to_ms > span->from_ms ? (double)(span->to_ms - span->from_ms) : 0;
        if (is_read(status, span->stage_id)) {
            out->moved_bytes += span->bytes;
            out->moved_rows += span->rows;
        }
    }
    out->tasks = count_tasks(&spans, ALL_STAGES);
    out->workers = count_workers(&spans, ALL_STAGES);
    add_stages(status, &spans, out);
    if (out->stages == 0) { /* the planning task has run it */
        out->stages = 1;
        out->tasks = 1;
        out->tasks_max = 1;
        out->workers = 1;
    }
    mem_free(spans.spans);
}
