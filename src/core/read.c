/* What others may know about the state: plain reads, nothing moves. */
#include <string.h>

#include "core/core_internal.h"

enum err core_job_status(const struct core *core, const char *job_id, struct job_status *out)
{
    const struct job *job = job_find(core, job_id);
    if (job == NULL) {
        return ERR_NOT_FOUND;
    }
    *out = (struct job_status){
        .job_id = job->id,
        .name = job->name,
        .kind = (enum job_kind)job->kind,
        .state = (enum job_state)job->state,
        .priority = job->priority,
        .n_stages = job->n_stages,
        .running = job->running,
        .submitted_at_ms = job->submitted_at_ms,
        .started_at_ms = job->started_at_ms,
        .finished_at_ms = job->finished_at_ms,
        .message = job->message,
    };
    return ERR_OK;
}

enum err core_stage_status(const struct core *core, const char *job_id, uint32_t stage_id, struct stage_status *out)
{
    const struct job *job = job_find(core, job_id);
    const struct stage *stage = job == NULL ? NULL : stage_find(job, stage_id);
    if (stage == NULL) {
        return ERR_NOT_FOUND;
    }
    out->name = stage->name;
    out->n_tasks = stage->n_tasks;
    memcpy(out->counts, stage->counts, sizeof out->counts);
    out->rows = stage->rows + stage->ended_rows;
    out->bytes = stage->bytes + stage->ended_bytes;
    return ERR_OK;
}

const uint32_t *core_stage_parents(const struct core *core, const char *job_id, uint32_t stage_id, struct arena *arena,
                                   uint32_t *out_n)
{
    const struct job *job = job_find(core, job_id);
    const struct stage *stage = job == NULL ? NULL : stage_find(job, stage_id);
    uint32_t n = 0;
    *out_n = 0;
    if (stage == NULL) {
        return NULL;
    }
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        n++;
    }
    uint32_t *parents = arena_alloc(arena, n * sizeof *parents);
    for (uint32_t i = stage->first_parent; i != EDGE_NONE; i = job->edges[i].next_of_child) {
        parents[(*out_n)++] = job->edges[i].parent;
    }
    return parents;
}

static const struct task *find(const struct core *core, struct task_ref ref)
{
    const struct job *job = job_find(core, ref.job_id);
    return job == NULL ? NULL : task_find(job, ref.stage, ref.task);
}

enum err core_task_status(const struct core *core, struct task_ref ref, struct task_status *out)
{
    const struct task *task = find(core, ref);
    if (task == NULL) {
        return ERR_NOT_FOUND;
    }
    bool leased = task->state == TASK_RUNNING && !task->stage->child;
    *out = (struct task_status){
        .state = (enum task_state)task->state,
        .outcome = (enum attempt_outcome)task->outcome,
        .attempt = task->attempt,
        .failures = task->failures,
        .token = task->token,
        .worker_id = leased ? task->u.lease->worker->id : NULL,
        .ready_at_ms = task_timer_at(task),
    };
    return ERR_OK;
}

/* ---- nodes ---- */

static void describe_node(const struct worker *worker, struct node_info *out)
{
    *out = (struct node_info){
        .worker_id = worker->id,
        .incarnation = worker->incarnation,
        .address = worker->address,
        .version = worker->version,
        .status = (enum node_status)worker->status,
        .blacklisted = worker->blacklisted_until_ms != 0,
        .draining = worker->draining,
        .slots = worker->slots,
        .running = worker->n_running,
        .failures = worker->failures,
        .last_seen_ms = worker->heartbeat_at_ms,
        .load = worker->load,
        .offer = worker->profile->offer,
    };
}

static bool node_passes(const struct worker *worker, const struct node_filter *filter)
{
    const struct offer *offer = worker->profile->offer;
    if (filter == NULL) {
        return true;
    }
    if (filter->executor != NULL && !string_list_has(offer->executors, filter->executor)) {
        return false;
    }
    if (filter->op != NULL && !string_list_has(offer->ops, filter->op)) {
        return false;
    }
    for (uint32_t i = 0; filter->capability != NULL && i < offer->capabilities.count; i++) {
        const struct capability *offered = &offer->capabilities.items[i];
        if (strcmp(offered->key, filter->capability->key) == 0) {
            return capability_satisfies(offered, filter->capability);
        }
    }
    return filter->capability == NULL;
}

bool core_next_node(const struct core *core, const struct node_filter *filter, size_t *cursor, struct node_info *out)
{
    for (const struct worker *worker; (worker = map_next(&core->workers, cursor)) != NULL;) {
        if (node_passes(worker, filter)) {
            describe_node(worker, out);
            return true;
        }
    }
    return false;
}

enum err core_node(const struct core *core, const char *worker_id, struct node_info *out)
{
    const struct worker *worker = worker_find(core, worker_id);
    if (worker == NULL) {
        return ERR_NOT_FOUND;
    }
    describe_node(worker, out);
    return ERR_OK;
}

