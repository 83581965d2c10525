#include "integration/worker/acts.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

#define PROGRESS 7 /* its place in the list */

static void run_echo(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                     struct exec_outcome *out)
{
    (void)executor;
    (void)stop;
    buf_append(&out->result, task->inputs, task->n_inputs);
    out->is_success = task->inputs[task->n_inputs] == '\0';
}

static void write_source(struct buf *out, const struct exec_source *source)
{
    buf_format(out, "%s%" PRIu64 ".%" PRIu64 ".%u %s %s", out->n > 1 ? "; " : "", source->stage, source->task,
               source->attempt, source->worker_id, source->address);
    for (uint32_t i = 0; i < source->n_partitions; i++) {
        const struct exec_partition *p = &source->partitions[i];
        buf_format(out, " [%u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIx64 "]", p->number, p->bytes, p->rows,
                   p->batches, p->checksum);
    }
}

static void run_sources(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                        struct exec_outcome *out)
{
    (void)executor;
    (void)stop;
    buf_char(&out->result, '"');
    for (uint32_t i = 0; i < task->n_sources; i++) {
        write_source(&out->result, &task->sources[i]);
    }
    buf_char(&out->result, '"');
    out->is_success = true;
}

static void run_map(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                    struct exec_outcome *out)
{
    static const struct exec_partition partitions[] = {{0, 100, 10, 1, UINT64_MAX}, {1, 200, 20, 2, 7}};
    (void)executor;
    (void)task;
    (void)stop;
    out->output = (struct exec_output){
        .kind = EXEC_OUTPUT_MAP, .partitions = mem_copy(partitions, sizeof partitions), .n_partitions = 2};
    out->rows = 30;
    out->bytes = 300;
    out->is_success = true;
}

static void run_rows(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                     struct exec_outcome *out)
{
    (void)executor;
    (void)task;
    (void)stop;
    out->output = (struct exec_output){.kind = EXEC_OUTPUT_RESULT, .rows = 5, .bytes = 4};
    buf_text(&out->output.ipc, "rows");
    out->is_success = true;
}

static void run_plan(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                     struct exec_outcome *out)
{
    (void)executor;
    (void)task;
    (void)stop;
    out->output = (struct exec_output){.kind = EXEC_OUTPUT_RESULT, .rows = 1, .bytes = 3000000};
    buf_text(&out->plan, "{\"stages\":[]}");
    out->is_success = true;
}

static void run_poisoned(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                         struct exec_outcome *out)
{
    run_plan(executor, task, stop, out);
    buf_text(&out->message, "poison");
}

static void run_lost(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                     struct exec_outcome *out)
{
    static const struct exec_lost lost[] = {{1, 2, 3}, {4, 5, 6}};
    (void)executor;
    (void)task;
    (void)stop;
    exec_fail(out, false, "fetch_failed: two of them");
    out->lost = mem_copy(lost, sizeof lost);
    out->n_lost = 2;
}

static void run_late(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                     struct exec_outcome *out)
{
    while (!exec_stop_wait(stop, 1000)) {
    }
    run_map(executor, task, stop, out);
    buf_text(&out->plan, "{\"stages\":[]}");
}

static void run_progress(struct executor *executor, const struct exec_task *task, struct exec_stop *stop,
                         struct exec_outcome *out)
{
    struct acts *acts = CONTAINER_OF(executor, struct acts, executors[PROGRESS]);
    task->on_progress(task->progress_context, 0.25, 10, 100);
    if (strcmp(task->inputs, "\"mad\"") == 0) {
        task->on_progress(task->progress_context, NAN, UINT64_MAX, UINT64_MAX);
    }
    while (atomic_load(&acts->hands->gate) == 0 && !exec_stop_wait(stop, 2)) {
    }
    out->is_success = true;
}

void acts_add(struct acts *acts, struct hands *hands)
{
    static const struct executor executors[] = {
        {.name = "echo", .run = run_echo},        {.name = "sources", .run = run_sources},
        {.name = "map", .run = run_map},          {.name = "rows", .run = run_rows},
        {.name = "plan", .run = run_plan},        {.name = "lost", .run = run_lost},
        {.name = "late", .run = run_late},        [PROGRESS] = {.name = "progress", .run = run_progress},
        {.name = "poisoned", .run = run_poisoned}};
    acts->hands = hands;
    for (size_t i = 0; i < ARRAY_LEN(executors); i++) {
        acts->executors[i] = executors[i];
        CHECK_ERR(executor_set_add(hands->set, &acts->executors[i], NULL), ERR_OK);
    }
}