/* ---- outputs ---- */

static void describe_output(const struct output *output, struct output_info *out)
{
    *out = (struct output_info){
        .attempt = output->attempt,
        .worker_id = output->worker != NULL ? output->worker->id : output->worker_id,
        .address = output->worker != NULL ? output->worker->address : NULL,
        .rows = output->rows,
        .bytes = output->bytes,
        .is_inline = output->is_inline,
        .partitions = output->partitions,
        .n_partitions = output->n_partitions,
    };
}

enum err core_map_output(const struct core *core, const struct attempt_ref *ref, struct output_info *out,
                         struct error *e)
{
    const struct task *task = find(core, ref->task);
    bool registered = task != NULL && task->stage->output == OUTPUT_SHUFFLE && output_is_current(task) &&
                      (task->output->attempt == ref->attempt || BUG(core, serve_unregistered_map));
    if (!registered) {
        return error_set(e, ERR_NOT_FOUND, "map output not registered for requested attempt");
    }
    describe_output(task->output, out);
    return ERR_OK;
}

enum err core_result(const struct core *core, struct task_ref ref, struct output_info *out, struct error *e)
{
    const struct task *task = find(core, ref);
    if (task == NULL || task->stage->output != OUTPUT_RESULT) {
        return error_set(e, ERR_NOT_FOUND, "there is no such final task");
    }
    if (task->stage->job->state != JOB_SUCCEEDED || !output_is_current(task)) {
        return error_set(e, ERR_PRECONDITION, "the job has no results: it is %s",
                         job_state_name((enum job_state)task->stage->job->state));
    }
    describe_output(task->output, out);
    return ERR_OK;
}

uint32_t core_results(const struct core *core, const char *job_id, struct arena *arena,
                      const struct result_info **out_results)
{
    const struct job *job = job_find(core, job_id);
    uint32_t n = 0;
    *out_results = NULL;
    if (job == NULL || job->state != JOB_SUCCEEDED) {
        return 0;
    }
    for (uint32_t s = 0; s < job->n_stages; s++) {
        n += job->stages[s]->output == OUTPUT_RESULT ? job->stages[s]->n_tasks : 0;
    }
    struct result_info *results = arena_alloc(arena, n * sizeof *results);
    n = 0;
    for (uint32_t s = 0; s < job->n_stages; s++) {
        const struct stage *stage = job->stages[s];
        for (uint32_t t = 0; stage->output == OUTPUT_RESULT && t < stage->n_tasks; t++) {
            if (output_is_current(&stage->tasks[t])) {
                results[n].ref = (struct task_ref){.job_id = job->id, .stage = s, .task = t};
                describe_output(stage->tasks[t].output, &results[n++].output);
            }
        }
    }
    *out_results = results;
    return n;
}

enum err core_stage_sizes(const struct core *core, const char *job_id, uint32_t stage_id, uint64_t *out_rows,
                          uint64_t *out_bytes)
{
    const struct job *job = job_find(core, job_id);
    const struct stage *stage = job == NULL ? NULL : stage_find(job, stage_id);
    if (stage == NULL) {
        return ERR_NOT_FOUND;
    }
    *out_rows = stage->rows;
    *out_bytes = stage->bytes;
    return ERR_OK;
}

/* ---- statistics ---- */

static uint64_t count_entry(const struct job *job, uint64_t entry)
{
    const struct stage *stage = job->stages[entry >> 32];
    return stage->tasks[(uint32_t)entry].flags & TASK_IN_HEAP ? 1 : stage->n_tasks - stage->fresh;
}

static uint64_t count_ready(const struct jobqueue *queue)
{
    uint64_t n = queue->n_ready > 0 ? count_entry(queue->job, queue->top) : 0;
    for (uint32_t i = 0; i < queue->more.count; i++) {
        n += count_entry(queue->job, queue->more.ids[i]);
    }
    return n;
}

struct residency core_residency(const struct core *core)
{
    return (struct residency){.ended = core->ended_total, .forgotten = core->ended_total - core->n_ended};
}

struct core_stats core_stats(const struct core *core)
{
    struct core_stats stats = core->stats;
    size_t cursor = 0;
    stats.stuck_tasks = 0;
    LIST_EACH(at, &core->all_classes) {
        const struct class *class = CONTAINER_OF(at, struct class, in_core);
        LIST_EACH(q, &class->stuck) {
            stats.stuck_tasks += count_ready(CONTAINER_OF(q, struct jobqueue, in_class));
        }
    }
    memset(stats.nodes, 0, sizeof stats.nodes);
    for (const struct worker *worker; (worker = map_next(&core->workers, &cursor)) != NULL;) {
        stats.nodes[worker->status]++;
    }
    return stats;
}
